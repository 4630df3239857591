// Package link has the addresses of the link between a guest and its gateway. It imports no other package of Custody, so
// that the guest's init does not contain the policy.
//
// The link is the same in every sandbox, so that a restored guest finds the addresses of its snapshot. Each sandbox has
// a separate network namespace; the addresses are not visible outside of it.
package link

import "net/netip"

// Both ends have static neighbour entries: no ARP is needed.
var (
	GuestMAC   = [6]byte{0x02, 0xc0, 0xde, 0, 0, 2}
	GatewayMAC = [6]byte{0x02, 0xc0, 0xde, 0, 0, 1}

	Guest4   = netip.MustParseAddr("198.18.0.2")
	Gateway4 = netip.MustParseAddr("198.18.0.1")
	Net4     = netip.MustParsePrefix("198.18.0.0/30")

	Guest6   = netip.MustParseAddr("fdc5:7a1c:19d2::2")
	Gateway6 = netip.MustParseAddr("fdc5:7a1c:19d2::1")
	Net6     = netip.MustParsePrefix("fdc5:7a1c:19d2::/64")
)
