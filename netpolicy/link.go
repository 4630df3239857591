package netpolicy

import "net/netip"

// The link between a guest and its gateway is the same in every sandbox, so
// that a restored guest finds the addresses of its snapshot. Each stands in a network
// namespace of its own; none of these addresses is seen outside of it.
var (
	GuestMAC   = [6]byte{0x02, 0xc0, 0xde, 0, 0, 2}
	GatewayMAC = [6]byte{0x02, 0xc0, 0xde, 0, 0, 1}

	Guest4   = netip.MustParseAddr("198.18.0.2")
	Gateway4 = netip.MustParseAddr("198.18.0.1")
	// Link4 is their network. Both ends have static neighbours: no ARP is needed.
	Link4 = netip.MustParsePrefix("198.18.0.0/30")

	Guest6   = netip.MustParseAddr("fdc5:7a1c:19d2::2")
	Gateway6 = netip.MustParseAddr("fdc5:7a1c:19d2::1")
	Link6    = netip.MustParsePrefix("fdc5:7a1c:19d2::/64")

	// Synthetic is the range whose addresses stand for names. Its first 256 are the link's.
	Synthetic = netip.MustParsePrefix("198.18.0.0/16")
	// FirstSynthetic is the first that is given out.
	FirstSynthetic = netip.MustParseAddr("198.18.1.0")
)

// ResolverPort is where the guest's resolver answers, on Gateway4, by UDP and TCP.
const ResolverPort = 53
