package fence

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/netpolicy"
)

// capture counts the frames of one peer on the guest's device, with a packet socket.
type capture struct {
	fd                    int
	done                  sync.WaitGroup
	mu                    sync.Mutex // guards the fields below
	out, in               uint64
	packetsOut, packetsIn uint64
}

func startCapture(t testing.TB, g *guest, peer netip.Addr) *capture {
	t.Helper()
	c := &capture{}
	must(t, g.in(func() (err error) {
		all := int(binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL}))
		c.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
		if err == nil {
			err = unix.Bind(c.fd, &unix.SockaddrLinklayer{Protocol: uint16(all), Ifindex: lookup(t, g.space, tapName).Attrs().Index})
		}
		return err
	}))
	must(t, unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20))
	must(t, unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}))
	stop := make(chan struct{})
	c.done.Go(func() { c.run(peer, stop) })
	t.Cleanup(func() { close(stop); c.done.Wait(); unix.Close(c.fd) })
	return c
}

func (c *capture) run(peer netip.Addr, stop chan struct{}) {
	b := make([]byte, 1<<17)
	for {
		n, err := unix.Read(c.fd, b)
		if err != nil {
			select {
			case <-stop:
				return
			default:
				continue
			}
		}
		at, to := 26, 30
		if peer.Is6() {
			at, to = 22, 38
		}
		size := len(peer.AsSlice())
		c.mu.Lock()
		switch {
		case n > to+size && slices.Equal(b[at:at+size], peer.AsSlice()):
			c.in += uint64(n)
			c.packetsIn++
		case n > to+size && slices.Equal(b[to:to+size], peer.AsSlice()):
			c.out += uint64(n)
			c.packetsOut++
		}
		c.mu.Unlock()
	}
}

// The counters equal those of a packet capture on the guest's device, to the byte.
func TestAccountingIsExact(t *testing.T) {
	t.Parallel()
	for family, addr := range peers {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			host, peer := newTopology(t)
			f, seen := newFence(t, host, everywhere("tcp/7000")...)
			g := newGuest(t, f)
			seenByCard := startCapture(t, g, addr)
			l := peer.listen(t, "tcp", at6or4(addr, 7000))
			c, err := g.dial("tcp", l.Addr().String())
			must(t, err)
			far, err := l.Accept()
			must(t, err)
			both := func(from, to net.Conn, n int) {
				var w sync.WaitGroup
				w.Go(func() { from.Write(make([]byte, n)) })
				must2(t)(io.ReadFull(to, make([]byte, n)))
				w.Wait()
			}
			both(c, far, 3_000_001)
			both(far, c, 5_000_003)
			c.Close()
			far.Close()
			ev := seen.await2(t, audit.FlowClose, netip.MustParseAddrPort(l.Addr().String()))
			seenByCard.mu.Lock()
			defer seenByCard.mu.Unlock()
			flow := ev.Flow
			if flow.BytesOut != seenByCard.out || flow.BytesIn != seenByCard.in || flow.PacketsOut != seenByCard.packetsOut || flow.PacketsIn != seenByCard.packetsIn {
				t.Errorf("out %d bytes in %d packets, in %d in %d; the capture has %d in %d, %d in %d",
					flow.BytesOut, flow.PacketsOut, flow.BytesIn, flow.PacketsIn, seenByCard.out, seenByCard.packetsOut, seenByCard.in, seenByCard.packetsIn)
			}
			if flow.BytesOut < 3_000_001 || flow.BytesIn < 5_000_003 {
				t.Errorf("too few bytes: %+v", flow)
			}
		})
	}
}

// While the ring buffer is not read it overflows. The lost records are counted, flows are reported later, and the sums
// of denials are exact in the end.
func TestRingLoss(t *testing.T) {
	t.Parallel()
	host := testSpace(t)
	seen := newEventLog()
	hold, held := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var f *Fence
	must(t, host.in(func() (err error) {
		f, err = New(context.Background(), Options{Observed: func(ev Event) {
			once.Do(func() { close(held); <-hold })
			seen.add(ev)
		}})
		return err
	}))
	defer f.Close()
	enforce(t, f, everywhere("udp/7000")...)
	w := &wire{t, f.Tap()}
	const flows, denials = 3000, 2000
	for i := range flows {
		w.send(packet{proto: protoUDP, peer: peerAddr4, guestPort: uint16(1000 + i), peerPort: 7000}.frame())
	}
	<-held
	for range denials {
		w.send(packet{proto: protoUDP, peer: peerAddr4, guestPort: 1000, peerPort: 7001}.frame())
	}
	totals, err := f.Denials()
	must(t, err)
	if totals[reasonText[notPermitted]] != denials {
		t.Fatalf("counted %v", totals)
	}
	close(hold)
	var opens, denied, lost uint64
	eventually(t, "every flow is reported", func() bool {
		opens, denied, lost = 0, 0, 0
		for _, ev := range seen.list() {
			lost += ev.Lost
			switch ev.State {
			case audit.FlowOpen:
				opens++
			case audit.FlowDeny:
				if counter(ev.Reason) == reasonText[notPermitted] {
					denied += ev.Count
				}
			}
		}
		return opens >= flows && denied >= denials
	})
	if opens != flows || denied != denials || lost == 0 {
		t.Errorf("%d flows and %d denials were reported, %d records lost; want %d, %d and some", opens, denied, lost, flows, denials)
	}
}

// When the flow table is full of the guest's flows, further flows are denied, with this reason.
func TestFlowTableIsBounded(t *testing.T) {
	t.Parallel()
	f, seen := newFence(t, nil, everywhere("udp/7000", "udp/7001")...)
	w := &wire{t, f.Tap()}
	for p := range uint16(2) {
		for i := range 1 << 16 {
			w.send(packet{proto: protoUDP, peer: peerAddr4, guestPort: uint16(i), peerPort: 7000 + p}.frame())
		}
		if totals, _ := f.Denials(); totals[reasonText[tableFull]] > 0 {
			break
		}
	}
	seen.await(t, "table full", func(ev Event) bool { return ev.Reason == reasonText[tableFull] })
}

// The guest reuses a port before the old flow is removed: both are reported, each with its own counters.
func TestPortIsUsedAgain(t *testing.T) {
	t.Parallel()
	f, seen := newFence(t, nil, everywhere("tcp/7000")...)
	w := &wire{t, f.Tap()}
	for range 3 {
		w.send(packet{proto: protoTCP, peer: peerAddr4, guestPort: 1000, peerPort: 7000, flags: 2, seq: 5}.frame())
		w.send(packet{proto: protoTCP, peer: peerAddr4, guestPort: 1000, peerPort: 7000, flags: 4, seq: 6}.frame())
	}
	eventually(t, "three flows", func() bool {
		var opens, closes int
		for _, ev := range seen.list() {
			if ev.State == audit.FlowOpen {
				opens++
			}
			if ev.State == audit.FlowClose && ev.Flow.PacketsOut == 2 {
				closes++
			}
		}
		return opens == 3 && closes == 3
	})
}

// Close reports the end of the open flows.
func TestCloseReportsOpenFlows(t *testing.T) {
	t.Parallel()
	seen := newEventLog()
	var f *Fence
	must(t, testSpace(t).in(func() (err error) {
		f, err = New(context.Background(), Options{Observed: seen.add})
		return err
	}))
	enforce(t, f, everywhere("udp/7000")...)
	(&wire{t, f.Tap()}).send(packet{proto: protoUDP, peer: peerAddr4, guestPort: 1000, peerPort: 7000}.frame())
	must(t, f.Close())
	must(t, f.Close())
	all := slices.DeleteFunc(seen.list(), func(ev Event) bool { return ev.State == audit.FlowDeny }) // the host has no route to the peer, and reports that
	if len(all) != 2 || all[0].State != audit.FlowOpen || all[1].State != audit.FlowClose || all[1].Flow.PacketsOut != 1 {
		t.Errorf("events: %s", describe(all))
	}
	if got, ok := f.Flow(all[1].Flow.Key); !ok || got.PacketsOut != 1 {
		t.Errorf("after Close, Flow returns %+v, %v", got, ok)
	}
}

// Permits of answers that are refreshed repeatedly do not accumulate.
func TestPermitsDoNotAccumulate(t *testing.T) {
	t.Parallel()
	f, _ := newFence(t, nil, allow("db.example", "tcp/7000", "direct"))
	for i := range 1000 {
		must(t, f.Open(peerAddr4, Permit{Name: "db.example", Port: port("tcp/7000"), Via: netpolicy.Direct, DNSSeq: uint64(i)}, time.Now().Add(time.Minute)))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for range 2 {
		must(t, f.permits.sweep(map[uint32]bool{}))
	}
	if n := len(f.permits.byID); n != 2 { // the resolver's and the last
		t.Errorf("%d permits, want 2", n)
	}
}

// Fifty fences from a pool are closed and leave nothing behind.
func TestNothingIsLeft(t *testing.T) {
	host, _ := newTopology(t)
	before := hostState(t, host)
	var programs []ebpf.ProgramID
	files := descriptors(t)
	var pool *Pool
	must(t, host.in(func() (err error) { pool, err = NewPool(4); return err }))
	for range 5 {
		var all []*Fence
		for range 10 {
			f, err := pool.Take(t.Context(), Options{})
			must(t, err)
			enforce(t, f, everywhere("tcp/7000")...)
			programs = append(programs, programsOf(t, f.own().space)...)
			all = append(all, f)
		}
		var closing sync.WaitGroup
		for _, f := range all {
			closing.Go(func() {
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		closing.Wait()
	}
	must(t, pool.Close())
	if after := hostState(t, host); after != before {
		t.Errorf("the host changed from\n%s\nto\n%s", before, after)
	}
	eventually(t, "no program is left", func() bool { return gone(programs) })
	eventually(t, "no descriptor is left", func() bool { runtime.GC(); return descriptors(t) <= files })
}

func descriptors(t testing.TB) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(names)
}
