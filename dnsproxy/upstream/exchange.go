package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

// server is a Server with its connections and health.
type server struct {
	Server
	text    string // in the form that ParseServer reads
	opt     Options
	tls     *tls.Config // nil without TLS
	sockets pool        // connected UDP sockets
	streams pool        // TCP or TLS connections
	health  health
	// folds is the time until which the server is treated as one that does not preserve capitals, in nanoseconds since
	// 1970. Meanwhile it is queried over TCP.
	folds atomic.Int64
}

// Limits of one server's connections.
const (
	idleSockets = 64
	socketUses  = 32 // queries from one source port
	idleStreams = 16
	streamUses  = 10_000
	idleTime    = 8 * time.Second // servers close idle connections after 10 s or more
	foldsFor    = 10 * time.Minute
)

func newServer(s Server, o Options) *server {
	out := &server{Server: s, text: s.String(), opt: o,
		sockets: pool{size: idleSockets, uses: socketUses},
		streams: pool{size: idleStreams, uses: streamUses}}
	if s.Proto == TLS {
		out.tls = &tls.Config{
			// An address here is compared with the certificate's addresses.
			ServerName:         cmp.Or(s.Name, s.Addr.Addr().WithZone("").String()),
			RootCAs:            o.Roots,
			MinVersion:         tls.VersionTLS12,
			ClientSessionCache: tls.NewLRUClientSessionCache(2),
		}
	}
	return out
}

func (s *server) close() {
	s.sockets.close()
	s.streams.close()
}

// exchange sends a query to the server and returns the response.
//
//	  udp: random capitals --truncated, other capitals, too many foreign responses--> tcp
//	  tcp --fails, and was used only because of capitals--> udp in lower case
//		tcp, tls: a stream
func (s *server) exchange(ctx context.Context, q question) (*dns.Msg, error) {
	if s.Proto != UDP {
		return s.overStream(ctx, q)
	}
	if time.Now().UnixNano() < s.folds.Load() {
		return s.folded(ctx, q)
	}
	m, err := s.overUDP(ctx, q, true)
	switch {
	case errors.Is(err, errTruncated), errors.Is(err, errForeign):
		return s.overStream(ctx, q)
	case errors.Is(err, errRecased):
		m, err = s.folded(ctx, q)
		if err == nil {
			s.folds.Store(time.Now().Add(foldsFor).UnixNano())
		}
	}
	return m, err
}

// folded queries a server that does not preserve capitals: over TCP, which does not need them, or in lower case if the
// server does not support TCP.
func (s *server) folded(ctx context.Context, q question) (*dns.Msg, error) {
	half, cancel := context.WithTimeout(ctx, s.opt.Attempt/2)
	defer cancel()
	m, err := s.overStream(half, q)
	if err == nil || ctx.Err() != nil {
		return m, err
	}
	return s.overUDP(ctx, q, false)
}

// Reasons to query over TCP after UDP.
var (
	errTruncated = errors.New("the answer is truncated")
	errRecased   = errors.New("the server changed the case of the name")
	errForeign   = errors.New("too many responses to other queries")
)

// maxForeign is the number of responses with another id or question that are ignored. A few may be late; many indicate
// an attacker who guesses ids.
const maxForeign = 16

// overUDP sends the query and waits for its response, and ignores other packets.
func (s *server) overUDP(ctx context.Context, q question, mixed bool) (*dns.Msg, error) {
	p, err := q.pack(mixed)
	if err != nil {
		return nil, err
	}
	c, _, err := s.sockets.take(func() (net.Conn, error) { return s.opt.Dial(ctx, "udp", s.Addr.String()) })
	if err != nil {
		return nil, err
	}
	stop := c.bound(ctx)
	msg, err := s.receive(c, p)
	if !stop() || err != nil && !errors.Is(err, errTruncated) {
		c.Close()
		return nil, cmp.Or(err, ctx.Err())
	}
	s.sockets.give(c)
	if err != nil {
		return nil, err
	}
	return msg, nil
}

func (s *server) receive(c *conn, p packet) (*dns.Msg, error) {
	if _, err := c.Write(p.bytes); err != nil {
		return nil, err
	}
	buf := buffers.Get().(*[4096]byte)
	defer buffers.Put(buf)
	for foreigners := 0; ; {
		n, err := c.Read(buf[:])
		if err != nil {
			return nil, err
		}
		switch p.compare(buf[:n]) {
		case exact:
			return unpack(buf[:n])
		case truncation:
			return nil, errTruncated
		case recased:
			return nil, errRecased
		}
		if foreigners++; foreigners > maxForeign {
			return nil, errForeign
		}
	}
}

// overStream sends the query over an idle connection. If the server has closed it in the meantime, overStream takes
// another one, and finally a new one.
func (s *server) overStream(ctx context.Context, q question) (*dns.Msg, error) {
	p, err := q.pack(false)
	if err != nil {
		return nil, err
	}
	for {
		c, used, err := s.streams.take(func() (net.Conn, error) { return s.dialStream(ctx) })
		if err != nil {
			return nil, err
		}
		stop := c.bound(ctx)
		m, err := c.roundTrip(p)
		if stop() && err == nil {
			s.streams.give(c)
			return m, nil
		}
		c.Close()
		if err == nil || !used || ctx.Err() != nil {
			return m, err
		}
		p.shuffle(false)
	}
}

func (s *server) dialStream(ctx context.Context) (net.Conn, error) {
	c, err := s.opt.Dial(ctx, "tcp", s.Addr.String())
	if err != nil || s.tls == nil {
		return c, err
	}
	t := tls.Client(c, s.tls)
	if err := t.HandshakeContext(ctx); err != nil {
		c.Close()
		return nil, fmt.Errorf("TLS with %s: %w", s.tls.ServerName, err)
	}
	return t, nil
}
