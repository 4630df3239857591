import{x as a,y as b}from"./chunk-PW5X622B.js";import"./chunk-2QIK7RNA.js";export{b as same,a as verifyRecord};
