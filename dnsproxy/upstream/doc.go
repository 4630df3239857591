// Package upstream looks up the addresses of names from DNS servers. It runs on the host; the resolver and the gateway
// share a Client, and no process in a sandbox can reach it.
//
//	Resolve -> cache -> one lookup per question -> server by server -> UDP --truncated--> TCP
//	                                                               \-> TCP, DNS over TLS
//
// A Client only asks for A and AAAA records, and reads only the records of a response that belong to the question: the
// chain of CNAMEs, and the addresses at its end. It ignores all other records, so a response cannot poison the cache. It
// does not decide which addresses may be used: the caller does, with netpolicy.
//
// Against forged responses, each query has a random id, a random source port and random capitals in its name
// (draft-vixie-dnsext-dns0x20). A response is accepted only if it comes from the queried server and repeats the id and
// the question exactly.
package upstream
