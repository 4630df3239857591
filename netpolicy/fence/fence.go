package fence

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/netpolicy"
)

// Permit is what allows a flow.
type Permit struct {
	Name   string // the host name that led to the address; empty for a rule that names a range
	Port   netpolicy.Port
	Via    netpolicy.Mode
	Rule   string // as the record names it
	DNSSeq uint64 // of the answer's event
}

// Key identifies a flow. Src is the guest's end.
type Key struct {
	Proto    string // tcp or udp; in denials also icmp, icmp6 or a number
	Src, Dst netip.AddrPort
}

// Flow is what the guest has with a peer, and what it carried. Bytes and
// packets are frames on the guest's card, Ethernet's header included; a frame that is
// still to be cut into segments counts as those.
type Flow struct {
	Key
	Permit
	Generation            uint32    // of the policy that allowed it last
	Began, Last           time.Time // to about 4 ms
	BytesOut, BytesIn     uint64
	PacketsOut, PacketsIn uint64

	began uint64 // as the programs report it: with Key, what makes this flow this one
}

// Event is something that the fence saw.
type Event struct {
	State audit.FlowState // open, close, deny or revoke
	// Flow is complete but for denials: those have what of Key could be read off the packet.
	Flow   Flow
	Reason string
	// Count is how many denials a deny event stands for. Not every denial is
	// reported by itself; over time the sums for each reason are exact. It is 0 where the
	// event before has counted this denial already.
	Count   uint64
	Inbound bool   // the denied packet was one for the guest
	Lost    uint64 // records for which the kernel's ring had no space since the last event
	Time    time.Time
}

// Options of a fence.
type Options struct {
	// Sighted, if set, is called for each event, by one goroutine, in order. While it does not return, the ring fills;
	// events that do not fit are counted, and flows are reported later. It must not call Shut or Close, which wait for
	// it.
	Sighted func(Event)

	attach attacher // of tests; nil: what the kernel has
}

// Fence stands around one sandbox. Its methods may be called concurrently.
//
//	New              Enforce                          Close
//	----> closed ------------> generation n <-+ ------------> gone
//	      (DNS only)               |          |
//	                               +----------+ Enforce: n' > n
type Fence struct {
	space, site *space
	tap         *os.File
	index       int // of the TAP, in the namespace
	gates       *gates
	maps        *programs
	marks       marks
	inject      *injector
	sighted     func(Event)
	watcher     *watcher

	mu         sync.Mutex // guards what follows, and writing to the programs' maps
	book       *book
	ledger     *ledger
	direct     *direct
	generation uint32
	failure    error // of the watcher; Close returns it
	closed     bool

	stop     context.CancelFunc
	watching sync.WaitGroup

	closing  sync.Once
	leftover error // of the one time that closing ran

	options  Options
	raising  sync.Once
	unraised error // why the walls do not stand; set by raising
}

// New makes a fence that is closed: until Enforce nothing passes but questions
// to the resolver. The namespace of the calling thread is the site that direct flows
// go out to. Without the capabilities or kernel features that it takes there is no fence.
//
// New returns with a TAP to hand to the guest's machine, which is down; the first
// other method that is called puts up the walls, which takes some 10 ms, and then the
// TAP. Listen and Enforce return why they could not be put up.
func New(ctx context.Context, o Options) (*Fence, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	site, err := currentSpace()
	if err != nil {
		return nil, err
	}
	if o.attach == nil {
		o.attach = attach
	}
	f, err := lay(site, o)
	if err != nil {
		return nil, errors.Join(err, site.close())
	}
	return f, nil
}

// stands reports whether the walls stand, after it has put them up if need be.
func (f *Fence) stands() bool {
	f.raising.Do(func() {
		if f.unraised = f.raise(); f.unraised == nil {
			f.unraised = f.begin(f.options)
		}
	})
	return f.unraised == nil
}

// begin starts the goroutine that looks after the fence.
func (f *Fence) begin(o Options) error {
	if f.sighted = o.Sighted; f.sighted == nil {
		f.sighted = func(Event) {}
	}
	ring, err := ringbuf.NewReader(f.maps.Events)
	if err != nil {
		return fmt.Errorf("read what the programs tell: %w", err)
	}
	f.watcher = &watcher{f: f, ring: ring, open: map[Key]Flow{}}
	ctx, stop := context.WithCancel(context.Background())
	f.stop = stop
	f.watching.Go(func() { f.watcher.watch(ctx) })
	return nil
}

// failed keeps the watcher's first failure.
func (f *Fence) failed(err error) {
	if f.failure == nil {
		f.failure = err
	}
}

// Tap is the guest's network device (IFF_TAP, IFF_NO_PI, IFF_VNET_HDR): each frame
// has a virtio-net header before it. The fence keeps it open until Close.
func (f *Fence) Tap() *os.File { return f.tap }

// Listen listens inside the namespace; the listener can be used from anywhere.
// The address must be a literal one.
func (f *Fence) Listen(ctx context.Context, network, address string) (l net.Listener, err error) {
	if !f.stands() {
		return nil, f.unraised
	}
	err = f.space.in(func() error {
		l, err = f.sockets().Listen(ctx, network, address)
		return err
	})
	return l, err
}

// ListenPacket is Listen for packets.
func (f *Fence) ListenPacket(ctx context.Context, network, address string) (c net.PacketConn, err error) {
	if !f.stands() {
		return nil, f.unraised
	}
	err = f.space.in(func() error {
		c, err = f.sockets().ListenPacket(ctx, network, address)
		return err
	})
	return c, err
}

// sockets carry the mark, so that their packets pass the namespace's table. A socket that another part of the process
// made there by accident does not.
func (f *Fence) sockets() *net.ListenConfig {
	return &net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var set error
		err := c.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(f.marks.pass)) })
		return errors.Join(err, set)
	}}
}

// Open lets the guest begin flows to an address and port under a name that the
// policy in force allows; it asks netpolicy.Decide again, so that a decision made just
// before a change opens nothing after it. A zero until holds for the sandbox's life. For
// a direct name it is the end of the answer's lifetime: flows that live then go on.
func (f *Fence) Open(addr netip.Addr, p Permit, until time.Time) error {
	addr = addr.WithZone("").Unmap()
	if !f.stands() {
		return f.unraised
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return net.ErrClosed
	}
	if err := f.book.open(addr, p, until); err != nil {
		return err
	}
	return f.direct.name(addr, p)
}

// Flow returns a flow's counters, also for a while after its end.
func (f *Fence) Flow(k Key) (Flow, bool) {
	raw := k.raw()
	if !f.stands() {
		return Flow{}, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var flow programsFlow
	if !f.closed && f.maps.Flows.Lookup(raw, &flow) == nil {
		return f.ledger.flow(raw, &flow), true
	}
	return f.ledger.ended.Get(k)
}

// Flows returns the flows that live, in no order.
func (f *Fence) Flows() []Flow {
	if !f.stands() {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []Flow
	if f.closed {
		return nil
	}
	_ = f.ledger.each(func(k programsFlowKey, v *programsFlow) { all = append(all, f.ledger.flow(k, v)) })
	return all
}

// Denials returns how many packets were dropped so far for each reason, exactly. Where
// no rule allows a destination an event may say more closely why: see netpolicy.Reason.
func (f *Fence) Denials() (map[string]uint64, error) {
	if !f.stands() {
		return nil, f.unraised
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, net.ErrClosed
	}
	totals, err := f.maps.totals()
	if err != nil {
		return nil, err
	}
	counts := map[string]uint64{}
	for why, n := range totals {
		if n > 0 {
			counts[reasonText[why]] = n
		}
	}
	return counts, nil
}

// Shut reports the end of every flow that lives, and lets nothing pass any more.
// The guest should be gone. What there is in the kernel stays until Close.
func (f *Fence) Shut() {
	f.raising.Do(func() { f.unraised = net.ErrClosed })
	f.mu.Lock()
	before := f.closed
	f.closed = true
	f.mu.Unlock()
	if before || f.unraised != nil {
		return
	}
	f.stop()
	f.nudge()
	f.watching.Wait()
}

// Close shuts the fence and leaves nothing of it, which takes the kernel some 10 ms.
// Further calls return what the first did.
func (f *Fence) Close() error {
	f.closing.Do(func() {
		f.Shut()
		f.leftover = errors.Join(f.failure, f.release(), f.site.close())
	})
	return f.leftover
}
