// Package upstream asks DNS servers on the host's side for the addresses of a
// name. The resolver and the gateway share it; nothing inside a sandbox reaches it.
//
//	Resolve -> cache -> one question at a time -> server by server -> UDP --truncated--> TCP
//	                                                              \-> TCP, DNS over TLS
//
// Only A and AAAA are asked for, and only what hangs together with the question is
// read out of a response: its chain of CNAMEs and the addresses at the end of it. What
// else a response holds is not looked at, so there is nothing to poison. Whether an
// address may be used is not decided here: the caller asks netpolicy.
//
// Against forged answers each query has a random id, a random source port and
// random capitals in its name (draft-vixie-dnsext-dns0x20), and a response counts only
// if it comes from the server asked and repeats id and question to the bit.
package upstream
