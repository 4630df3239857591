package fence

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/netpolicy"
)

// fragmentOf returns a fragment of a frame's datagram, with the bytes from begin to end. Those beyond the datagram's end
// are zero.
func fragmentOf(whole []byte, id uint32, from, to int, more bool) []byte {
	head := 34
	if be16(whole[12:]) == 0x86dd {
		head = 54
	}
	body := append(bytes.Clone(whole[head:]), make([]byte, 65536)...)[from:to]
	f := bytes.Clone(whole[:head])
	place := uint16(from)
	if head == 34 {
		place = uint16(from / 8)
		if more {
			place |= 0x2000
		}
		binary.BigEndian.PutUint16(f[16:], uint16(20+len(body)))
		binary.BigEndian.PutUint16(f[18:], uint16(id))
		binary.BigEndian.PutUint16(f[20:], place)
		sum4(f[14:34])
		return append(f, body...)
	}
	if more {
		place |= 1
	}
	binary.BigEndian.PutUint16(f[18:], uint16(8+len(body)))
	f = binary.BigEndian.AppendUint16(append(f, f[20], 0), place)
	f[20] = 44
	return append(binary.BigEndian.AppendUint32(f, id), body...)
}

// echoPackets sends each datagram back, until the test ends.
func echoPackets(t testing.TB, c net.PacketConn) {
	var echoing sync.WaitGroup
	echoing.Go(func() {
		b := make([]byte, 1<<16)
		for {
			n, from, err := c.ReadFrom(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = c.WriteTo(b[:n], from)
			}
		}
	})
	t.Cleanup(func() { c.Close(); echoing.Wait() })
}

// sendsBack sends a datagram, repeatedly if it is lost, and waits for its echo.
func sendsBack(t testing.TB, c net.Conn, datagram []byte) {
	t.Helper()
	b := make([]byte, 1<<16)
	for range 5 {
		_, err := c.Write(datagram)
		must(t, err)
		c.SetReadDeadline(time.Now().Add(3 * time.Second))
		for {
			n, err := c.Read(b)
			if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, unix.EMSGSIZE) { // lost, and the path's MTU was reported
				break
			}
			must(t, err)
			if sha256.Sum256(b[:n]) == sha256.Sum256(datagram) {
				return
			}
			if n == len(datagram) {
				t.Fatalf("%d bytes came back with others among them", n)
			}
		}
	}
	t.Fatalf("%d bytes never came back", len(datagram))
}

func random(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

// Datagrams of any size reach the allowed peer, and its answers the guest; those larger than the MTU are fragmented. See
// newTopology.
func TestDirectDatagramsOfAnySize(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, way attacher, addr netip.Addr) {
		host, peer := newTopology(t)
		f, _ := newFenceBy(t, way, host, everywhere("udp/7000")...)
		g := newGuest(t, f)
		to := at6or4(addr, 7000)
		echoPackets(t, peer.listenPacket(t, "udp", to))
		c, err := g.dial("udp", to)
		must(t, err)
		defer c.Close()
		var sent uint64
		for _, size := range []int{1, 1400, 1452, 1453, 1472, 1473, 1480, 1500, 2960, 4000, 9000, 32768, 65506, 65507} {
			sendsBack(t, c, random(size))
			sent += uint64(size)
		}
		flow, ok := f.Flow(Key{Proto: "udp", Src: c.LocalAddr().(*net.UDPAddr).AddrPort(), Dst: netip.MustParseAddrPort(to)})
		if !ok || flow.BytesOut < sent || flow.BytesIn < sent || flow.PacketsOut < sent/1500 || flow.PacketsIn < sent/1500 {
			t.Errorf("after %d bytes in each direction the flow is %+v", sent, flow)
		}
		if denied, err := f.Denials(); err != nil || denied[reasonText[fragment]] > 0 {
			t.Errorf("denied: %v, %v", denied, err)
		}
	})
}

// A part of a datagram in a table of a test.
type part struct {
	from, to int
	last     bool
	id       uint32                 // 1 unless given
	port     uint16                 // 7000 unless given
	peer     netip.Addr             // the peer's unless given
	mutate   func([]byte) []byte    // applied to the frame last
	header   func(b []byte, l4 int) // of virtio-net, with the offset of the transport header
}

// hostile returns sequences of fragments of one datagram of 72 bytes for an allowed port. If drop is 0 the datagram
// arrives; otherwise that many fragments are dropped for the reason why, and nothing arrives.
func hostile(addr netip.Addr) map[string]struct {
	parts []part
	drop  uint64
	why   int
} {
	type row = struct {
		parts []part
		drop  uint64
		why   int
	}
	other := addr.Next()
	rows := map[string]row{
		"in order":               {[]part{{from: 0, to: 24}, {from: 24, to: 48}, {from: 48, to: 72, last: true}}, 0, 0},
		"the header alone first": {[]part{{from: 0, to: 8}, {from: 8, to: 72, last: true}}, 0, 0},
		"the first again":        {[]part{{from: 0, to: 24}, {from: 0, to: 24}, {from: 24, to: 72, last: true}}, 0, 0},
		"one between to a port that is not allowed": {[]part{{from: 0, to: 24}, {from: 0, to: 24, port: 7009, id: 2}, {from: 24, to: 72, last: true}}, 1, notPermitted},
		"a first to a port that is not allowed":     {[]part{{from: 0, to: 24, port: 7009}, {from: 24, to: 72, last: true}}, 1, fragment},
		"no first":                                  {[]part{{from: 24, to: 48}, {from: 48, to: 72, last: true}}, 2, fragment},
		"the last first":                            {[]part{{from: 24, to: 72, last: true}, {from: 0, to: 24}}, 1, fragment},
		"a gap":                                     {[]part{{from: 0, to: 24}, {from: 48, to: 72, last: true}}, 1, fragment},
		"an overlap over the ports":                 {[]part{{from: 0, to: 24}, {from: 0, to: 24, port: 7009}, {from: 8, to: 32}, {from: 24, to: 72, last: true}}, 2, fragment},
		"an overlap":                                {[]part{{from: 0, to: 24}, {from: 16, to: 40}, {from: 24, to: 72, last: true}}, 2, fragment},
		"one twice":                                 {[]part{{from: 0, to: 24}, {from: 24, to: 48}, {from: 24, to: 48}, {from: 48, to: 72, last: true}}, 2, fragment},
		"more after the end":                        {[]part{{from: 0, to: 24}, {from: 24, to: 80, last: true}, {from: 24, to: 72, last: true}}, 2, fragment},
		"an end before the end":                     {[]part{{from: 0, to: 24}, {from: 24, to: 64, last: true}, {from: 24, to: 72, last: true}}, 2, fragment},
		"no end at the end":                         {[]part{{from: 0, to: 24}, {from: 24, to: 72}}, 1, fragment},
		"a first with all of it":                    {[]part{{from: 0, to: 72}}, 1, malformed},
		"a first with more":                         {[]part{{from: 0, to: 80}}, 1, malformed},
		"a place beyond all":                        {[]part{{from: 0, to: 24}, {from: 65528, to: 65536, last: true}}, 1, fragment},
		"not whole units":                           {[]part{{from: 0, to: 20}}, 1, fragment},
		"not whole units, later":                    {[]part{{from: 0, to: 24}, {from: 24, to: 44}}, 1, fragment},
		"nothing in it":                             {[]part{{from: 0, to: 0}}, 1, fragment},
		"nothing in the last":                       {[]part{{from: 0, to: 24}, {from: 72, to: 72, last: true}}, 1, fragment},
		"another identification":                    {[]part{{from: 0, to: 24}, {from: 24, to: 72, last: true, id: 2}}, 1, fragment},
		"another destination":                       {[]part{{from: 0, to: 24}, {from: 24, to: 72, last: true, peer: other}}, 1, fragment},
		"a checksum to be filled in":                {[]part{{from: 0, to: 24, header: needsChecksum}}, 1, checksum},
		"one to be filled in later":                 {[]part{{from: 0, to: 24}, {from: 24, to: 72, last: true, header: needsChecksum}}, 1, checksum},
	}
	next, segment := 23, protoTCP
	if addr.Is6() {
		next = 54
		rows["the whole as a fragment"] = row{[]part{{from: 0, to: 72, last: true}}, 1, fragment}
		rows["reserved bits"] = row{[]part{{from: 0, to: 24, mutate: edit(func(b []byte) { b[57] |= 2 })}}, 1, fragment}
		rows["a reserved byte"] = row{[]part{{from: 0, to: 24, mutate: put(55, 1)}}, 1, fragment}
		rows["options in it"] = row{[]part{{from: 0, to: 24, mutate: put(next, 60)}}, 1, fragment}
		rows["a fragment in it"] = row{[]part{{from: 0, to: 24, mutate: put(next, 44)}}, 1, fragment}
		rows["ICMP in it"] = row{[]part{{from: 0, to: 24, mutate: put(next, 58)}}, 1, fragment}
		rows["behind options"] = row{[]part{{from: 0, to: 24, mutate: put(20, 60)}}, 1, extension}
		rows["half a header"] = row{[]part{{from: 0, to: 24, mutate: func(b []byte) []byte { return put(18, 0, 4)(b[:58]) }}}, 1, malformed}
	} else {
		rows["the reserved bit"] = row{[]part{{from: 0, to: 24, mutate: put(20, 0xa0)}}, 1, fragment}
		rows["ICMP"] = row{[]part{{from: 0, to: 24, mutate: put(next, 1)}}, 1, fragment}
		rows["not to be fragmented"] = row{[]part{{from: 0, to: 24, mutate: edit(func(b []byte) { b[20] |= 0x40; sum4(b[14:34]) })}, {from: 24, to: 72, last: true}}, 0, 0}
		rows["for the resolver"] = row{[]part{{from: 0, to: 24, peer: netpolicy.Gateway4, port: netpolicy.ResolverPort}}, 1, fragment}
		rows["for a name"] = row{[]part{{from: 0, to: 24, peer: netpolicy.FirstSynthetic}}, 1, fragment}
	}
	rows["TCP"] = row{[]part{{from: 0, to: 24, mutate: put(next, byte(segment))}}, 1, fragment}
	return rows
}

// needsChecksum requests that the kernel fills in UDP's checksum.
func needsChecksum(h []byte, l4 int) {
	h[0] = 1 // VIRTIO_NET_HDR_F_NEEDS_CSUM
	binary.NativeEndian.PutUint16(h[6:], uint16(l4))
	binary.NativeEndian.PutUint16(h[8:], 6)
}

// Only fragments that continue an allowed datagram pass, and a datagram arrives as it was sent.
func TestHostileFragments(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, way attacher, addr netip.Addr) {
		host, peer := newTopology(t)
		f, _ := newFenceBy(t, way, host, everywhere("udp/7000", "udp/7001")...)
		p := peer.listenPacket(t, "udp", at6or4(addr, 7000))
		heard := func() []byte {
			t.Helper()
			b := make([]byte, 1000)
			p.SetReadDeadline(time.Now().Add(30 * time.Second))
			n, _, err := p.ReadFrom(b)
			must(t, err)
			return b[:n]
		}
		var ids uint32
		for name, row := range hostile(addr) {
			ids += 10
			payload := random(64)
			before, err := f.Denials()
			must(t, err)
			for _, part := range row.parts {
				part.send(t, f.Tap(), addr, ids, payload)
			}
			after, err := f.Denials()
			must(t, err)
			if got := diff(before, after)[reasonText[max(row.why, 1)]]; got != row.drop {
				t.Errorf("%s: dropped %v, want %d for %q", name, diff(before, after), row.drop, reasonText[row.why])
			}
			whole := packet{proto: protoUDP, peer: addr, guestPort: 1000, peerPort: 7000, payload: []byte(name)}
			(&wire{t, f.Tap()}).send(whole.frame())
			got := heard()
			if arrives := row.drop == 0 || row.why == notPermitted; arrives {
				if !bytes.Equal(got, payload) {
					t.Errorf("%s: %x arrived, and not %x", name, got, payload)
					continue
				}
				got = heard()
			}
			if string(got) != name {
				t.Errorf("%s: %x arrived", name, got)
			}
		}
	})
}

func (p part) send(t *testing.T, tap *os.File, addr netip.Addr, ids uint32, payload []byte) {
	t.Helper()
	l4 := 34
	if addr.Is6() {
		l4 = 62
	}
	if !p.peer.IsValid() {
		p.peer = addr
	}
	whole := packet{proto: protoUDP, peer: p.peer, guestPort: 1000, peerPort: max(p.port, 1), payload: payload}
	if p.port == 0 {
		whole.peerPort = 7000
	}
	frame := fragmentOf(whole.frame(), ids+max(p.id, 1), p.from, p.to, !p.last)
	if p.mutate != nil {
		frame = p.mutate(frame)
	}
	header := make([]byte, 10)
	if p.header != nil {
		p.header(header, l4)
	}
	_, err := tap.Write(append(header, frame...))
	must(t, err)
}

// Fragments that wait in the namespace for the rest of their datagram are removed when the policy changes: the guest
// sends the rest under another generation, with a datagram that is allowed then.
func TestFragmentsDoNotOutliveTheirPolicy(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, way attacher, addr netip.Addr) {
		host, peer := newTopology(t)
		f, _ := newFenceBy(t, way, host, everywhere("udp/7000", "udp/7001")...)
		revoked, left := peer.listenPacket(t, "udp", at6or4(addr, 7000)), peer.listenPacket(t, "udp", at6or4(addr, 7001))
		payload := random(64)
		say := func(p part) { p.send(t, f.Tap(), addr, 10, payload) }
		say(part{from: 0, to: 24})
		enforce(t, f, everywhere("udp/7001")...)
		say(part{from: 24, to: 72, last: true})
		say(part{from: 0, to: 24, port: 7001})
		say(part{from: 24, to: 72, last: true})
		say(part{from: 0, to: 24, port: 7001, id: 2})
		say(part{from: 24, to: 72, last: true, id: 2})
		left.SetReadDeadline(time.Now().Add(30 * time.Second))
		b := make([]byte, 100)
		if n, _, err := left.ReadFrom(b); err != nil || !bytes.Equal(b[:n], payload) {
			t.Errorf("an allowed datagram: %x, %v", b[:n], err)
		}
		revoked.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if n, _, err := revoked.ReadFrom(b); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a datagram of a flow that was revoked arrived: %x, %v", b[:n], err)
		}
	})
}

// A fragmented datagram that no rule allows fails immediately, like a small one.
func TestDeniedDatagramFailsImmediately(t *testing.T) {
	t.Parallel()
	for family, addr := range peers {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			host, _ := newTopology(t)
			f, _ := newFence(t, host, everywhere("udp/7000")...)
			g := newGuest(t, f)
			c, err := g.dial("udp", at6or4(addr, 7001))
			must(t, err)
			defer c.Close()
			must2(t)(c.Write(random(4000)))
			c.SetReadDeadline(time.Now().Add(30 * time.Second))
			if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the guest received %v", err)
			}
		})
	}
}

// A path with a smaller MTU beyond the host: an IPv4 router fragments the packets further, and an IPv6 router reports
// the MTU to the guest, which then sends smaller fragments.
func TestFragmentsOnANarrowPath(t *testing.T) {
	t.Parallel()
	for family := range peers {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			host, far, addrs := newNarrowTopology(t)
			f, _ := newFence(t, host, allow("46.0.0.0/24", "udp/7000"), allow("2a00:46::/64", "udp/7000"))
			g := newGuest(t, f)
			to := at6or4(addrs[family], 7000)
			echoPackets(t, far.listenPacket(t, "udp", to))
			c, err := g.dial("udp", to)
			must(t, err)
			defer c.Close()
			for _, size := range []int{1400, 4000, 65507} {
				sendsBack(t, c, random(size))
			}
		})
	}
}

// Many fragments of incomplete datagrams use bounded memory, and other datagrams still pass.
func TestUnfinishedDatagrams(t *testing.T) {
	t.Parallel()
	for family, addr := range peers {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			host, peer := newTopology(t)
			f, _ := newFence(t, host, everywhere("udp/7000")...)
			p := peer.listenPacket(t, "udp", at6or4(addr, 7000))
			for i := range uint32(5000) {
				part{from: 0, to: 24}.send(t, f.Tap(), addr, i, random(64))
			}
			w := &wire{t, f.Tap()}
			w.send(packet{proto: protoUDP, peer: addr, guestPort: 1000, peerPort: 7000, payload: []byte("whole")}.frame())
			p.SetReadDeadline(time.Now().Add(30 * time.Second))
			b := make([]byte, 100)
			if n, _, err := p.ReadFrom(b); err != nil || string(b[:n]) != "whole" {
				t.Errorf("heard %q, %v", b[:n], err)
			}
		})
	}
}

// datagram makes the fragments of a datagram: mostly complete and in order, otherwise with an error.
func (d generator) datagram(o *oracle) (frames [][]byte, out bool) {
	out = d.IntN(2) > 0
	to := d.target(o)
	if d.IntN(3) > 0 {
		to.Proto = "udp"
	}
	whole := packet{in: !out, proto: protoNumber(to.Proto), peer: to.Dst.Addr(), guestPort: to.Src.Port(), peerPort: to.Dst.Port(), flags: 2, payload: make([]byte, 64)}.frame()
	id := uint32(d.IntN(3))
	for at := 0; at < 72; {
		end := min(at+8*(1+d.IntN(4)), 72)
		frames = append(frames, fragmentOf(whole, id, at, end, end < 72))
		at = end
	}
	switch i := d.IntN(len(frames)); d.IntN(8) {
	case 0:
		frames = slices.Delete(frames, i, i+1)
	case 1:
		frames = append(frames, frames[i])
	case 2:
		frames[i] = d.spoil(frames[i])
	case 3:
		d.Shuffle(len(frames), func(i, j int) { frames[i], frames[j] = frames[j], frames[i] })
	case 4:
		at := 8 * d.IntN(9)
		frames[i] = fragmentOf(whole, id, at, at+d.IntN(40), d.IntN(2) == 0)
	}
	return frames, out
}
