import{a,b,c}from"./chunk-7DKN2NJS.js";import"./chunk-Y4VGMTLU.js";export{b as pin,a as trust,c as unpin};
