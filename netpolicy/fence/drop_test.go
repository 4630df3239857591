package fence

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/netpolicy"
)

// edit changes bytes of a frame.
func edit(f func(b []byte)) func([]byte) []byte {
	return func(b []byte) []byte {
		f(b)
		return b
	}
}

func put(at int, bytes ...byte) func([]byte) []byte {
	return edit(func(b []byte) { copy(b[at:], bytes) })
}

// drops returns packets that must be dropped, over both IPv4 and IPv6. Their destination is allowed, so that nothing
// else stops them.
func drops(peer netip.Addr) map[string]struct {
	packet packet
	why    int
} {
	syn := packet{proto: protoTCP, peer: peer, guestPort: 1000, peerPort: 7000, flags: 2}
	udp := packet{proto: protoUDP, peer: peer, guestPort: 1000, peerPort: 7000, payload: []byte("x")}
	with := func(p packet, change func(*packet)) packet { change(&p); return p }
	bad := func(p packet, m func([]byte) []byte) packet { p.mutate = m; return p }
	v6 := peer.Is6()
	l4, next, fromAt := 34, 23, 26
	if v6 {
		l4, next, fromAt = 54, 20, 22
	}
	type row = struct {
		packet packet
		why    int
	}
	rows := map[string]row{
		"other EtherType": {bad(syn, put(12, 0x88, 0xcc)), notIP},
		"VLAN":            {bad(udp, func(b []byte) []byte { return append(append(bytes.Clone(b[:12]), 0x81, 0, 0, 5), b[12:]...) }), notIP},
		"double VLAN": {bad(udp, func(b []byte) []byte {
			return append(append(bytes.Clone(b[:12]), 0x88, 0xa8, 0, 5, 0x81, 0, 0, 6), b[12:]...)
		}), notIP},
		"802.3 length":         {bad(udp, put(12, 0, 40)), notIP},
		"source MAC":           {bad(syn, put(6, 0x0a)), wrongLink},
		"destination MAC":      {bad(syn, put(0, 2, 1)), wrongLink},
		"broadcast MAC":        {bad(syn, put(0, 255, 255, 255, 255, 255, 255)), wrongLink},
		"multicast MAC":        {bad(syn, put(0, 1, 0, 0x5e, 0, 0, 1)), wrongLink},
		"only a link header":   {bad(syn, func(b []byte) []byte { return b[:14] }), malformed},
		"half an IP header":    {bad(syn, func(b []byte) []byte { return b[:28] }), malformed},
		"other version":        {bad(syn, put(14, 0x55)), malformed},
		"cut short":            {bad(udp, func(b []byte) []byte { return b[:len(b)-1] }), malformed},
		"trailing bytes":       {bad(udp, func(b []byte) []byte { return append(b, make([]byte, 50)...) }), malformed},
		"UDP length too long":  {bad(udp, put(l4+4, 0, 10)), malformed},
		"UDP length too short": {bad(udp, put(l4+4, 0, 8)), malformed},
		"half a TCP header":    {with(syn, func(p *packet) { p.transport = make([]byte, 12) }), malformed},
		"half a UDP header":    {with(udp, func(p *packet) { p.transport = make([]byte, 4) }), malformed},
		"TCP offset too small": {bad(syn, put(l4+12, 4<<4)), malformed},
		"TCP offset too large": {bad(syn, put(l4+12, 15<<4)), malformed},
		"spoofed source":       {bad(syn, edit(func(b []byte) { b[fromAt+3]++ })), wrongSource},
		"gateway's address":    {bad(syn, edit(func(b []byte) { copy(b[fromAt:], gatewayOf(peer).AsSlice()) })), wrongSource},
		"SCTP":                 {with(udp, func(p *packet) { p.proto = 132 }), wrongProtocol},
		"GRE":                  {with(udp, func(p *packet) { p.proto = 47 }), wrongProtocol},
		"UDP-Lite":             {with(udp, func(p *packet) { p.proto = 136 }), wrongProtocol},
		"raw":                  {with(udp, func(p *packet) { p.proto = 255 }), wrongProtocol},
		"IP in IP":             {with(udp, func(p *packet) { p.proto = 4 }), wrongProtocol},
		"IPv6 in IP":           {with(udp, func(p *packet) { p.proto = 41 }), wrongProtocol},
		"no TCP flags":         {with(syn, func(p *packet) { p.flags = 0 }), tcpFlags},
		"Christmas tree":       {with(syn, func(p *packet) { p.flags = 0x29 }), tcpFlags},
		"SYN and FIN":          {with(syn, func(p *packet) { p.flags = 3 }), tcpFlags},
		"SYN and RST":          {with(syn, func(p *packet) { p.flags = 6 }), tcpFlags},
		"ACK out of nowhere":   {with(syn, func(p *packet) { p.flags = 16 }), noFlow},
		"SYN and ACK":          {with(syn, func(p *packet) { p.flags = 18 }), noFlow},
		"SYN and PSH":          {with(syn, func(p *packet) { p.flags = 10 }), noFlow},
		"RST out of nowhere":   {with(syn, func(p *packet) { p.flags = 4 }), noFlow},
		"other port":           {with(syn, func(p *packet) { p.peerPort = 7001 }), notPermitted},
		"other transport":      {with(udp, func(p *packet) { p.peerPort = 7002 }), notPermitted},
		"DNS over TLS":         {with(syn, func(p *packet) { p.peerPort = 853 }), notPermitted},
		"another resolver":     {with(udp, func(p *packet) { p.peerPort = 53 }), notPermitted},
	}
	if v6 {
		for name, n := range map[string]byte{"hop-by-hop": 0, "routing": 43, "ESP": 50, "AH": 51, "destination options": 60, "mobility": 135, "HIP": 139, "shim6": 140} {
			rows[name] = row{bad(udp, put(next, n)), extension}
		}
		rows["fragment header"] = row{bad(udp, put(next, 44)), fragment}
		rows["echo request"] = row{with(udp, func(p *packet) { p.proto, p.transport = 58, []byte{128, 0, 0, 0, 0, 1, 0, 1} }), icmp}
		rows["router advertisement"] = row{with(udp, func(p *packet) { p.proto, p.transport = 58, make([]byte, 16); p.transport[0] = 134 }), icmp}
		rows["neighbour solicitation"] = row{with(udp, func(p *packet) { p.proto, p.transport = 58, make([]byte, 24); p.transport[0] = 135 }), icmp}
		rows["packet too big"] = row{with(udp, func(p *packet) { p.proto, p.transport = 58, make([]byte, 60); p.transport[0] = 2 }), icmp}
		rows["no next header"] = row{bad(udp, put(next, 59)), wrongProtocol}
		rows["jumbogram"] = row{bad(udp, put(18, 0, 0)), malformed}
		return rows
	}
	rows["IP options"] = row{bad(udp, put(14, 0x46)), options}
	rows["short IHL"] = row{bad(udp, put(14, 0x44)), malformed}
	rows["first fragment"] = row{bad(udp, put(20, 0x20, 0)), fragment}
	rows["later fragment"] = row{bad(udp, put(20, 0, 9)), fragment}
	rows["evil bit"] = row{bad(udp, put(20, 0x80, 0)), fragment}
	rows["ping"] = row{with(udp, func(p *packet) { p.proto, p.transport = 1, []byte{8, 0, 0, 0, 0, 1, 0, 1} }), icmp}
	rows["redirect"] = row{with(udp, func(p *packet) { p.proto, p.transport = 1, make([]byte, 36); p.transport[0] = 5 }), icmp}
	rows["total length too small"] = row{bad(udp, put(16, 0, 19)), malformed}
	return rows
}

func gatewayOf(peer netip.Addr) netip.Addr {
	if peer.Is6() {
		return netpolicy.Gateway6
	}
	return netpolicy.Gateway4
}

// Each malformed or foreign packet is dropped, counted and reported with its reason; a valid one of the same flow
// passes. The peer receives only that one.
func TestDrops(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, way attacher, addr netip.Addr) {
		host, peer := newTopology(t)
		rules := []netpolicy.Rule{allow("45.0.0.0/24", "tcp/7000", "udp/7000", "tcp/7002"), allow("2a00:45::/64", "tcp/7000", "udp/7000", "tcp/7002")}
		f, seen := newFenceBy(t, way, host, rules...)
		w := &wire{t, f.Tap()}
		p := peer.listenPacket(t, "udp", at6or4(addr, 7000))
		want := map[string]uint64{}
		for name, row := range drops(addr) {
			before, err := f.Denials()
			must(t, err)
			w.send(row.packet.frame())
			after, err := f.Denials()
			must(t, err)
			text := reasonText[row.why]
			want[text]++
			if after[text] != before[text]+1 {
				t.Errorf("%s: was not dropped for %q: %v", name, text, diff(before, after))
			}
		}
		w.send(packet{proto: protoUDP, peer: addr, guestPort: 1000, peerPort: 7000, payload: []byte("good")}.frame())
		b := make([]byte, 100)
		p.SetDeadline(time.Now().Add(5 * time.Second))
		if n, _, err := p.ReadFrom(b); err != nil || string(b[:n]) != "good" {
			t.Errorf("the peer received %q, %v; only the good packet should have passed", b[:n], err)
		}
		told := map[string]uint64{}
		eventually(t, "every denial is reported", func() bool {
			clear(told)
			for _, ev := range seen.list() {
				if ev.State == audit.FlowDeny {
					told[counter(ev.Reason)] += ev.Count
				}
			}
			for why, n := range want {
				if told[why] < n {
					return false
				}
			}
			return true
		})
		for why, n := range want {
			if told[why] != n {
				t.Errorf("%q: %d packets, events have %d", why, n, told[why])
			}
		}
	})
}

// counter returns the name under which a denial is counted: an event may have a more specific reason.
func counter(reason string) string {
	switch netpolicy.Reason(reason) {
	case netpolicy.WrongPort, netpolicy.WrongMode, netpolicy.SpecialRange:
		return reasonText[notPermitted]
	}
	return reason
}

func diff(before, after map[string]uint64) map[string]uint64 {
	d := map[string]uint64{}
	for k, v := range after {
		if v != before[k] {
			d[k] = v - before[k]
		}
	}
	return d
}

func TestARP(t *testing.T) {
	t.Parallel()
	f, _ := newFence(t, nil)
	w := &wire{t, f.Tap()}
	w.send(arp(1, netpolicy.Guest4, netpolicy.Gateway4))
	answer := w.receive(2 * time.Second)
	for answer != nil && be16(answer[12:]) != 0x0806 {
		answer = w.receive(2 * time.Second)
	}
	if answer == nil || be16(answer[20:]) != 2 {
		t.Fatalf("no answer: %x", answer)
	}
	for name, frame := range map[string][]byte{
		"for another":     arp(1, netpolicy.Guest4, netip.MustParseAddr("198.18.0.9")),
		"from another":    arp(2, netip.MustParseAddr("198.18.0.9"), netpolicy.Gateway4),
		"gateway claimed": arp(2, netpolicy.Gateway4, netpolicy.Gateway4),
		"probe":           arp(1, netip.MustParseAddr("0.0.0.0"), netpolicy.Gateway4),
		"other operation": arp(3, netpolicy.Guest4, netpolicy.Gateway4),
		"short":           arp(1, netpolicy.Guest4, netpolicy.Gateway4)[:41],
		"sender's MAC":    edit(func(b []byte) { b[27]++ })(arp(1, netpolicy.Guest4, netpolicy.Gateway4)),
		"hardware":        edit(func(b []byte) { b[15] = 6 })(arp(1, netpolicy.Guest4, netpolicy.Gateway4)),
	} {
		before, err := f.Denials()
		must(t, err)
		w.send(frame)
		after, err := f.Denials()
		must(t, err)
		if after[reasonText[badARP]] != before[reasonText[badARP]]+1 {
			t.Errorf("%s: passed, or for another reason: %v", name, diff(before, after))
		}
	}
}

// A guest that requests checksum offload names the checksum's offset. Outside of the transport header this would change
// an address after both filters have checked it.
func TestChecksumIsNotWrittenOverAnAddress(t *testing.T) {
	t.Parallel()
	for family, addr := range peers {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			host, _ := newTopology(t)
			f, _ := newFence(t, host, everywhere("tcp/7000", "udp/7000")...)
			start := uint16(34)
			if addr.Is6() {
				start = 54
			}
			for name, c := range map[string]struct {
				start, offset uint16
				passes        bool
			}{
				"the transport's own":     {start, 6, true},
				"destination address":     {20, 10, false},
				"destination port":        {start, 2, false},
				"source address":          {20, 6, false},
				"payload":                 {start, 8, false},
				"one byte off":            {start, 5, false},
				"beginning of the packet": {40, 0, false},
			} {
				before, err := f.Denials()
				must(t, err)
				header := make([]byte, 10)
				header[0] = 1 // VIRTIO_NET_HDR_F_NEEDS_CSUM
				binary.NativeEndian.PutUint16(header[6:], c.start)
				binary.NativeEndian.PutUint16(header[8:], c.offset)
				frame := packet{proto: protoUDP, peer: addr, guestPort: 1000, peerPort: 7000, payload: make([]byte, 40)}.frame()
				_, refused := f.Tap().Write(append(header, frame...))
				after, err := f.Denials()
				must(t, err)
				dropped := refused != nil || after[reasonText[checksum]] == before[reasonText[checksum]]+1
				if dropped == c.passes {
					t.Errorf("%s: refused by the kernel: %v, denied: %v", name, refused, diff(before, after))
				}
			}
		})
	}
}

// No host can begin a flow to a guest.
func TestUnsolicitedIsDropped(t *testing.T) {
	t.Parallel()
	for family, addr := range peers {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			f, seen := newFence(t, nil)
			from := gatewayOf(addr)
			var err error
			c, err := f.ListenPacket(t.Context(), map[string]string{"ipv4": "udp4", "ipv6": "udp6"}[family], at6or4(from, 9))
			must(t, err)
			_, err = c.WriteTo([]byte("x"), udpAddr(guestOf(addr), 1000))
			c.Close()
			must(t, err)
			ev := seen.await(t, "unasked", func(ev Event) bool { return ev.Reason == reasonText[unasked] })
			if !ev.Inbound || ev.Flow.Src.Port() != 1000 || ev.Flow.Dst.Port() != 9 {
				t.Errorf("event says %+v", ev)
			}
		})
	}
}

func guestOf(peer netip.Addr) netip.Addr {
	if peer.Is6() {
		return netpolicy.Guest6
	}
	return netpolicy.Guest4
}

func udpAddr(a netip.Addr, port uint16) net.Addr {
	return net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, port))
}
