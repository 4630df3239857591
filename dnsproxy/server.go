package dnsproxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/dnsproxy/upstream"
	"github.com/custody-project/custody/netpolicy"
)

// Names maps names to addresses for all enforcers of the policy.
type Names interface {
	// Synthetic returns the name's synthetic address, which never changes.
	Synthetic(name string) (netip.Addr, error)
	// Open allows the guest to reach addr as name until the given time; the zero time means for the sandbox's life. Open
	// is called after the event seq is durable and before the answer is sent, by one goroutine of each Serve.
	Open(name string, addr netip.Addr, via netpolicy.Mode, until time.Time, seq uint64) error
}

// Recorder is the part of audit.Recorder that a Server uses. Posted events become durable in order: Sync of one event
// covers all before it.
type Recorder interface {
	Post(ctx context.Context, ev audit.Event) (seq uint64, err error)
	Sync(ctx context.Context, seq uint64) error
}

// Resolver resolves names to real addresses; upstream.Client implements it. If it also has a method Cached like
// upstream.Client's, its cached answers are used first.
type Resolver interface {
	Resolve(ctx context.Context, name string, qtype uint16) (upstream.Answer, error)
}

// Config has the options of a Server. The first five are required; the zero values of the others mean their defaults.
type Config struct {
	Live     *netpolicy.Live
	Names    Names
	Recorder Recorder
	Upstream Resolver
	Run      string // sent to clients with a denial

	// Self reports whether an address belongs to the host. Such addresses are treated like special-purpose ones. nil:
	// the host's addresses are not known.
	Self func(netip.Addr) bool

	// Secret reports whether a name that the policy allows contains a secret; such a name is not looked up. nil: no name
	// does.
	Secret func(name string) bool

	SyntheticTTL time.Duration // default 60 s
	MinTTL       time.Duration // of direct answers, whatever the upstream TTL; default 10 s
	MaxTTL       time.Duration // default 5 min
	Grace        time.Duration // how long a direct answer can be used beyond its TTL; default 30 s
	MaxAddrs     int           // in one direct answer; default 32
	Workers      int           // concurrent upstream lookups, default 64
	Queue        int           // queries that wait for a worker, and for the record; default 1024
	Conns        int           // concurrent TCP connections, default 64
	Idle         time.Duration // idle timeout of a TCP connection, default 10 s
}

func (c *Config) fill() {
	c.SyntheticTTL = cmp.Or(c.SyntheticTTL, time.Minute)
	c.MinTTL = cmp.Or(c.MinTTL, 10*time.Second)
	c.MaxTTL = cmp.Or(c.MaxTTL, 5*time.Minute)
	c.Grace = cmp.Or(c.Grace, 30*time.Second)
	c.MaxAddrs = cmp.Or(c.MaxAddrs, 32)
	c.Workers = cmp.Or(c.Workers, 64)
	c.Queue = cmp.Or(c.Queue, 1024)
	c.Conns = cmp.Or(c.Conns, 64)
	c.Idle = cmp.Or(c.Idle, 10*time.Second)
	if c.Self == nil {
		c.Self = func(netip.Addr) bool { return false }
	}
}

// Stats counts the events of a Server since New.
type Stats struct {
	Questions  uint64 // packets received
	Denied     uint64
	Overloaded uint64 // direct names, answered SERVFAIL because all workers were busy
	Unrecorded uint64 // not answered because the recorder did not accept the event
	Unsent     uint64 // answers that the socket did not accept
	Refused    uint64 // TCP connections over the limit
}

type counters struct {
	questions, denied, overloaded, unrecorded, unsent, refused atomic.Uint64
}

// Server is the resolver of one sandbox. It is safe for concurrent use.
type Server struct {
	cfg    Config
	cached func(name string, qtype uint16) (upstream.Answer, bool)
	watch  *watch
	count  counters
}

// New returns a Server; call Serve to start it.
func New(c Config) *Server {
	c.fill()
	s := &Server{cfg: c, watch: newWatch()}
	s.cached = func(string, uint16) (upstream.Answer, bool) { return upstream.Answer{}, false }
	if u, ok := c.Upstream.(interface {
		Cached(name string, qtype uint16) (upstream.Answer, bool)
	}); ok {
		s.cached = u.Cached
	}
	return s
}

// Stats returns the counts so far.
func (s *Server) Stats() Stats {
	c := &s.count
	return Stats{c.questions.Load(), c.denied.Load(), c.overloaded.Load(), c.unrecorded.Load(), c.unsent.Load(), c.refused.Load()}
}

// UDPConn is the part of *net.UDPConn that Serve needs.
type UDPConn interface {
	ReadFromUDPAddrPort(b []byte) (n int, addr netip.AddrPort, err error)
	WriteToUDPAddrPort(b []byte, addr netip.AddrPort) (int, error)
}

// Serve serves pc, which must be a UDPConn, and ln until ctx ends or pc fails. It closes both, and returns when all its
// goroutines have ended: nil if ctx ended. Answers that are not durable by then are not sent.
func (s *Server) Serve(ctx context.Context, pc net.PacketConn, ln net.Listener) error {
	udp, ok := pc.(UDPConn)
	if !ok {
		pc.Close()
		ln.Close()
		return fmt.Errorf("dns: serve on a %T: want a UDP socket", pc)
	}
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(inner, func() { pc.Close(); ln.Close() })
	ss := &session{
		Server: s, udp: udp,
		jobs: make(chan *pending, s.cfg.Queue), out: make(chan *pending, s.cfg.Queue),
	}
	err := ss.run(inner, cancel, ln)
	pc.Close()
	ln.Close()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("dns: %w", err)
}

// session is one call of Serve.
type session struct {
	*Server
	udp  UDPConn
	jobs chan *pending // to the workers; full: SERVFAIL
	out  chan *pending // posted, to the committer; full: the sender waits
}

// run stops its parts in the order in which queries pass through them, so that no part sends to one that has ended.
func (s *session) run(ctx context.Context, cancel func(), ln net.Listener) error {
	var readers, workers, committer sync.WaitGroup
	var udpErr, tcpErr error
	committer.Go(func() { s.commit(ctx) })
	for range s.cfg.Workers {
		workers.Go(func() { s.work(ctx) })
	}
	readers.Go(func() {
		defer cancel()
		udpErr = s.readUDP(ctx)
	})
	readers.Go(func() {
		defer cancel()
		tcpErr = s.accept(ctx, ln)
	})
	readers.Wait()
	close(s.jobs)
	workers.Wait()
	close(s.out)
	committer.Wait()
	return errors.Join(udpErr, tcpErr)
}
