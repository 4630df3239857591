// Package netpolicy decides what may leave a sandbox: the grammar of egress rules
// and Decide, the one pure function that every enforcer is held to.
//
// A rule names a host (or all hosts below one, with "*." before it), the ports on
// it, and how its traffic is looked at:
//
//	rule     = pattern ports mode [http] [addresses] [credential]
//	pattern  = name | "*." name | range          a range only with mode direct
//	ports    = ("tcp" | "udp") "/" number ...    tcp/443 unless given; the gateway carries TCP
//	mode     = "gateway" | "direct"
//	http     = methods, paths                    TLS is opened and each request checked
//	addresses = range ...                        special addresses to which the name may lead
//
// What no rule names is denied. A name leads to public addresses only, unless
// the rule gives the special range: a name that suddenly resolves to the cloud's metadata
// service or to the host's own network is refused, whichever server gave that answer.
package netpolicy
