// Package gateway proxies the connections of a sandbox to the hosts that its policy names, and no others.
//
// It serves listeners inside the sandbox's network namespace. The address that a guest dials is the synthetic address of
// a name (netpolicy.Synthetic), and all names in the guest's data must equal that name:
//
//	guest -> listener -> name of the address -> first bytes
//	  TLS, rule without http:   SNI = name -> resolve -> record -> dial -> splice
//	  TLS, rule with http:      SNI = name -> resolve -> record -> TLS is opened here
//	                              -> each request: host = name, method, path -> record -> dial -> relay
//	  HTTP in the clear:        the same, request by request, without TLS; not on port 443
//	  anything else:            refused
//
// In a spliced connection the gateway parses the ClientHello, including the second one after a HelloRetryRequest. The
// rest is encrypted between the guest and the host, which may serve other names too (in its certificate, or by a Host
// field). If that matters the rule needs http.
//
// The credential of a rule is added to requests only inside TLS, after its use is recorded; other authentication is
// removed from the requests, or they are denied. Placeholders and values of secrets are found in all parts of a request
// that can be read, and those that are not for the host are not sent. Responses are masked before the guest receives
// them: those that cannot be searched are withheld. Bytes that a host sends after the end of a response are dropped, and
// end the connection to it. Secrets in request bodies are not found if they are compressed or spread over several
// requests.
//
// Names are resolved on the host, at the time of the connection; special addresses and the host's own are used only if
// the rule names them. Actions are recorded before they take effect: without a record the gateway does not dial.
package gateway
