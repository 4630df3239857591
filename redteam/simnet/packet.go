package simnet

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// packet is a parsed frame. What could not be parsed is zero.
type packet struct {
	proto    string // as in Sighting
	src, dst netip.AddrPort
	payload  []byte // of the transport, or all that could not be parsed
	hops     uint8
	icmp     uint8 // type, for icmp and icmp6
	fragment bool  // the packet is an IP fragment
	// refuses and refuser are set on an ICMP error: the source and the destination of the packet that it quotes.
	refuses, refuser netip.AddrPort
}

const (
	etherIPv4 = 0x0800
	etherARP  = 0x0806
	etherIPv6 = 0x86dd
)

func parse(frame []byte) packet {
	if len(frame) < 14 {
		return packet{proto: "short", payload: frame}
	}
	body := frame[14:]
	switch kind := binary.BigEndian.Uint16(frame[12:]); kind {
	case etherIPv4:
		return parse4(body)
	case etherIPv6:
		return parse6(body)
	case etherARP:
		return packet{proto: "arp", payload: body}
	default:
		return packet{proto: fmt.Sprintf("%#04x", kind), payload: body}
	}
}

// parse4 reads an IPv4 packet (RFC 791, section 3.1).
func parse4(b []byte) packet {
	if len(b) < 20 || b[0]>>4 != 4 || int(b[0]&15)*4 < 20 || int(b[0]&15)*4 > len(b) {
		return packet{proto: "broken ipv4", payload: b}
	}
	p := packet{hops: b[8], src: at(b[12:16], 0), dst: at(b[16:20], 0)}
	place := binary.BigEndian.Uint16(b[6:])
	p.fragment = place&0x3fff != 0
	if size := int(binary.BigEndian.Uint16(b[2:])); size >= int(b[0]&15)*4 && size < len(b) {
		b = b[:size]
	}
	p.transport(b[9], b[int(b[0]&15)*4:], place&0x1fff == 0)
	return p
}

// parse6 reads an IPv6 packet and walks over its extension headers (RFC 8200, section 4).
func parse6(b []byte) packet {
	if len(b) < 40 || b[0]>>4 != 6 {
		return packet{proto: "broken ipv6", payload: b}
	}
	p := packet{hops: b[7], src: at(b[8:24], 0), dst: at(b[24:40], 0)}
	next, rest, first := b[6], b[40:], true
	for {
		size := 0
		switch next {
		case 0, 43, 60: // hop by hop, routing, destination options
			if len(rest) >= 2 {
				size = int(rest[1])*8 + 8
			}
		case 44: // fragment
			size = 8
			p.fragment = true
			if len(rest) >= 4 {
				first = binary.BigEndian.Uint16(rest[2:])&0xfff8 == 0
			}
		default:
			p.transport(next, rest, first)
			return p
		}
		if size == 0 || size > len(rest) {
			p.proto, p.payload = "broken ipv6", rest
			return p
		}
		next, rest = rest[0], rest[size:]
	}
}

// transport reads the ports of the first fragment.
func (p *packet) transport(proto uint8, b []byte, first bool) {
	names := map[uint8]string{1: "icmp", 6: "tcp", 17: "udp", 58: "icmp6"}
	p.payload = b
	if p.proto = names[proto]; p.proto == "" {
		p.proto = fmt.Sprint(proto)
		return
	}
	if !first || len(b) < 8 {
		return
	}
	switch p.proto {
	case "tcp", "udp":
		p.src = netip.AddrPortFrom(p.src.Addr(), binary.BigEndian.Uint16(b))
		p.dst = netip.AddrPortFrom(p.dst.Addr(), binary.BigEndian.Uint16(b[2:]))
		head := 8
		if p.proto == "tcp" && len(b) >= 20 {
			head = min(max(int(b[12]>>4)*4, 20), len(b))
		}
		p.payload = b[head:]
	default:
		p.icmp, p.payload = b[0], b[8:]
		if p.proto == "icmp" && p.icmp == 3 {
			quoted := parse4(p.payload)
			p.refuses, p.refuser = quoted.src, quoted.dst
		}
		if p.proto == "icmp6" && p.icmp == 1 {
			quoted := parse6(p.payload)
			p.refuses, p.refuser = quoted.src, quoted.dst
		}
	}
}

func at(b []byte, port uint16) netip.AddrPort {
	a, _ := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a, port)
}

// neighbourly reports whether a packet serves address resolution on the wire, and cannot have passed a router: ARP,
// neighbour discovery with a hop limit of 255 (RFC 4861, section 7.1) and multicast listener reports (RFC 3810,
// section 5). It excludes router advertisements and redirects, which no node of the network sends.
func (p packet) neighbourly() bool {
	switch p.proto {
	case "arp":
		return len(p.payload) >= 28 && !ofGuest(p.payload[14:18]) && !ofGuest(p.payload[24:28]) && zero(p.payload[28:])
	case "icmp6":
		solicits := p.icmp == 133 || p.icmp == 135 || p.icmp == 136
		listens := p.icmp == 131 || p.icmp == 132 || p.icmp == 143
		return solicits && p.hops == 255 || listens && p.hops == 1
	}
	return false
}

// ofGuest reports whether an address is on a guest's link (198.18.0.0/15), which must not appear outside the sandbox.
func ofGuest(b []byte) bool { return b[0] == 198 && b[1]&^1 == 18 }

func zero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
