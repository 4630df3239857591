package fence

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/netpolicy"
)

// The network of the tests. The host and the peer are namespaces that the test makes; the machine's network is not used.
//
//	guest namespace      fence's namespace       host                     peer
//	eth0 =TAP= pump =TAP= tap0 ... up0 ====== cust0 ... wan ============ eth0
//	198.18.0.2           198.18.0.1                   45.0.0.1           45.0.0.2
//	fdc5:..::2           fdc5:..::1                   2a00:45::1         2a00:45::2
var (
	hostAddr4 = netip.MustParseAddr("45.0.0.1")
	hostAddr6 = netip.MustParseAddr("2a00:45::1")
	peerAddr4 = netip.MustParseAddr("45.0.0.2")
	peerAddr6 = netip.MustParseAddr("2a00:45::2")
	peers     = map[string]netip.Addr{"ipv4": peerAddr4, "ipv6": peerAddr6}
)

// own returns the namespace of a fence whose parts are in this process.
func (f *Fence) own() *Namespace { return f.namespace.(*Namespace) }

func testSpace(t testing.TB) *space {
	t.Helper()
	s, err := newSpace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.close() })
	lo, err := s.links.LinkByName("lo")
	if err == nil {
		err = s.links.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newTopology makes the host and the peer with a link between them.
func newTopology(t testing.TB) (host, peer *space) {
	t.Helper()
	host, peer = testSpace(t), testSpace(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "wan"
	must(t, host.links.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(peer.handle)}))
	end(t, host, "wan", hostAddr4, hostAddr6)
	end(t, peer, "eth0", peerAddr4, peerAddr6)
	return host, peer
}

func end(t testing.TB, s *space, name string, addrs ...netip.Addr) {
	t.Helper()
	l, err := s.links.LinkByName(name)
	must(t, err)
	for _, a := range addrs {
		bits := 24
		if a.Is6() {
			bits = 64
		}
		must(t, s.address(l, netip.PrefixFrom(a, bits)))
	}
	must(t, s.links.LinkSetUp(l))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventLog collects events.
type eventLog struct {
	mu   sync.Mutex
	all  []Event
	more chan struct{}
}

func newEventLog() *eventLog { return &eventLog{more: make(chan struct{}, 1)} }

func (s *eventLog) add(ev Event) {
	s.mu.Lock()
	s.all = append(s.all, ev)
	s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
}

func (s *eventLog) list() []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// await waits for a matching event.
func (s *eventLog) await(t testing.TB, what string, match func(Event) bool) Event {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		all := s.list()
		if i := slices.IndexFunc(all, match); i >= 0 {
			return all[i]
		}
		select {
		case <-s.more:
		case <-deadline:
			t.Fatalf("no event: %s; there were %s", what, describe(all))
		}
	}
}

func describe(all []Event) string {
	var b strings.Builder
	for _, ev := range all[:min(len(all), 30)] {
		fmt.Fprintf(&b, "\n  %s %s %v->%v %q count %d", ev.State, ev.Flow.Proto, ev.Flow.Src, ev.Flow.Dst, ev.Reason, ev.Count)
	}
	return b.String()
}

func (s *eventLog) await2(t testing.TB, state audit.FlowState, dst netip.AddrPort) Event {
	t.Helper()
	return s.await(t, string(state)+" "+dst.String(), func(ev Event) bool { return ev.State == state && ev.Flow.Dst == dst })
}

// newFence makes a fence on a host (nil: a new one) that enforces rules.
func newFence(t testing.TB, host *space, rules ...netpolicy.Rule) (*Fence, *eventLog) {
	t.Helper()
	return newFenceBy(t, nil, host, rules...)
}

// newFenceBy is newFence with gates that are attached by the attacher.
func newFenceBy(t testing.TB, way attacher, host *space, rules ...netpolicy.Rule) (*Fence, *eventLog) {
	t.Helper()
	if host == nil {
		host = testSpace(t)
	}
	seen := newEventLog()
	var f *Fence
	err := host.in(func() (err error) {
		f, err = New(context.Background(), Options{Observed: seen.add, attach: way})
		return err
	})
	must(t, err)
	t.Cleanup(func() { must(t, f.Close()) })
	if !f.installed() {
		t.Fatal(f.installErr)
	}
	if rules != nil {
		enforce(t, f, rules...)
	}
	return f, seen
}

func enforce(t testing.TB, f *Fence, rules ...netpolicy.Rule) []Flow {
	t.Helper()
	p, err := netpolicy.New(rules)
	must(t, err)
	ended, err := f.Enforce(context.Background(), netpolicy.Generation{Number: f.generation + 1, Policy: p})
	must(t, err)
	return ended
}

// allow makes a rule, such as allow("api.example.com", "tcp/443"); the word "direct" sets its mode.
func allow(pattern string, words ...string) netpolicy.Rule {
	p, err := netpolicy.ParsePattern(pattern)
	if err != nil {
		panic(err)
	}
	r := netpolicy.Rule{Pattern: p, Mode: netpolicy.Gateway}
	if _, is := p.Prefix(); is {
		r.Mode = netpolicy.Direct
	}
	for _, w := range words {
		proto, number, ok := strings.Cut(w, "/")
		if !ok {
			r.Mode = netpolicy.Mode(w)
			continue
		}
		var n uint16
		fmt.Sscan(number, &n)
		r.Ports = append(r.Ports, netpolicy.Port{Proto: proto, Number: n})
	}
	return r
}

func port(s string) netpolicy.Port { return allow("example.com", s).Ports[0] }

// guest is a namespace in the role of the VM: its eth0 is the other end of the fence's TAP.
type guest struct {
	*space
	device *os.File
}

func newGuest(t testing.TB, f *Fence) *guest {
	t.Helper()
	g := &guest{space: testSpace(t)}
	must(t, g.in(func() (err error) {
		if err = (sysctls{"ipv6/conf/default/accept_ra": "0", "ipv6/conf/default/dad_transmits": "0"}).set(); err == nil {
			g.device, err = newTap()
		}
		return err
	}))
	l, err := g.links.LinkByName(tapName)
	must(t, err)
	must(t, g.links.LinkSetHardwareAddr(l, netpolicy.GuestMAC[:]))
	must(t, g.address(l, netip.PrefixFrom(netpolicy.Guest4, netpolicy.Link4.Bits())))
	must(t, g.address(l, netip.PrefixFrom(netpolicy.Guest6, netpolicy.Link6.Bits())))
	must(t, g.links.LinkSetUp(l))
	for gateway, all := range map[netip.Addr]string{netpolicy.Gateway4: "0.0.0.0/0", netpolicy.Gateway6: "::/0"} {
		must(t, g.neighbour(l.Attrs().Index, gateway, netpolicy.GatewayMAC[:]))
		must(t, g.links.RouteReplace(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: ipNet(netip.MustParsePrefix(all)), Gw: gateway.AsSlice()}))
	}
	g.settle(t)
	g.plug(t, f.Tap())
	return g
}

// settle waits until the kernel accepts the IPv6 address, which it does in the background.
func (s *space) settle(t testing.TB) {
	t.Helper()
	for range 1000 {
		r, err := s.links.RouteGet(netpolicy.Guest6.AsSlice())
		if err == nil && len(r) == 1 && r[0].Type == unix.RTN_LOCAL {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("the guest's IPv6 address never came up")
}

// plug copies frames between the two TAPs until the test ends.
func (g *guest) plug(t testing.TB, far *os.File) {
	var both sync.WaitGroup
	both.Go(func() { carry(g.device, far) })
	both.Go(func() { carry(far, g.device) })
	t.Cleanup(func() {
		far.SetReadDeadline(time.Unix(1, 0))
		g.device.SetReadDeadline(time.Unix(1, 0))
		both.Wait()
		g.device.Close()
	})
}

func carry(to, from *os.File) {
	b := make([]byte, 1<<17)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		_, _ = to.Write(b[:n]) // a rejected frame is lost
	}
}

// dial connects from inside a namespace: a literal address needs no other thread.
func (s *space) dial(network, addr string) (c net.Conn, err error) {
	err = s.in(func() error {
		d := net.Dialer{Timeout: 10 * time.Second, FallbackDelay: -1, KeepAlive: -1}
		c, err = d.DialContext(context.Background(), network, addr)
		return err
	})
	return c, err
}

func (s *space) listen(t testing.TB, network, addr string) net.Listener {
	t.Helper()
	var l net.Listener
	must(t, s.in(func() (err error) { l, err = net.Listen(network, addr); return err }))
	t.Cleanup(func() { l.Close() })
	return l
}

func (s *space) listenPacket(t testing.TB, network, addr string) net.PacketConn {
	t.Helper()
	var c net.PacketConn
	must(t, s.in(func() (err error) { c, err = net.ListenPacket(network, addr); return err }))
	t.Cleanup(func() { c.Close() })
	return c
}

// echo sends each connection's bytes back, until the listener closes.
func echo(t testing.TB, l net.Listener) {
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			})
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
}

// pour sends data to each connection continuously. The function that it returns resets them all.
func pour(t testing.TB, l net.Listener) (reset func()) {
	var all sync.WaitGroup
	var mu sync.Mutex // guards conns
	var conns []*net.TCPConn
	reset = func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range conns {
			c.SetLinger(0)
			c.Close()
		}
		conns = nil
	}
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c.(*net.TCPConn))
			mu.Unlock()
			all.Go(func() {
				b := make([]byte, 4096)
				for {
					if _, err := c.Write(b); err != nil {
						return
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); reset(); all.Wait() })
	return reset
}

func say(t testing.TB, c net.Conn, what string) {
	t.Helper()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Write([]byte(what)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, len(what))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != what {
		t.Fatalf("sent %d bytes, received %.40q, %v", len(what), b, err)
	}
}

// wire is a guest that writes its frames byte by byte.
type wire struct {
	t   testing.TB
	tap *os.File
}

// send writes a frame with an empty virtio-net header before it, and reports whether the TAP accepted it.
func (w *wire) send(frame []byte) bool {
	_, err := w.tap.Write(append(make([]byte, 10), frame...))
	if err != nil && !errors.Is(err, unix.EINVAL) {
		w.t.Fatal(err)
	}
	return err == nil
}

// receive returns the next frame for the guest, or nil if none arrives in time.
func (w *wire) receive(wait time.Duration) []byte {
	b := make([]byte, 1<<17)
	w.tap.SetReadDeadline(time.Now().Add(wait))
	n, err := w.tap.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	must(w.t, err)
	return b[10:n]
}

func be16(b []byte) uint16 { return binary.BigEndian.Uint16(b) }
