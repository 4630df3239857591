package fence

import (
	"encoding/binary"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// injector sends resets and ICMP errors to the guest and to the peers of direct flows. It does not retry: a lost packet
// only means that the receiver waits longer.
type injector struct {
	index      int      // of the TAP
	frames     int      // AF_PACKET
	raw4, raw6 *os.File // into the uplink; nil without one
}

func newInjector(f *Filters) *injector { return &injector{index: f.index, frames: f.frames} }

// openUplink makes the injector use two raw sockets into the uplink, and own them.
func (i *injector) openUplink(raw4, raw6 *os.File) {
	i.closeUplink()
	i.raw4, i.raw6 = raw4, raw6
}

func (i *injector) closeUplink() {
	for _, f := range []**os.File{&i.raw4, &i.raw6} {
		if *f != nil {
			(*f).Close()
			*f = nil
		}
	}
}

func (i *injector) toGuest(frame []byte) {
	_ = unix.Sendto(i.frames, frame, 0, &unix.SockaddrLinklayer{Ifindex: i.index})
}

func (i *injector) toPeer(peer netip.Addr, packet []byte) {
	f, to := i.raw4, unix.Sockaddr(nil)
	if peer.Is4() {
		to = &unix.SockaddrInet4{Addr: peer.As4()}
	} else {
		f, to = i.raw6, &unix.SockaddrInet6{Addr: peer.As16()}
	}
	if f == nil {
		return
	}
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Sendto(int(fd), packet, 0, to) })
	}
}

// answer reports to the guest that a packet was denied: the first packet of a flow is answered with ICMP's
// "administratively prohibited", a later one with a reset.
func (i *injector) answer(why int, quote []byte) {
	q, ok := parseQuote(quote)
	if !ok {
		return
	}
	switch why {
	case notPermitted, expired, tableFull, withheld:
		i.toGuest(prohibited(q, quote))
	case noFlow, revoked:
		if q.proto == protoTCP && q.flags&tcpRST == 0 {
			i.toGuest(q.resetBack())
		}
	}
}

// reset ends a TCP flow on both sides. Each side accepts a reset only with the exact sequence number that it expects
// next: the last that it acknowledged, or, if the acknowledgement is still in transit, the one after the last that was
// sent to it.
func (i *injector) reset(k programsFlowKey, v *programsFlow) {
	if k.Proto != protoTCP {
		return
	}
	key := keyOf(k)
	for _, seq := range distinct(v.GuestAck, v.PeerNext) {
		i.toGuest(ethernet(segment(key.Dst, key.Src, seq, v.GuestNext)))
	}
	for _, seq := range distinct(v.PeerAck, v.GuestNext) {
		i.toPeer(key.Dst.Addr(), segment(key.Src, key.Dst, seq, v.PeerNext))
	}
}

func distinct(a, b uint32) []uint32 {
	if a == b || a == 0 {
		return []uint32{b}
	}
	return []uint32{a, b}
}

// quoted is the start of a packet of the guest.
type quoted struct {
	src, dst netip.AddrPort
	proto    uint8
	flags    uint8
	seq, ack uint32
	size     uint32 // sequence numbers that it uses
}

const (
	tcpFIN = 0x01
	tcpSYN = 0x02
	tcpRST = 0x04
	tcpACK = 0x10
)

// parseQuote parses the start of a packet that the programs have checked.
func parseQuote(b []byte) (q quoted, ok bool) {
	var src, dst netip.Addr
	var total int
	switch {
	case len(b) >= 20+8 && b[0] == 0x45 && binary.BigEndian.Uint16(b[6:])&0x1fff == 0: // a later fragment has no ports
		q.proto = b[9]
		src, dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
		total = int(binary.BigEndian.Uint16(b[2:])) - 20
		b = b[20:]
	case len(b) >= 40+8 && b[0]>>4 == 6:
		q.proto = b[6]
		src, dst = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
		total = int(binary.BigEndian.Uint16(b[4:]))
		b = b[40:]
		if q.proto == protoFragment && len(b) >= 8+8 && binary.BigEndian.Uint16(b[2:])&^7 == 0 {
			q.proto = b[0]
			b = b[8:]
		}
	default:
		return q, false
	}
	q.src = netip.AddrPortFrom(src, binary.BigEndian.Uint16(b))
	q.dst = netip.AddrPortFrom(dst, binary.BigEndian.Uint16(b[2:]))
	if q.proto != protoTCP {
		return q, q.proto == protoUDP
	}
	if len(b) < 20 {
		return q, false
	}
	q.seq, q.ack, q.flags = binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:]), b[13]
	q.size = uint32(max(total-int(b[12]>>4)*4, 0))
	if q.flags&tcpSYN != 0 {
		q.size++
	}
	if q.flags&tcpFIN != 0 {
		q.size++
	}
	return q, true
}

// resetBack answers a segment as RFC 9293, section 3.10.7.1 specifies for a connection that does not exist.
func (q quoted) resetBack() []byte {
	if q.flags&tcpACK != 0 {
		return ethernet(segment(q.dst, q.src, q.ack, q.seq+q.size))
	}
	return ethernet(segment(q.dst, q.src, 0, q.seq+q.size))
}
