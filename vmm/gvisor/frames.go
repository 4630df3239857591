package gvisor

import "encoding/binary"

// Parts of a frame, as RFC 894, RFC 8200 and RFC 4443 define them.
const (
	etherHeader = 14
	etherIPv6   = 0x86dd
	ip6Header   = 40

	protoHopByHop = 0
	protoICMPv6   = 58

	icmp6Unreachable = 1
	icmp6NoRoute     = 0 // codes of icmp6Unreachable
	icmp6Prohibited  = 1
)

// icmp6 returns the ICMPv6 message in a frame with its header of virtio-net; nil if there is none, or only a part of its header.
func icmp6(frame []byte) []byte {
	if len(frame) < vnetHeader+etherHeader+ip6Header {
		return nil
	}
	b := frame[vnetHeader:]
	if binary.BigEndian.Uint16(b[12:]) != etherIPv6 {
		return nil
	}
	b = b[etherHeader:]
	proto, rest := b[6], b[ip6Header:]
	if proto == protoHopByHop && len(rest) >= 8 { // the header's length is in units of 8 bytes, without the first
		size := 8 + 8*int(rest[1])
		if proto = rest[0]; size > len(rest) {
			return nil
		}
		rest = rest[size:]
	}
	if proto != protoICMPv6 || len(rest) < 8 {
		return nil
	}
	return rest
}

// explain changes the fence's answer "prohibited" to "no route". The sentry ignores the former, and a connection that the fence denies
// would time out instead of failing.
func explain(frame []byte) {
	b := icmp6(frame)
	if b == nil || b[0] != icmp6Unreachable || b[1] != icmp6Prohibited {
		return
	}
	b[1] = icmp6NoRoute
	// RFC 1624, equation 3: the word of type and code is smaller by 1, so the complement of the sum is greater by 1.
	sum := uint32(binary.BigEndian.Uint16(b[2:])) + icmp6Prohibited
	binary.BigEndian.PutUint16(b[2:], uint16(sum+sum>>16))
}
