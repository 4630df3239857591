package fence

import (
	"encoding/binary"
	"net/netip"

	"github.com/custody-project/custody/netpolicy"
)

// packet describes a frame. Zero fields mean the values of a well-behaved guest.
type packet struct {
	in        bool // from the gateway to the guest
	proto     uint8
	peer      netip.Addr
	guestPort uint16
	peerPort  uint16
	flags     uint8
	seq, ack  uint32
	payload   []byte
	mutate    func(frame []byte) []byte // applied to the frame last
	transport []byte                    // instead of TCP's or UDP's header and payload
}

func (p packet) v6() bool { return p.peer.Is6() }

// frame builds the bytes, with checksums.
func (p packet) frame() []byte {
	src, dst := p.guestPort, p.peerPort
	guest := netpolicy.Guest4
	if p.v6() {
		guest = netpolicy.Guest6
	}
	from, to := guest, p.peer
	macFrom, macTo := netpolicy.GuestMAC, netpolicy.GatewayMAC
	if p.in {
		src, dst, from, to, macFrom, macTo = dst, src, to, from, macTo, macFrom
	}
	body := p.transport
	switch {
	case body != nil:
	case p.proto == protoTCP:
		body = binary.BigEndian.AppendUint16(nil, src)
		body = binary.BigEndian.AppendUint16(body, dst)
		body = binary.BigEndian.AppendUint32(body, p.seq)
		body = binary.BigEndian.AppendUint32(body, p.ack)
		body = append(body, 5<<4, p.flags, 0xff, 0xff, 0, 0, 0, 0)
		body = append(body, p.payload...)
	default:
		body = binary.BigEndian.AppendUint16(nil, src)
		body = binary.BigEndian.AppendUint16(body, dst)
		body = binary.BigEndian.AppendUint16(body, uint16(8+len(p.payload)))
		body = append(body, 0, 0)
		body = append(body, p.payload...)
	}
	f := append(append([]byte{}, macTo[:]...), macFrom[:]...)
	if p.v6() {
		f = append(f, 0x86, 0xdd, 0x60, 0, 0, 0)
		f = binary.BigEndian.AppendUint16(f, uint16(len(body)))
		f = append(f, p.proto, 64)
	} else {
		f = append(f, 8, 0, 0x45, 0)
		f = binary.BigEndian.AppendUint16(f, uint16(20+len(body)))
		f = append(f, 0, 0, 0x40, 0, 64, p.proto, 0, 0)
	}
	f = append(append(append(f, from.AsSlice()...), to.AsSlice()...), body...)
	if !p.v6() {
		sum4(f[14:34])
	}
	if at := map[uint8]int{protoTCP: 16, protoUDP: 6}[p.proto]; at > 0 && p.transport == nil {
		pseudo := append(append(from.AsSlice(), to.AsSlice()...), 0, p.proto, byte(len(body)>>8), byte(len(body)))
		binary.BigEndian.PutUint16(f[len(f)-len(body)+at:], sum(append(pseudo, body...)))
	}
	if p.mutate != nil {
		f = p.mutate(f)
	}
	return f
}

// sum4 sets an IPv4 header's checksum.
func sum4(h []byte) {
	h[10], h[11] = 0, 0
	binary.BigEndian.PutUint16(h[10:], sum(h))
}

// sum returns the internet checksum (RFC 1071).
func sum(b []byte) uint16 {
	if len(b)%2 == 1 {
		b = append(b, 0)
	}
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// arp returns an ARP packet of the guest.
func arp(operation uint16, from, to netip.Addr) []byte {
	f := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, netpolicy.GuestMAC[:]...)
	f = append(f, 8, 6, 0, 1, 8, 0, 6, 4, byte(operation>>8), byte(operation))
	f = append(append(f, netpolicy.GuestMAC[:]...), from.AsSlice()...)
	return append(append(f, make([]byte, 6)...), to.AsSlice()...)
}
