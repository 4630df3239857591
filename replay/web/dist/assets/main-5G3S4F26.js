import{j as t}from"./chunk-6JCOATWL.js";import{e as r}from"./chunk-LOVBFYE4.js";import{E as p,c as m,w as o}from"./chunk-GGXE5QPT.js";p();r();m(o(t,{}),document.getElementById("app"));
