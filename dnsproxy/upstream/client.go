package upstream

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/custody-project/custody/netpolicy"
)

// Options of a Client. Zero values take the defaults.
type Options struct {
	Attempt time.Duration // timeout for one server, default 1.5 s
	Total   time.Duration // timeout for a lookup, default 5 s

	CacheEntries int           // cached answers, default 4096; each takes at most a few KiB
	MaxTTL       time.Duration // maximum time for which an answer is cached, default 5 min
	NegativeTTL  time.Duration // the same for a negative answer, default 1 min

	Roots *x509.CertPool // for TLS servers; nil: the host's
	// Dial makes the sockets, default net.Dialer's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

func (o *Options) fill() {
	o.Attempt = cmp.Or(o.Attempt, 1500*time.Millisecond)
	o.Total = cmp.Or(o.Total, 5*time.Second)
	o.CacheEntries = max(1, cmp.Or(o.CacheEntries, 4096))
	o.MaxTTL = cmp.Or(o.MaxTTL, 5*time.Minute)
	o.NegativeTTL = cmp.Or(o.NegativeTTL, time.Minute)
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
}

// Client looks up addresses from servers. It is safe for concurrent use, and starts no goroutines.
type Client struct {
	opt     Options
	servers []*server
	cache   *cache
	flights flights
}

// New returns a client that queries the first healthy one of the servers.
func New(servers []Server, o Options) *Client {
	o.fill()
	c := &Client{opt: o, cache: newCache(o.CacheEntries)}
	c.flights.open = map[question]*flight{}
	for _, s := range servers {
		c.servers = append(c.servers, newServer(s, o))
	}
	return c
}

// Close closes the idle connections.
func (c *Client) Close() {
	for _, s := range c.servers {
		s.close()
	}
}

// Errors of Resolve.
var (
	ErrNoAnswer = errors.New("no DNS server gave an answer")
	ErrQuestion = errors.New("the name or type is not looked up upstream")
)

// Cached returns what Resolve would return without a query to a server.
func (c *Client) Cached(name string, qtype uint16) (Answer, bool) {
	return c.cache.get(question{canonical(name), qtype}, time.Now())
}

// Resolve returns the addresses of a name; qtype is dns.TypeA or dns.TypeAAAA. A negative answer is not an error.
func (c *Client) Resolve(ctx context.Context, name string, qtype uint16) (Answer, error) {
	host, ok := netpolicy.Name(name)
	q := question{host, qtype}
	if qtype != dns.TypeA && qtype != dns.TypeAAAA {
		return Answer{}, fmt.Errorf("%w: type %s", ErrQuestion, dns.Type(qtype))
	}
	if !ok {
		return Answer{}, fmt.Errorf("%w: %.64q is not a host name", ErrQuestion, name)
	}
	if a, ok := c.cache.get(q, time.Now()); ok {
		return a, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.opt.Total)
	defer cancel()
	return c.flights.do(ctx, q, func() (Answer, error) {
		a, err := c.resolve(ctx, q)
		if err == nil {
			c.cache.put(q, a, time.Now())
		}
		return a, err
	})
}

// gone reports whether err only means that the caller's context has ended.
func gone(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// resolve sends queries until the chain of CNAMEs ends with addresses or with none. A recursive server sends all of it
// in one answer.
func (c *Client) resolve(ctx context.Context, q question) (Answer, error) {
	began := time.Now()
	a := Answer{TTL: c.opt.MaxTTL}
	next := q
	for {
		m, server, err := c.ask(ctx, next)
		if err != nil {
			return Answer{}, fmt.Errorf("resolve %s %s: %w", q.name, dns.Type(q.qtype), err)
		}
		p, err := read(m, next)
		if err == nil {
			err = a.add(p, q)
		}
		if err != nil {
			return Answer{}, fmt.Errorf("%s answered for %s %s: %w", server, q.name, dns.Type(q.qtype), err)
		}
		a.Server = server
		if p.open == "" {
			break
		}
		next.name = p.open
	}
	if len(a.Addrs) == 0 {
		a.TTL = min(a.TTL, c.opt.NegativeTTL)
	}
	a.Latency = time.Since(began)
	return a, nil
}

// add appends the next part of the chain.
func (a *Answer) add(p part, q question) error {
	for _, name := range p.chain {
		if len(a.Chain) == MaxChain || name == q.name || slices.Contains(a.Chain, name) {
			return fmt.Errorf("%w: %s leads over %s", ErrChain, q.name, brief(append(a.Chain, name)))
		}
		a.Chain = append(a.Chain, name)
	}
	a.RCode, a.Addrs, a.Omitted = p.rcode, p.addrs, p.omitted
	a.TTL = min(a.TTL, time.Duration(p.ttl)*time.Second)
	return nil
}

// rounds is the number of queries to each server: a packet can be lost.
const rounds = 2

// ask queries server by server until one gives a reliable answer: addresses, or a negative answer. Otherwise it returns
// the last response.
func (c *Client) ask(ctx context.Context, q question) (*dns.Msg, string, error) {
	if len(c.servers) == 0 {
		return nil, "", errors.New("no DNS server is configured")
	}
	var errs []string
	var last *dns.Msg
	var lastServer string
	for range rounds {
		for _, s := range c.order(time.Now()) {
			m, err := c.attempt(ctx, s, q)
			switch {
			case err != nil && over(ctx) != nil:
				return nil, "", fmt.Errorf("%w in time: %w%s", ErrNoAnswer, over(ctx), words(errs))
			case err != nil:
				errs = append(errs, fmt.Sprintf("%s: %v", s.Server, err))
			case m.Rcode == dns.RcodeSuccess || m.Rcode == dns.RcodeNameError:
				return m, s.text, nil
			default:
				last, lastServer = m, s.text
			}
		}
		if last != nil {
			return last, lastServer, nil
		}
	}
	return nil, "", fmt.Errorf("%w%s", ErrNoAnswer, words(errs))
}

// over returns the reason if there is no time left, and otherwise nil. A socket's deadline can expire just before the
// context's, from which it was set.
func over(ctx context.Context) error {
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// words joins the distinct texts of errors.
func words(errs []string) string {
	slices.Sort(errs)
	if errs = slices.Compact(errs); len(errs) == 0 {
		return ""
	}
	return " (" + strings.Join(errs, "; ") + ")"
}

// attempt queries one server and updates its health.
func (c *Client) attempt(ctx context.Context, s *server, q question) (*dns.Msg, error) {
	attempt, cancel := context.WithTimeout(ctx, c.opt.Attempt)
	defer cancel()
	m, err := s.exchange(attempt, q)
	switch {
	case err == nil:
		s.health.healthy()
	case over(ctx) == nil: // not because the caller's context has ended
		s.health.failed(time.Now())
	}
	return m, err
}

// order returns the servers in their order, with the unhealthy ones last.
func (c *Client) order(now time.Time) []*server {
	if len(c.servers) == 1 {
		return c.servers
	}
	out := slices.Clone(c.servers)
	slices.SortStableFunc(out, func(a, b *server) int { return cmp.Compare(a.health.rank(now), b.health.rank(now)) })
	return out
}
