var e=["run","step","exec","exit","file","flow","dns","http","llm","secret","output","vm","copy","policy","finding","gap","probe","access"];export{e as a};
