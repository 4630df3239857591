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

// Names returns the name for which a synthetic address stands.
type Names interface {
	// Name returns the name in normal form and the seq of the DNS answer that gave the address away.
	Name(addr netip.Addr) (name string, dnsSeq uint64, ok bool)
}

// Recorder is the part of audit.Recorder that the gateway uses.
type Recorder interface {
	Record(ctx context.Context, ev audit.Event) (seq uint64, err error) // returns when durable
	Post(ctx context.Context, ev audit.Event) (seq uint64, err error)   // returns when it has its place
}

// Resolver finds the addresses of a name on the host's side.
type Resolver interface {
	Resolve(ctx context.Context, name string, qtype uint16) (upstream.Answer, error)
}

// Meter counts what passed the guest's card on a connection so far.
type Meter interface {
	Count(src, dst netip.AddrPort) (out, in, packetsOut, packetsIn uint64)
}

// Config is what a Gateway needs. What is not said to be optional must be set.
type Config struct {
	Run      string // stands in denials
	Live     *netpolicy.Live
	Names    Names
	Recorder Recorder
	Resolver Resolver
	// Self reports whether an address is the host's own.
	Self func(netip.Addr) bool
	// Meter is optional: without it the record has no bytes of connections.
	Meter Meter
	// Proc names the process behind a connection, as the guest claims; optional.
	Proc func(src, dst netip.AddrPort) string
	// Roots verify upstream certificates of opened connections; nil: the host's.
	Roots *x509.CertPool
	// Authority is what opened connections are served with; nil: none can be opened.
	Authority *Authority
	// Credentials are optional: without them no rule can have one, and nothing is looked for in requests.
	Credentials Credentials
	// Redactor knows the values that Credentials finds. It is needed with them, and for rules that redact.
	Redactor *redact.Redactor
	// Calls are those of models; optional.
	Calls *llm.Book
	// NextID gives each flow its id.
	NextID func() string
	// Limits are bounds on what one sandbox may use.
	Limits Limits
}

// Limits bound what one sandbox may use; a zero field has its default.
type Limits struct {
	Conns     int           // concurrent connections, default 512: more are reset
	Requests  int           // concurrent requests on a connection of HTTP/2, default 100
	Exchanges int           // concurrent requests on all connections, default 1024: more are refused
	Hello     time.Duration // for a connection's first bytes or ClientHello, default 30 s: a guest can be slow
	Head      time.Duration // for the rest of a request's head after its first byte, default 30 s
	KeepAlive time.Duration // between requests, default 2 min
	Stall     time.Duration // for one read or write inside a body, default 2 min
	Answer    time.Duration // for an answer's head, default 15 min: a model may think for long
	Resolve   time.Duration // for a name's addresses, default 8 s
	Dial      time.Duration // for a connection over all of its addresses, default 15 s
	Fallback  time.Duration // before the next address is tried beside the last, default 300 ms
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
	turns   chan struct{}  // one token for each TLS handshake that is being answered; further ones wait their turn
	asking  atomic.Int64   // requests under way

	mu       sync.Mutex // guards what follows
	conns    map[*conn]struct{}
	carrying map[*flight]string // requests under way with a credential, and its name
	closed   bool
	excess   uint64 // connections reset since the last event that reported them
}

// New returns a Gateway that serves nothing yet. Close must be called.
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

// Serve takes connections from l until ctx ends, l is closed or Close is
// called, and then closes l. It may run for several listeners concurrently. Connections outlive
// it: they end with Close. The error is nil after ctx's end and after Close.
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
		default: // out of descriptors or memory: others may be freed
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

// take begins to serve a connection, or resets it.
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

// Recheck decides again, under the policy now in force, on every connection,
// every dial and every request under way. Those that are no longer allowed are reset on both
// sides immediately; Recheck returns their number when the record has their bytes, or when ctx ends.
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

// Close ends every connection and returns when the last one's end is in the record.
func (g *Gateway) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.stop()
	for _, c := range g.all() {
		c.life.kill("the gateway was closed")
	}
	g.running.Wait()
	g.tellExcess()
}

// sweep ends idle connections and reports the number of those above the limit.
func (g *Gateway) sweep() {
	for {
		wait(g.ctx, min(time.Second, g.limits.Idle/4))
		if g.ctx.Err() != nil {
			return
		}
		g.tellExcess()
		for _, c := range g.all() {
			if c.life.idle() >= g.limits.Idle {
				c.life.kill("idle for too long")
			}
		}
	}
}

// tellExcess records how many connections were reset because there were too many.
func (g *Gateway) tellExcess() {
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
		Reason: fmt.Sprintf("the sandbox has %d concurrent connections already", g.limits.Conns),
	}})
}

// lastWords is for what is recorded after the end: with a time of its own.
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

// reset closes a connection with RST, which no peer takes for an orderly end.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0) // it is closed in any case
	c.Close()
}
