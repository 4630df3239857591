package fence

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/netpolicy"
)

// learned opens n synthetic addresses.
func learned(b *testing.B, d *differential, n int) {
	d.begin()
	p, err := netpolicy.New([]netpolicy.Rule{allow("*.example.com", "tcp/443"), allow("45.0.0.0/24", "tcp/7000")})
	must(b, err)
	d.enforce(p)
	a := netpolicy.FirstSynthetic
	for i := range n {
		if i == 60_000 { // the range has no more addresses: use another port
			a = netpolicy.FirstSynthetic
		}
		t := targetOf(a, netpolicy.Port{Proto: "tcp", Number: uint16(443 + i/60_000)})
		must(b, d.fence.filters.maps.Permits.Put(t, programsPermit{Id: 2}))
		a = a.Next()
	}
	must(b, d.fence.filters.maps.Ids.Put(uint32(2), uint32(1)))
}

// BenchmarkPolicyProgram measures the programs that filter the guest's packets, gates included, with the kernel's test
// run.
func BenchmarkPolicyProgram(b *testing.B) {
	d := newDifferential(b)
	established := packet{proto: protoTCP, peer: netpolicy.FirstSynthetic, guestPort: 1000, peerPort: 443, flags: 16, payload: make([]byte, 1000)}
	fresh := established
	fresh.flags = 2
	denied := packet{proto: protoTCP, peer: netip.MustParseAddr("93.184.216.34"), guestPort: 1000, peerPort: 443, flags: 2}
	for _, n := range []int{10, 1000, 100_000} {
		learned(b, d, n)
		_, err := d.fence.filters.maps.FromGuest.Run(&ebpf.RunOptions{Data: fresh.frame()})
		must(b, err)
		for name, c := range map[string]struct {
			prog  *ebpf.Program
			frame []byte
			want  uint32
		}{
			"allowed": {d.fence.own().gates.FromGuestGate, established.frame(), 0},
			"inbound": {d.fence.own().gates.ToGuestGate, inbound(established).frame(), 0},
			"denied":  {d.fence.own().gates.FromGuestGate, denied.frame(), 2},
			"nothing": {d.fence.filters.maps.FromUplink, established.frame(), 0}, // the cost of the test run itself
		} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				ret, per, err := c.prog.Benchmark(c.frame, max(b.N, 1), nil)
				if err != nil || ret != c.want {
					b.Fatalf("verdict %d, %v", ret, err)
				}
				b.ReportMetric(float64(per.Nanoseconds()), "ns/packet")
			})
		}
	}
}

func inbound(p packet) packet {
	p.in = true
	return p
}

// passAll replaces the policy's programs by one that passes everything, and returns a function that restores them.
func (f *Fence) passAll(b *testing.B) (back func()) {
	b.Helper()
	var links []link.Link
	must(b, f.own().space.in(func() error {
		for _, where := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
			l, err := link.AttachTCX(link.TCXOptions{
				Interface: lookup(b, f.own().space, tapName).Attrs().Index, Program: f.filters.maps.FromUplink, Attach: where, Anchor: link.Head(),
			})
			if err != nil {
				return err
			}
			links = append(links, l)
		}
		return nil
	}))
	return func() {
		for _, l := range links {
			l.Close()
		}
	}
}

// offload enables segmentation offload on a TAP, as QEMU does.
func offload(b *testing.B, tap *os.File) {
	raw, err := tap.SyscallConn()
	must(b, err)
	must(b, raw.Control(func(fd uintptr) {
		err = unix.IoctlSetInt(int(fd), unix.TUNSETOFFLOAD, unix.TUN_F_CSUM|unix.TUN_F_TSO4|unix.TUN_F_TSO6)
	}))
	must(b, err)
}

// BenchmarkThroughput measures the cost of the program for a direct TCP flow in both directions, alternately with and
// without the program.
func BenchmarkThroughput(b *testing.B) {
	host, peer := newTopology(b)
	f, _ := newFence(b, host, everywhere("tcp/7000")...)
	g := newGuest(b, f)
	offload(b, f.Tap())
	offload(b, g.device)
	l := peer.listen(b, "tcp", at6or4(peerAddr4, 7000))
	for _, way := range []string{"out", "in"} {
		var with, without float64
		b.Run(way, func(b *testing.B) {
			for b.Loop() {
				with += rate(b, g, l, way)
				back := f.passAll(b)
				without += rate(b, g, l, way)
				without += rate(b, g, l, way)
				back()
				with += rate(b, g, l, way)
			}
			b.ReportMetric(with/float64(2*b.N)/1e6, "MB/s-with")
			b.ReportMetric(without/float64(2*b.N)/1e6, "MB/s-without")
			b.ReportMetric(with/without, "ratio")
		})
	}
}

// BenchmarkAttach compares TCX and clsact, alternately, with the same program and a direct TCP flow.
func BenchmarkAttach(b *testing.B) {
	type side struct {
		g *guest
		l net.Listener
	}
	var sides []side // TCX, clsact
	for _, way := range []attacher{attachTCX, attachClsact} {
		host, peer := newTopology(b)
		f, _ := newFenceBy(b, way, host, everywhere("tcp/7000")...)
		g := newGuest(b, f)
		offload(b, f.Tap())
		offload(b, g.device)
		sides = append(sides, side{g, peer.listen(b, "tcp", at6or4(peerAddr4, 7000))})
	}
	for _, way := range []string{"out", "in"} {
		b.Run(way, func(b *testing.B) {
			var sum [2]float64
			for b.Loop() {
				for _, i := range []int{0, 1, 1, 0} {
					sum[i] += rate(b, sides[i].g, sides[i].l, way)
				}
			}
			b.ReportMetric(sum[0]/float64(2*b.N)/1e6, "MB/s-tcx")
			b.ReportMetric(sum[1]/float64(2*b.N)/1e6, "MB/s-clsact")
			b.ReportMetric(sum[1]/sum[0], "ratio")
		})
	}
}

// rate sends for half a second over a new connection and returns bytes per second.
func rate(b *testing.B, g *guest, l net.Listener, way string) float64 {
	near, err := g.dial("tcp", l.Addr().String())
	must(b, err)
	defer near.Close()
	far, err := l.Accept()
	must(b, err)
	defer far.Close()
	from, to := near, far
	if way == "in" {
		from, to = far, near
	}
	var w sync.WaitGroup
	w.Go(func() {
		buf := make([]byte, 1<<17)
		for {
			if _, err := from.Write(buf); err != nil {
				return
			}
		}
	})
	start := time.Now()
	to.SetReadDeadline(start.Add(500 * time.Millisecond))
	n, _ := io.Copy(io.Discard, to)
	took := time.Since(start)
	near.Close()
	far.Close()
	w.Wait()
	return float64(n) / took.Seconds()
}

// BenchmarkTake measures the time to get a pooled fence.
func BenchmarkTake(b *testing.B) {
	pool, err := NewPool(1)
	must(b, err)
	defer func() { must(b, pool.Close()) }()
	var took time.Duration
	for b.Loop() {
		b.StopTimer()
		for len(pool.ready) == 0 {
			time.Sleep(time.Millisecond)
		}
		b.StartTimer()
		start := time.Now()
		f, err := pool.Take(context.Background(), Options{})
		took += time.Since(start)
		must(b, err)
		b.StopTimer()
		must(b, f.Close())
		b.StartTimer()
	}
	b.ReportMetric(float64(took.Microseconds())/float64(b.N), "µs/take")
}

// BenchmarkFifty measures the time to make and close fifty fences, one after the other.
func BenchmarkFifty(b *testing.B) {
	var made, gone time.Duration
	for b.Loop() {
		var all []*Fence
		start := time.Now()
		for range 50 {
			f, err := New(context.Background(), Options{})
			must(b, err)
			_, err = f.Denials() // waits for the packet filters
			must(b, err)
			all = append(all, f)
		}
		made += time.Since(start)
		start = time.Now()
		for _, f := range all {
			must(b, f.Close())
		}
		gone += time.Since(start)
	}
	b.ReportMetric(made.Seconds()*1000/float64(b.N)/50, "ms/made")
	b.ReportMetric(gone.Seconds()*1000/float64(b.N)/50, "ms/gone")
}

// BenchmarkEnforce measures the time until 10,000 flows that a change does not allow are stopped, and until all of them
// are reset and counted.
func BenchmarkEnforce(b *testing.B) {
	host, _ := newTopology(b)
	f, _ := newFence(b, host)
	w := &wire{b, f.Tap()}
	var stopped time.Duration
	for b.Loop() {
		b.StopTimer()
		enforce(b, f, everywhere("tcp/7000")...)
		for i := range 10_000 {
			w.send(packet{proto: protoTCP, peer: peerAddr4, guestPort: uint16(1000 + i), peerPort: 7000, flags: 2, seq: 1}.frame())
		}
		p, err := netpolicy.New([]netpolicy.Rule{allow("192.0.2.1", "tcp/1")})
		must(b, err)
		b.StartTimer()
		began, next := time.Now(), f.generation+1
		effect := make(chan time.Duration)
		go func() {
			for n := uint32(0); n != next; {
				var err error
				n, err = f.filters.maps.inForce()
				must(b, err)
				time.Sleep(100 * time.Microsecond)
			}
			effect <- time.Since(began)
		}()
		ended, err := f.Enforce(context.Background(), netpolicy.Generation{Number: f.generation + 1, Policy: p})
		if err != nil || len(ended) != 10_000 {
			b.Fatalf("ended %d, %v", len(ended), err)
		}
		stopped += <-effect
	}
	b.ReportMetric(float64(stopped.Microseconds())/float64(b.N)/1000, "ms/stopped")
}
