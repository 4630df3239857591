package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/custody-project/custody/netpolicy"
)

// open resolves the name, and returns when the flow to the first address is durable in the record. It does not dial.
func (c *conn) open(current netpolicy.Generation, v netpolicy.Verdict, blind bool) *refusal {
	if found := c.to.find(nil, c.to.name); len(found) > 0 { // a DNS query for it would reveal it
		no := denied("the secret %s is in the destination's name", found[0])
		c.deny(v.RuleName(), no, "")
		c.presentAll(found, "the destination's name")
		return no
	}
	peers, no := resolution{c.to, current, v}.peers(c.ctx)
	if no != nil {
		c.deny(v.RuleName(), no, "")
		return no
	}
	c.life.mu.Lock()
	c.life.id, c.life.rule, c.life.gen = c.g.cfg.NextID(), v.RuleName(), current.Number
	c.life.peers, c.life.blind = peers, blind
	c.life.mu.Unlock()
	if no := c.recordOpen(c.ctx, peers[0], ""); no != nil {
		c.life.mu.Lock()
		c.life.id = "" // a flow without a recorded opening has no recorded end
		c.life.mu.Unlock()
		return no
	}
	return nil
}

// errOver means that the connection ended during an operation.
var errOver = errors.New("the connection has ended")

// dial connects to one of the peers. It tries the next one concurrently if the earlier ones fail or take too long (RFC
// 8305, section 5). Once a peer was reached, it is the only one for this connection.
func (c *conn) dial(ctx context.Context) (*peerConn, error) {
	if !c.life.enter() {
		return nil, errOver
	}
	defer c.life.helpers.Done()
	ctx, cancel := context.WithTimeout(ctx, c.g.limits.Dial)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	peers := c.life.candidates()
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

// attempt connects to one peer, if the policy still allows it.
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
	defer c.life.tried(peer)
	var d net.Dialer
	s, err := d.DialContext(ctx, "tcp", peer.String())
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", peer, err)
	}
	return c.life.adopt(s.(*net.TCPConn), peer)
}

// try registers a peer for Recheck and decides again, because the policy may have changed since the name was decided on.
func (c *conn) try(peer netip.AddrPort) bool {
	c.life.mu.Lock()
	defer c.life.mu.Unlock()
	c.life.trying[peer] = true
	return !c.life.over && !c.recheckLocked()
}

// peerConn is a socket to a peer. Close removes it from its connection.
type peerConn struct {
	*net.TCPConn
	of *lifetime
}

// Close implements net.Conn.
func (p *peerConn) Close() error {
	p.of.mu.Lock()
	delete(p.of.sockets, p.TCPConn)
	p.of.mu.Unlock()
	return p.TCPConn.Close()
}
