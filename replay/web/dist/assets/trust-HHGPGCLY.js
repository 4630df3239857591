import{a,b,c}from"./chunk-CVHMFOL5.js";import"./chunk-Q3BV7EQM.js";export{b as pin,a as trust,c as unpin};
