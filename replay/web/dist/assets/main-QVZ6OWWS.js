import{j as t}from"./chunk-GLZ257KN.js";import{d as r}from"./chunk-6EQ7T4JT.js";import{D as p,c as m,v as o}from"./chunk-GJD2WZS5.js";p();r();m(o(t,{}),document.getElementById("app"));
