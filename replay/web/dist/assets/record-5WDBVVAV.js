import{w as a,x as b}from"./chunk-SE2NUI42.js";import"./chunk-FRSI3XWE.js";export{b as same,a as verifyRecord};
