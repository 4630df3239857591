package fence

// Why packets are dropped, in the words of the record. The order is that of enum reason in state.h.
const (
	allowed = iota
	notIP
	wrongLink
	badARP
	malformed
	options
	fragment
	extension
	wrongSource
	wrongProtocol
	icmp
	tcpFlags
	mapped
	checksum
	noFlow
	notPermitted
	expired
	tableFull
	revoked
	unasked
	withheld
	reasons
)

var reasonText = [reasons]string{
	notIP:         "not IPv4, IPv6 or ARP, or in a VLAN",
	wrongLink:     "a MAC address is not that of the guest or its gateway",
	badARP:        "ARP for other than the guest's own addresses",
	malformed:     "malformed packet",
	options:       "IPv4 options",
	fragment:      "IP fragment",
	extension:     "IPv6 extension header",
	wrongSource:   "an address is not the guest's own",
	wrongProtocol: "neither TCP nor UDP",
	icmp:          "ICMP",
	tcpFlags:      "TCP flags that contradict each other",
	mapped:        "IPv4 address mapped into IPv6",
	checksum:      "a checksum is to be written where it does not belong",
	noFlow:        "TCP without a connection that began here",
	notPermitted:  "no rule names this destination",
	expired:       "the name's answer that led here has expired",
	tableFull:     "too many concurrent flows",
	revoked:       "the policy does not allow this flow any more",
	unasked:       "not an answer to the guest",
	withheld:      "the address is the host's own, which the rule does not name, or not a single host's",
}
