import{x as a,y as b}from"./chunk-AB7PZTI5.js";import"./chunk-3N6GVRLB.js";export{b as same,a as verifyRecord};
