import{j as t}from"./chunk-OWR5UO56.js";import{d as r}from"./chunk-GZDA7RRZ.js";import{E as p,c as m,w as o}from"./chunk-2NGCIQ3E.js";p();r();m(o(t,{}),document.getElementById("app"));
