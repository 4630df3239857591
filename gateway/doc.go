// Package gateway carries the connections of a sandbox to the hosts that its
// policy names, and no others.
//
// It serves listeners inside the sandbox's network namespace. The address that
// a guest dials stands for a name (netpolicy.Synthetic), and every word of the guest
// about where it wants to go must be that name:
//
//	guest -> listener -> whose name is the address? -> first bytes
//	  TLS, rule without http:   SNI = name -> resolve -> record -> dial -> splice
//	  TLS, rule with http:      SNI = name -> resolve -> record -> TLS is opened here
//	                              -> each request: host = name, method, path -> record -> dial -> relay
//	  HTTP in the clear:        the same, request by request, without TLS; not on port 443
//	  anything else:            refused
//
// Of a spliced connection the gateway sees the ClientHello, the one before and the one
// after a HelloRetryRequest, and what is inside is between the guest and the named host: that
// host may serve other names too (its certificate, a Host field). Where that matters the rule
// needs http.
//
// A rule with a credential has it put into its requests, inside TLS only, once its use is in the
// record; what else authenticates is taken out of them or refused. Placeholders and values of secrets that
// stand in a request are found wherever it can be read, and what is not for its host does not
// leave. Answers are masked before the guest sees them: what cannot be looked through is withheld. What
// a host sends beyond an answer's end is dropped and ends the connection to it.
// Of a request's body nothing is found that is compressed, or spread over several requests.
//
// Names are resolved on the host, at the time of the connection; special
// addresses and the host's own are used only where the rule names them. What is
// done is in the record before it takes effect: without a record nothing is dialled.
package gateway
