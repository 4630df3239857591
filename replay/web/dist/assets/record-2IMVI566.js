import{w as a,x as b}from"./chunk-E2QJF4HZ.js";import"./chunk-2QIK7RNA.js";export{b as same,a as verifyRecord};
