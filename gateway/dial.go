package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/miekg/dns"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/dnsproxy/upstream"
	"github.com/custody-project/custody/netpolicy"
)

// maxPeers is how many addresses of a name are tried at most.
const maxPeers = 6

// ownAddress is why a name may not lead to the host.
const ownAddress netpolicy.Reason = "the address is the host's own, which the rule does not name"

// open resolves the name and makes it durable that the flow goes to the first
// of its addresses. Nothing is dialled yet.
func (c *conn) open(current netpolicy.Generation, v netpolicy.Verdict, blind bool) *refusal {
	if found := c.find(nil, c.name); len(found) > 0 { // a query for it would reveal it
		no := denied("the secret %s stands in the destination's name", found[0])
		c.deny(v.RuleName(), no, "")
		c.presentAll(found, "the destination's name")
		return no
	}
	peers, no := c.resolve(current, v)
	if no != nil {
		c.deny(v.RuleName(), no, "")
		return no
	}
	c.mu.Lock()
	c.id, c.rule, c.gen = c.g.cfg.NextID(), v.RuleName(), current.Number
	c.peers, c.blind = peers, blind
	c.mu.Unlock()
	if no := c.recordOpen(c.ctx, peers[0], ""); no != nil {
		c.mu.Lock()
		c.id = "" // what was not recorded as open is not recorded as closed
		c.mu.Unlock()
		return no
	}
	return nil
}

// lookup is what one question for the name's addresses gave.
type lookup struct {
	kind   string
	answer upstream.Answer
	err    error
}

// lookupGrace is how long the slower of the two questions is waited for once the
// other has addresses (RFC 8305, section 3).
const lookupGrace = 50 * time.Millisecond

// resolve returns the addresses that the policy lets the name lead to, in the
// order in which to try them.
func (c *conn) resolve(current netpolicy.Generation, v netpolicy.Verdict) ([]netip.AddrPort, *refusal) {
	var four, six []netip.Addr
	var why netpolicy.Reason
	var err error
	for _, l := range c.lookUp() {
		good, bad, no := c.sift(current.Policy, l.answer.Addrs)
		why = cmp.Or(no, why)
		err = errors.Join(err, l.err)
		if e := c.recordLookup(l, current, v, bad, no); e != nil {
			return nil, &refusal{503, alertInternalError, "the record cannot be written, so nothing is let out"}
		}
		if l.kind == "A" {
			four = good
		} else {
			six = good
		}
	}
	peers := c.ordered(six, four)
	switch {
	case len(peers) > 0:
		return peers, nil
	case why != "":
		return nil, denied("%s leads to no address that may be used: %s", c.name, why)
	case len(four)+len(six) > 0:
		return nil, failed("no address of %s can be reached from this host", c.name)
	case err != nil:
		return nil, failed("the addresses of %s could not be found: the host's DNS servers do not answer properly", c.name)
	}
	return nil, failed("%s has no address", c.name)
}

// lookUp asks for both kinds of addresses concurrently.
func (c *conn) lookUp() []lookup {
	ctx, cancel := context.WithTimeout(c.ctx, c.g.limits.Resolve)
	defer cancel()
	results := make(chan lookup, 2)
	for _, qtype := range []uint16{dns.TypeAAAA, dns.TypeA} {
		go func() {
			a, err := c.g.cfg.Resolver.Resolve(ctx, c.name, qtype)
			results <- lookup{dns.TypeToString[qtype], a, err}
		}()
	}
	list := []lookup{<-results}
	if len(list[0].answer.Addrs) > 0 {
		defer time.AfterFunc(lookupGrace, cancel).Stop()
	}
	return append(list, <-results)
}

// sift separates the addresses that may be used from those that may not, and returns why the last of these may not.
func (c *conn) sift(p *netpolicy.Policy, addrs []netip.Addr) (good []netip.Addr, bad []string, why netpolicy.Reason) {
	for _, a := range addrs {
		if v := c.decidePeer(p, a); v.Allow {
			good = append(good, a.Unmap())
		} else {
			bad, why = append(bad, a.String()), v.Reason
		}
	}
	return good, bad, why
}

// decidePeer reports whether the connection may go to an address.
func (c *conn) decidePeer(p *netpolicy.Policy, a netip.Addr) netpolicy.Verdict {
	q := c.question()
	q.Addr = a
	v := netpolicy.Decide(p, q)
	if v.Allow && c.g.cfg.Self(a.Unmap()) && !names(v.Rule, a.Unmap()) {
		return netpolicy.Verdict{Rule: v.Rule, Reason: ownAddress}
	}
	return v
}

func names(r *netpolicy.Rule, a netip.Addr) bool {
	for _, n := range r.Addresses {
		if n.Contains(a) {
			return true
		}
	}
	return false
}

// recordLookup records what the host's DNS said, if it was asked or said what may not be used.
func (c *conn) recordLookup(l lookup, current netpolicy.Generation, v netpolicy.Verdict, bad []string, why netpolicy.Reason) error {
	if l.answer.Cached && len(bad) == 0 {
		return nil
	}
	d := &audit.DNS{
		Name: audit.Text(c.name), Type: l.kind, RCode: dns.RcodeToString[l.answer.RCode], TTL: uint32(l.answer.TTL / time.Second),
		Verdict: audit.Allow, Rule: v.RuleName(), Reason: string(why), Dropped: bad, Upstream: l.answer.Server,
		Cached: l.answer.Cached, LatencyNS: int64(l.answer.Latency), Generation: current.Number,
	}
	for _, a := range l.answer.Addrs {
		d.Answers = append(d.Answers, a.String())
	}
	for _, name := range l.answer.Chain {
		d.Chain = append(d.Chain, audit.Text(name))
	}
	if len(bad) > 0 && len(bad) == len(l.answer.Addrs) {
		d.Verdict = audit.Deny
	}
	switch {
	case errors.Is(l.err, context.Canceled):
		return nil // the other kind of address was there first
	case l.err != nil:
		d.RCode, d.Reason = "SERVFAIL", l.err.Error()
	}
	_, err := c.g.post(c.ctx, audit.Event{Kind: audit.KindDNS, DNS: d})
	return err
}

// ordered mixes both kinds of addresses, IPv6 first (RFC 8305, section 4), and
// leaves out those to which the host has no route.
func (c *conn) ordered(six, four []netip.Addr) []netip.AddrPort {
	var list []netip.AddrPort
	for i := range max(len(six), len(four)) {
		for _, kind := range [][]netip.Addr{six, four} {
			if i < len(kind) && len(list) < maxPeers && routed(kind[i]) {
				list = append(list, netip.AddrPortFrom(kind[i], c.dst.Port()))
			}
		}
	}
	return list
}

// routed reports whether the host has a route to an address. Connecting a UDP
// socket asks the kernel that, and sends nothing.
func routed(a netip.Addr) bool {
	s, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 9)))
	if err != nil {
		return false
	}
	s.Close()
	return true
}

// errOver means that the connection ended while something of it was under way.
var errOver = errors.New("the connection has ended")

// enter counts a helper of the connection in, unless that has ended.
func (c *conn) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.helpers.Add(1)
	}
	return !c.over
}

// dial connects to one of the peers: to the next one, beside those before, when a
// while has passed without success or one has failed (RFC 8305, section 5). Once one was
// reached, it is the only one for this connection.
func (c *conn) dial(ctx context.Context) (*peerConn, error) {
	if !c.enter() {
		return nil, errOver
	}
	defer c.helpers.Done()
	ctx, cancel := context.WithTimeout(ctx, c.g.limits.Dial)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	peers := c.candidates()
	type result struct {
		conn *peerConn
		err  error
	}
	results := make(chan result, len(peers))
	var reached *peerConn
	var first error
	for next, pending := 0, 0; next < len(peers) && reached == nil || pending > 0; {
		var more <-chan time.Time
		if next < len(peers) && reached == nil {
			peer, further := peers[next], next > 0
			go func() {
				s, err := c.attempt(ctx, peer, further)
				results <- result{s, err}
			}()
			next, pending = next+1, pending+1
			if next < len(peers) {
				more = time.After(c.g.limits.Fallback)
			}
		}
		select {
		case <-more:
		case r := <-results:
			pending--
			switch {
			case r.err != nil:
				first = cmp.Or(first, r.err)
			case reached != nil:
				r.conn.Close()
			default:
				reached = r.conn
				cancel() // the others
			}
		}
	}
	if reached == nil {
		return nil, cmp.Or(first, errOver)
	}
	return reached, nil
}

func (c *conn) candidates() []netip.AddrPort {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.peer.IsValid() {
		return []netip.AddrPort{c.peer}
	}
	return c.peers
}

// attempt connects to one peer, if the policy still lets it.
func (c *conn) attempt(ctx context.Context, peer netip.AddrPort, further bool) (*peerConn, error) {
	defer c.survive()
	if further {
		if no := c.recordOpen(ctx, peer, "the address before has not answered"); no != nil {
			return nil, no
		}
	}
	if !c.try(peer) {
		return nil, errOver
	}
	defer c.tried(peer)
	var d net.Dialer
	s, err := d.DialContext(ctx, "tcp", peer.String())
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", peer, err)
	}
	return c.adopt(s.(*net.TCPConn), peer)
}

// try puts a peer under the eyes of Recheck, and asks once more: the policy may
// have changed since the name was decided on.
func (c *conn) try(peer netip.AddrPort) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trying[peer] = true
	return !c.over && !c.recheckLocked()
}

func (c *conn) tried(peer netip.AddrPort) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if peer != c.peer {
		delete(c.trying, peer)
	}
}

// adopt makes a socket part of the connection, to end with it.
func (c *conn) adopt(s *net.TCPConn, peer netip.AddrPort) (*peerConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || c.peer.IsValid() && c.peer != peer {
		reset(s)
		return nil, errOver
	}
	c.peer = peer
	c.sockets[s] = true
	return &peerConn{TCPConn: s, of: c}, nil
}

// peerConn is a socket to a peer. Its Close takes it off its connection.
type peerConn struct {
	*net.TCPConn
	of *conn
}

// Close implements net.Conn.
func (p *peerConn) Close() error {
	p.of.mu.Lock()
	delete(p.of.sockets, p.TCPConn)
	p.of.mu.Unlock()
	return p.TCPConn.Close()
}
