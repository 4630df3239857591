import{w as a,x as b}from"./chunk-266I3TE7.js";import"./chunk-FRSI3XWE.js";export{b as same,a as verifyRecord};
