package netpolicy

import (
	"net/netip"

	"github.com/custody-project/custody/netpolicy/link"
)

// The link between a guest and its gateway: see package link.
var (
	GuestMAC   = link.GuestMAC
	GatewayMAC = link.GatewayMAC

	Guest4   = link.Guest4
	Gateway4 = link.Gateway4
	Link4    = link.Net4

	Guest6   = link.Guest6
	Gateway6 = link.Gateway6
	Link6    = link.Net6

	// Synthetic is the range of addresses that the resolver assigns to names. The first 256 belong to the link.
	Synthetic = netip.MustParsePrefix("198.18.0.0/16")
	// FirstSynthetic is the first address to assign.
	FirstSynthetic = netip.MustParseAddr("198.18.1.0")
)

// ResolverPort is the UDP and TCP port of the sandbox's resolver, on Gateway4.
const ResolverPort = 53
