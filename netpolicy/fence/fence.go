package fence

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/netpolicy"
)

// Permit is the permission for flows to an address.
type Permit struct {
	Name   string // the host name that resolved to the address; empty for a rule that names a range
	Port   netpolicy.Port
	Via    netpolicy.Mode
	Rule   string // in the form of the record
	DNSSeq uint64 // of the answer's event
}

// Key identifies a flow. Src is the guest's end.
type Key struct {
	Proto    string // tcp or udp; in denials also icmp, icmp6 or a number
	Src, Dst netip.AddrPort
}

// Flow is a flow between the guest and a peer, with its counters. They count frames on the guest's device, including the
// Ethernet header; a frame that is segmented later counts as its segments.
type Flow struct {
	Key
	Permit
	Generation            uint32    // of the policy under which the last packet was allowed
	Began, Last           time.Time // to about 4 ms
	BytesOut, BytesIn     uint64
	PacketsOut, PacketsIn uint64

	began uint64 // as the programs report it; with Key it identifies the flow
}

// Event is an event that the fence observed.
type Event struct {
	State audit.FlowState // open, close, deny or revoke
	// Flow is complete except in denials, which have only the parts of Key that the packet has.
	Flow   Flow
	Reason string
	// Count is the number of denials that a deny event represents. Not every denial has an event; over time the sums for
	// each reason are exact. Count is 0 if the previous event has counted this denial.
	Count   uint64
	Inbound bool   // the denied packet was sent to the guest
	Lost    uint64 // records that were lost since the last event because the ring buffer was full
	Time    time.Time
}

// Options are the options of a fence.
type Options struct {
	// Observed, if set, is called for each event, by one goroutine, in order. Until it returns, the ring buffer fills;
	// events that do not fit are counted, and flows are reported later. It must not call Stop or Close, which wait for
	// it.
	Observed func(Event)

	attach attacher // for tests; nil: the default
}

// Fence isolates the network of one sandbox. It is safe for concurrent use.
//
//	New              Enforce                          Close
//	----> closed ------------> generation n <-+ ------------> gone
//	      (DNS only)               |          |
//	                               +----------+ Enforce: n' > n
type Fence struct {
	namespace namespace
	host      *netlink.Handle // of the host's namespace, for its addresses
	filters   *Filters
	inject    *injector
	observed  func(Event)
	watcher   *watcher

	mu         sync.Mutex // guards the fields below, and writes to the programs' maps
	permits    *permitTable
	ledger     *ledger
	direct     *direct
	generation uint32
	failure    error // of the watcher; Close returns it
	closed     bool

	stop     context.CancelFunc
	watching sync.WaitGroup

	closing  sync.Once
	leftover error // the result of closing

	options    Options
	laying     sync.Once
	layErr     error // why there are no packet filters; set by laying
	installing sync.Once
	installErr error // why the packet filters cannot be used; set by installing
}

// New makes a fence that is closed: until Enforce only queries to the resolver pass. The calling thread's namespace is
// the host's, from which direct flows leave. New fails if capabilities or kernel features are missing.
//
// New returns with a TAP for the guest's machine, which is down. Install, or the first call of another method, installs the
// packet filters, which takes some 10 ms, and brings the TAP up. Listen and Enforce return the error if that fails.
func New(ctx context.Context, o Options) (*Fence, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	n, err := NewNamespace(ctx)
	if err != nil {
		return nil, err
	}
	if o.attach != nil {
		n.attach = o.attach
	}
	return &Fence{namespace: n, host: n.host.links, options: o}, nil
}

// namespace is what a fence needs of its Namespace, which can belong to another process.
type namespace interface {
	Tap() *os.File
	Install() (*Filters, error)
	Listen(ctx context.Context, network, address string) (*os.File, error)
	Ranges(n int) (*ebpf.Map, error)
	Fragments(generation uint32) error
	Connect(ctx context.Context, generation uint32) (raw4, raw6 *os.File, err error)
	Disconnect() error
	Guard(named []netip.Addr) error
	Close() error
}

// installed puts the packet filters into use on its first call, and reports whether they are.
func (f *Fence) installed() bool {
	f.installing.Do(func() {
		if f.installErr = f.install(); f.installErr == nil {
			f.installErr = f.begin(f.options)
		}
	})
	return f.installErr == nil
}

// begin starts the watcher's goroutine.
func (f *Fence) begin(o Options) error {
	if f.observed = o.Observed; f.observed == nil {
		f.observed = func(Event) {}
	}
	ring, err := ringbuf.NewReader(f.filters.maps.Events)
	if err != nil {
		return fmt.Errorf("read the programs' events: %w", err)
	}
	f.watcher = &watcher{f: f, ring: ring, open: map[Key]Flow{}}
	ctx, stop := context.WithCancel(context.Background())
	f.stop = stop
	f.watching.Go(func() { f.watcher.watch(ctx) })
	return nil
}

// failed stores the watcher's first error.
func (f *Fence) failed(err error) {
	if f.failure == nil {
		f.failure = err
	}
}

// Tap returns the guest's network device; see Namespace.
func (f *Fence) Tap() *os.File { return f.namespace.Tap() }

// Listen listens inside the namespace; the listener can be used from any thread. The address must be literal.
func (f *Fence) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	if !f.installed() {
		return nil, f.installErr
	}
	socket, err := f.namespace.Listen(ctx, network, address)
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	return net.FileListener(socket)
}

// ListenPacket is like Listen, for packets.
func (f *Fence) ListenPacket(ctx context.Context, network, address string) (net.PacketConn, error) {
	if !f.installed() {
		return nil, f.installErr
	}
	socket, err := f.namespace.Listen(ctx, network, address)
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	return receiver(socket)
}

// receiver removes the filter of a Namespace's socket for packets.
func receiver(socket *os.File) (net.PacketConn, error) {
	if err := unix.SetsockoptInt(int(socket.Fd()), unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0); err != nil {
		return nil, fmt.Errorf("receive packets: %w", err)
	}
	return net.FilePacketConn(socket)
}

// Open allows the guest to begin flows to an address and port under a name that the policy in force allows; it calls
// netpolicy.Decide again, so that a decision made just before a change opens nothing after it. A zero until means the
// sandbox's life. For a direct name, until is the end of the answer's lifetime; open flows continue after it.
func (f *Fence) Open(addr netip.Addr, p Permit, until time.Time) error {
	addr = addr.WithZone("").Unmap()
	if !f.installed() {
		return f.installErr
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return net.ErrClosed
	}
	if err := f.permits.open(addr, p, until); err != nil {
		return err
	}
	return f.direct.name(addr, p)
}

// Flow returns a flow's counters, also for some time after its end.
func (f *Fence) Flow(k Key) (Flow, bool) {
	raw := k.raw()
	if !f.installed() {
		return Flow{}, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var flow programsFlow
	if !f.closed && f.filters.maps.Flows.Lookup(raw, &flow) == nil {
		return f.ledger.flow(raw, &flow), true
	}
	return f.ledger.ended.Get(k)
}

// Flows returns the open flows, in no particular order.
func (f *Fence) Flows() []Flow {
	if !f.installed() {
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

// Denials returns the exact number of packets that were dropped so far for each reason. If no rule allows a destination,
// events can have a more specific reason: see netpolicy.Reason.
func (f *Fence) Denials() (map[string]uint64, error) {
	if !f.installed() {
		return nil, f.installErr
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, net.ErrClosed
	}
	totals, err := f.filters.maps.totals()
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

// Stop reports the end of every open flow, and drops all packets from then on. The guest should have ended. The kernel's
// objects remain until Close.
func (f *Fence) Stop() {
	f.installing.Do(func() { f.installErr = net.ErrClosed })
	f.mu.Lock()
	before := f.closed
	f.closed = true
	f.mu.Unlock()
	if before || f.installErr != nil {
		return
	}
	f.stop()
	f.nudge()
	f.watching.Wait()
}

// Close stops the fence and removes all its objects, which takes the kernel some 10 ms. Further calls return the result
// of the first.
func (f *Fence) Close() error {
	f.closing.Do(func() {
		f.Stop()
		f.leftover = errors.Join(f.failure, f.release(), f.namespace.Close())
	})
	return f.leftover
}
