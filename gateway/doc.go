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
// Names are resolved on the host, at the time of the connection; special
// addresses and the host's own are used only where the rule names them. What is
// done is in the record before it takes effect: without a record nothing is dialled.
package gateway
