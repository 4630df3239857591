var o={holds:["ok","Proof holds"],consistent:["warn","Consistent only"],pending:["busy","Not finished yet"],cannot:["warn","Cannot be judged"],fails:["bad","Proof does not hold"]};export{o as a};
