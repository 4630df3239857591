import{x as a,y as b}from"./chunk-IA4WL4V6.js";import"./chunk-3N6GVRLB.js";export{b as same,a as verifyRecord};
