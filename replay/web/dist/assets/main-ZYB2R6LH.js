import{j as t}from"./chunk-PCYZLRID.js";import{e as r}from"./chunk-VOKXVVY4.js";import{F as p,c as m,x as o}from"./chunk-BHWJSU5I.js";p();r();m(o(t,{}),document.getElementById("app"));
