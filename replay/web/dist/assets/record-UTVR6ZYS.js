import{x as a,y as b}from"./chunk-UET6BFKI.js";import"./chunk-2QIK7RNA.js";export{b as same,a as verifyRecord};
