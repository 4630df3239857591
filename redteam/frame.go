package redteam

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/custody-project/custody/netpolicy"
)

// EtherTypes and numbers of IP protocols (IANA).
const (
	ether4    = 0x0800
	etherARP  = 0x0806
	etherVLAN = 0x8100
	etherQinQ = 0x88a8
	ether6    = 0x86dd

	protoICMP  = 1
	protoTCP   = 6
	protoUDP   = 17
	protoICMP6 = 58
)

// TCP flags (RFC 9293, section 3.1).
const (
	tcpFIN = 1 << iota
	tcpSYN
	tcpRST
	tcpPSH
	tcpACK
	tcpURG
)

// ether is a frame from the guest to the gateway.
func ether(kind uint16, body []byte) []byte {
	return etherBetween(netpolicy.GuestMAC, netpolicy.GatewayMAC, kind, body)
}

func etherBetween(from, to [6]byte, kind uint16, body []byte) []byte {
	b := slices.Concat(to[:], from[:])
	return append(binary.BigEndian.AppendUint16(b, kind), body...)
}

// ip describes a packet. A zero field gets its correct value.
type ip struct {
	from, to netip.Addr // from: the guest's by default
	proto    uint8
	body     []byte
	options  []byte // IPv4, a multiple of 4
	place    uint16 // IPv4: flags and fragment offset
	length   int    // a wrong length for the header, if not 0
	version  uint8  // IPv4: a wrong version and header length, if not 0
	hops     uint8
}

func (p ip) bytes() []byte {
	if p.hops == 0 {
		p.hops = 64
	}
	if p.to.Is4() {
		return p.four()
	}
	return p.six()
}

// frame returns a frame of the guest with the packet.
func (p ip) frame() []byte {
	if p.to.Is4() {
		return ether(ether4, p.bytes())
	}
	return ether(ether6, p.bytes())
}

func (p ip) four() []byte {
	if !p.from.IsValid() {
		p.from = netpolicy.Guest4
	}
	size := 20 + len(p.options)
	h := make([]byte, 20, size+len(p.body))
	h[0] = 0x40 | uint8(size/4)
	if p.version != 0 {
		h[0] = p.version
	}
	total := size + len(p.body)
	if p.length != 0 {
		total = p.length
	}
	binary.BigEndian.PutUint16(h[2:], uint16(total))
	binary.BigEndian.PutUint16(h[4:], 0x7e57)
	binary.BigEndian.PutUint16(h[6:], p.place)
	h[8], h[9] = p.hops, p.proto
	copy(h[12:], p.from.AsSlice())
	copy(h[16:], p.to.AsSlice())
	h = append(h, p.options...)
	binary.BigEndian.PutUint16(h[10:], checksum(0, h))
	return append(h, p.body...)
}

func (p ip) six() []byte {
	if !p.from.IsValid() {
		p.from = netpolicy.Guest6
	}
	h := make([]byte, 40, 40+len(p.body))
	h[0] = 0x60
	length := len(p.body)
	if p.length != 0 {
		length = p.length
	}
	binary.BigEndian.PutUint16(h[4:], uint16(length))
	h[6], h[7] = p.proto, p.hops
	from, to := p.from.As16(), p.to.As16()
	copy(h[8:], from[:])
	copy(h[24:], to[:])
	return append(h, p.body...)
}

// udp sets the body to a datagram.
func (p ip) udp(from, to uint16, data string) ip {
	b := make([]byte, 8, 8+len(data))
	binary.BigEndian.PutUint16(b, from)
	binary.BigEndian.PutUint16(b[2:], to)
	binary.BigEndian.PutUint16(b[4:], uint16(8+len(data)))
	return p.with(protoUDP, append(b, data...), 6)
}

// tcp sets the body to a segment.
func (p ip) tcp(from, to uint16, flags uint8, data string) ip {
	b := make([]byte, 20, 20+len(data))
	binary.BigEndian.PutUint16(b, from)
	binary.BigEndian.PutUint16(b[2:], to)
	binary.BigEndian.PutUint32(b[4:], 1001)
	if flags&tcpSYN != 0 {
		binary.BigEndian.PutUint32(b[4:], 1000)
	}
	b[12], b[13] = 5<<4, flags
	binary.BigEndian.PutUint16(b[14:], 65535)
	return p.with(protoTCP, append(b, data...), 16)
}

// icmp sets the body to a message, of ICMP or ICMPv6.
func (p ip) icmp(kind, code uint8, rest []byte) ip {
	b := append([]byte{kind, code, 0, 0}, rest...)
	if p.to.Is4() {
		p.proto, p.body = protoICMP, b
		binary.BigEndian.PutUint16(b[2:], checksum(0, b))
		return p
	}
	return p.with(protoICMP6, b, 2)
}

// with sets the body and its checksum, which covers the addresses (RFC 9293,
// section 3.1; RFC 8200, section 8.1).
func (p ip) with(proto uint8, body []byte, at int) ip {
	p.proto, p.body = proto, body
	from := p.from
	if !from.IsValid() {
		from = Family.of(familyOf(p.to), netpolicy.Guest4, netpolicy.Guest6)
	}
	pseudo := slices.Concat(from.AsSlice(), p.to.AsSlice(), []byte{0, 0, byte(len(body) >> 8), byte(len(body)), 0, 0, 0, proto})
	binary.BigEndian.PutUint16(body[at:], checksum(0, slices.Concat(pseudo, body)))
	return p
}

// behind adds an IPv6 extension header before the body (RFC 8200, section 4).
func (p ip) behind(kind uint8, rest []byte) ip {
	p.proto, p.body = kind, slices.Concat([]byte{p.proto}, rest, p.body)
	return p
}

// checksum returns the internet checksum (RFC 1071).
func checksum(sum uint32, b []byte) uint16 {
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// arp returns an ARP packet for IPv4 over Ethernet (RFC 826), followed by rest.
func arp(operation uint16, fromMAC [6]byte, from netip.Addr, toMAC [6]byte, to netip.Addr, behind string) []byte {
	b := []byte{0, 1, 8, 0, 6, 4, byte(operation >> 8), byte(operation)}
	return slices.Concat(b, fromMAC[:], from.AsSlice(), toMAC[:], to.AsSlice(), []byte(behind))
}
