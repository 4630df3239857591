import{j as t}from"./chunk-BUKPYV7J.js";import{e as r}from"./chunk-46F5ZWSR.js";import{E as p,c as m,w as o}from"./chunk-QW7ZVEFT.js";p();r();m(o(t,{}),document.getElementById("app"));
