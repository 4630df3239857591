// Package netpolicy decides which traffic may leave a sandbox: it has the grammar of egress rules, and Decide, the pure
// function that every enforcer implements.
//
// A rule names a host (or, with "*." before it, all hosts below one), the ports on it, and how its traffic is inspected:
//
//	rule     = pattern ports mode [http] [addresses] [credential]
//	pattern  = name | "*." name | range          a range only with mode direct
//	ports    = ("tcp" | "udp") "/" number ...    tcp/443 unless given; the gateway carries TCP
//	mode     = "gateway" | "direct"
//	http     = methods, paths                    TLS is opened and each request checked
//	addresses = range ...                        special addresses to which the name may resolve
//
// Destinations that no rule names are denied. A name may resolve to public addresses only, unless the rule names the
// special range: a name that suddenly resolves to a cloud's metadata service or to the host's network is denied,
// whichever server answered.
package netpolicy
