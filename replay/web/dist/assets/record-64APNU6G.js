import{w as a,x as b}from"./chunk-N5GOW7MR.js";import"./chunk-2QIK7RNA.js";export{b as same,a as verifyRecord};
