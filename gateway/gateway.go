package gateway

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/dnsproxy/upstream"
	"github.com/custody-project/custody/llm"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/redact"
)

// Names maps synthetic addresses to names.
type Names interface {
	// Name returns the name in normal form and the seq of the DNS answer with the address.
	Name(addr netip.Addr) (name string, dnsSeq uint64, ok bool)
}

// Recorder is the part of audit.Recorder that the gateway uses.
type Recorder interface {
	Record(ctx context.Context, ev audit.Event) (seq uint64, err error) // returns when durable
	Post(ctx context.Context, ev audit.Event) (seq uint64, err error)   // returns when it has a sequence number
}

// Resolver resolves names on the host.
type Resolver interface {
	Resolve(ctx context.Context, name string, qtype uint16) (upstream.Answer, error)
}

// Meter counts the bytes of a connection on the guest's device.
type Meter interface {
	Count(src, dst netip.AddrPort) (out, in, packetsOut, packetsIn uint64)
}

// Config has the parts of a Gateway. Fields must be set unless they are optional.
type Config struct {
	Run      string // part of refusals
	Live     *netpolicy.Live
	Names    Names
	Recorder Recorder
	Resolver Resolver
	// Self reports whether an address belongs to the host.
	Self func(netip.Addr) bool
	// Meter is optional: without it the record has no byte counts of connections.
	Meter Meter
	// Proc names a connection's process, as the guest reports it; optional.
	Proc func(src, dst netip.AddrPort) string
	// Roots verify the hosts' certificates of opened connections; nil: the host's.
	Roots *x509.CertPool
	// Authority signs the certificates for opened connections; nil: connections cannot be opened.
	Authority *Authority
	// Credentials are optional: without them rules cannot have one, and requests are not searched for secrets.
	Credentials Credentials
	// Redactor has the values that Credentials finds. It is required with Credentials, and for rules that redact.
	Redactor *redact.Redactor
	// Calls are the LLM API calls of the run; optional.
	Calls *llm.Tracker
	// NextID returns the id of a new flow.
	NextID func() string
	// Limits bound the resources of one sandbox.
	Limits Limits
}

// Limits bound the resources of one sandbox; zero fields mean the defaults.
type Limits struct {
	Conns     int           // concurrent connections, default 512: further ones are reset
	Requests  int           // concurrent requests on an HTTP/2 connection, default 100
	Exchanges int           // concurrent requests on all connections, default 1024: further ones are denied
	Hello     time.Duration // for a connection's first bytes or ClientHello, default 30 s: a guest can be slow
	Head      time.Duration // for the rest of a request's head after its first byte, default 30 s
	KeepAlive time.Duration // between requests, default 2 min
	Stall     time.Duration // for one read or write inside a body, default 2 min
	Answer    time.Duration // for the head of a response, default 15 min: LLM APIs can take long
	Resolve   time.Duration // for a name's addresses, default 8 s
	Dial      time.Duration // for a connection, over all addresses, default 15 s
	Fallback  time.Duration // before the next address is tried concurrently, default 300 ms
	Idle      time.Duration // without a byte in either direction, default 15 min
}

func (l Limits) filled() Limits {
	l.Conns = cmp.Or(l.Conns, 512)
	l.Requests = cmp.Or(l.Requests, 100)
	l.Exchanges = cmp.Or(l.Exchanges, 1024)
	l.Hello = cmp.Or(l.Hello, 30*time.Second)
	l.Head = cmp.Or(l.Head, 30*time.Second)
	l.KeepAlive = cmp.Or(l.KeepAlive, 2*time.Minute)
	l.Stall = cmp.Or(l.Stall, 2*time.Minute)
	l.Answer = cmp.Or(l.Answer, 15*time.Minute)
	l.Resolve = cmp.Or(l.Resolve, 8*time.Second)
	l.Dial = cmp.Or(l.Dial, 15*time.Second)
	l.Fallback = cmp.Or(l.Fallback, 300*time.Millisecond)
	l.Idle = cmp.Or(l.Idle, 15*time.Minute)
	return l
}

// Gateway serves the connections of one sandbox. It is safe for concurrent use.
type Gateway struct {
	cfg     Config
	limits  Limits
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	buffers sync.Pool      // of *[]byte, for bodies
	running sync.WaitGroup // connections and the sweeper
	turns   chan struct{}  // one token for each TLS handshake in progress; further ones wait
	asking  atomic.Int64   // open requests

	mu       sync.Mutex // guards the fields below
	conns    map[*conn]struct{}
	carrying map[*flight]string // open requests with a credential, and its name
	closed   bool
	excess   uint64 // connections reset since the last event that reported them
}

// New returns a Gateway; call Serve to start it. Close must be called.
func New(cfg Config) *Gateway {
	g := &Gateway{
		cfg: cfg, limits: cfg.Limits.filled(), turns: make(chan struct{}, runtime.GOMAXPROCS(0)),
		conns: map[*conn]struct{}{}, carrying: map[*flight]string{},
	}
	g.buffers.New = func() any { b := make([]byte, 32<<10); return &b }
	g.ctx, g.stop = context.WithCancel(context.Background())
	g.running.Go(g.sweep)
	return g
}

// Serve accepts connections from l until ctx ends, l is closed or Close is called, and then closes l. It may be called
// concurrently for several listeners. Connections continue after it returns, until Close. It returns nil after the end
// of ctx and after Close.
func (g *Gateway) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.ctx, cancel)()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		c, err := l.Accept()
		switch {
		case err == nil:
			g.take(c)
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("gateway: %w", err)
		default: // out of descriptors or memory, which others may release
			wait(ctx, 50*time.Millisecond)
		}
	}
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// take starts to serve a connection, or resets it.
func (g *Gateway) take(nc net.Conn) {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		nc.Close()
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if full := len(g.conns) >= g.limits.Conns; full || g.closed {
		if full {
			g.excess++
		}
		reset(tcp)
		return
	}
	c := newConn(g, tcp)
	g.conns[c] = struct{}{}
	g.running.Go(c.run)
}

func (g *Gateway) forget(c *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.conns, c)
}

func (g *Gateway) all() []*conn {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := make([]*conn, 0, len(g.conns))
	for c := range g.conns {
		list = append(list, c)
	}
	return list
}

// Recheck decides again, under the policy in force, on every connection, dial and request. Those that are no longer
// allowed are reset on both sides immediately. Recheck returns their number when their byte counts are recorded, or when
// ctx ends.
func (g *Gateway) Recheck(ctx context.Context) (ended int) {
	var gone []*conn
	for _, c := range g.all() {
		if c.recheck() {
			gone = append(gone, c)
		}
	}
	for _, c := range gone {
		select {
		case <-c.done:
		case <-ctx.Done():
		}
	}
	return len(gone)
}

// Close ends every connection and returns when the end of the last one is recorded.
func (g *Gateway) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.stop()
	for _, c := range g.all() {
		c.life.kill("the gateway was closed")
	}
	g.running.Wait()
	g.recordExcess()
}

// sweep ends idle connections and reports the number of those above the limit.
func (g *Gateway) sweep() {
	for {
		wait(g.ctx, min(time.Second, g.limits.Idle/4))
		if g.ctx.Err() != nil {
			return
		}
		g.recordExcess()
		for _, c := range g.all() {
			if c.life.idle() >= g.limits.Idle {
				c.life.kill("idle for too long")
			}
		}
	}
}

// recordExcess records how many connections over the limit were reset.
func (g *Gateway) recordExcess() {
	g.mu.Lock()
	n := g.excess
	g.excess = 0
	g.mu.Unlock()
	if n == 0 {
		return
	}
	ctx, cancel := lastWords(g.ctx)
	defer cancel()
	g.post(ctx, audit.Event{Kind: audit.KindFlow, Flow: &audit.Flow{
		State: audit.FlowDeny, Proto: "tcp", Verdict: audit.Deny, Rule: netpolicy.Default, Count: n,
		Reason: fmt.Sprintf("the sandbox has %d concurrent connections, its limit", g.limits.Conns),
	}})
}

// lastWords returns a context with a separate timeout, for events after the end.
func lastWords(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
}

func (g *Gateway) record(ctx context.Context, ev audit.Event) (uint64, error) {
	ev.Time, ev.Observer = time.Now().UTC(), audit.Host
	return g.cfg.Recorder.Record(ctx, ev)
}

func (g *Gateway) post(ctx context.Context, ev audit.Event) (uint64, error) {
	ev.Time, ev.Observer = time.Now().UTC(), audit.Host
	return g.cfg.Recorder.Post(ctx, ev)
}

// reset closes a connection with RST, which a peer cannot mistake for an orderly end.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0) // it is closed in any case
	c.Close()
}
