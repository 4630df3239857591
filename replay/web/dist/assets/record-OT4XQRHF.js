import{w as a,x as b}from"./chunk-SGMM6Z6H.js";import"./chunk-FRSI3XWE.js";export{b as same,a as verifyRecord};
