import{j as t}from"./chunk-XUO5EOCX.js";import{e as r}from"./chunk-NDYUHUMZ.js";import{E as p,c as m,w as o}from"./chunk-QW6ON6Y3.js";p();r();m(o(t,{}),document.getElementById("app"));
