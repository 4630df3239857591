import{j as t}from"./chunk-2P5R2S6D.js";import{d as r}from"./chunk-6UNA6YQT.js";import{E as p,c as m,w as o}from"./chunk-QW7ZVEFT.js";p();r();m(o(t,{}),document.getElementById("app"));
