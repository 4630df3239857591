import{y as a,z as b}from"./chunk-GMIOGYVF.js";import"./chunk-3N6GVRLB.js";export{b as same,a as verifyRecord};
