import{x as a,y as b}from"./chunk-7LVOVU2C.js";import"./chunk-3N6GVRLB.js";export{b as same,a as verifyRecord};
