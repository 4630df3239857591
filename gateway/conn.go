package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/netpolicy"
)

// conn is one connection of the guest.
//
//	taken -> first bytes -> decided -> resolved -> open (in the record) -> spliced ----> closed
//	   \          \             \          \                          \-> requests --/
//	    \----------\-------------\----------\-> denied                 \-> revoked: reset both sides
type conn struct {
	g        *Gateway
	guest    *net.TCPConn
	src, dst netip.AddrPort
	to       destination
	dnsSeq   uint64
	ctx      context.Context
	began    time.Time
	done     chan struct{} // closed when the end is recorded
	life     *lifetime
}

func newConn(g *Gateway, guest *net.TCPConn) *conn {
	c := &conn{
		g: g, guest: guest, began: time.Now(), done: make(chan struct{}),
		src: endpoint(guest.RemoteAddr()), dst: endpoint(guest.LocalAddr()),
	}
	ctx, cancel := context.WithCancel(g.ctx)
	c.ctx = ctx
	c.life = &lifetime{
		guest: guest, cancel: cancel,
		trying: map[netip.AddrPort]bool{}, requests: map[*netpolicy.Request]bool{}, sockets: map[*net.TCPConn]bool{},
	}
	return c
}

func endpoint(a net.Addr) netip.AddrPort {
	if tcp, ok := a.(*net.TCPAddr); ok {
		ap := tcp.AddrPort()
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	}
	return netip.AddrPort{}
}

// run serves the connection until its end.
func (c *conn) run() {
	defer close(c.done)
	defer c.g.forget(c)
	why := ""
	defer func() {
		c.life.cancel()
		c.life.closeAll()
		c.life.helpers.Wait()
		c.recordEnd(why)
	}()
	defer c.survive()
	why = c.serve()
}

// survive recovers from a panic, which ends only this connection. The record has the place in the code, not the guest's
// bytes.
func (c *conn) survive() {
	if recover() == nil {
		return
	}
	c.life.kill("a bug in the gateway ended the connection")
	ctx, cancel := lastWords(c.ctx)
	defer cancel()
	_, _ = c.g.post(ctx, audit.Event{Kind: audit.KindFinding, Finding: &audit.Finding{ // the connection is closed in any case
		Rule: audit.RuleGatewayPanic, Detail: "a bug in the gateway ended a connection at " + panicSite(),
	}})
}

// panicSite returns the function of this package in which a panic occurred.
func panicSite() string {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		if strings.Contains(f.Function, "/gateway.") {
			return fmt.Sprintf("%s:%d", f.Function[strings.LastIndexByte(f.Function, '/')+1:], f.Line)
		}
		if !more {
			return "an unknown place"
		}
	}
}

// serve returns the reason why the connection ended, if there is a specific one.
func (c *conn) serve() string {
	name, seq, ok := c.g.cfg.Names.Name(c.dst.Addr())
	if !ok {
		c.deny(netpolicy.Default, denied("the resolver has given the guest no name with this address"), "")
		reset(c.guest)
		return ""
	}
	c.to, c.dnsSeq = destination{c.g, name, c.dst.Port()}, seq
	_ = c.guest.SetReadDeadline(time.Now().Add(c.g.limits.Hello)) // a socket without deadlines fails at the read
	first, err := fill(c.guest, nil, 1)
	switch {
	case err != nil:
		c.deny(c.to.verdict().RuleName(), silent(err), "")
		reset(c.guest)
		return ""
	case first[0] == typeHandshake:
		return c.serveTLS(first)
	}
	return c.serveClear(first)
}

// silent returns the reason why a client's first bytes are missing.
func silent(err error) *refusal {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return denied("the client did not send the first bytes in time: neither TLS nor HTTP. " +
			"If the server sends first, the rule needs mode: direct")
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return denied("the client closed the connection within its first bytes")
	}
	return denied("the client's first bytes could not be read")
}

// serveTLS serves a connection that begins with a TLS handshake.
func (c *conn) serveTLS(raw []byte) string {
	h, raw, err := readHello(c.guest, raw)
	_ = c.guest.SetReadDeadline(time.Time{})
	current := c.g.cfg.Live.Current()
	v := netpolicy.Decide(current.Policy, c.to.question())
	opened := v.Rule != nil && v.Rule.HTTP != nil
	no := asRefusal(err, silent)
	if no == nil {
		no = h.check(c.to.name, opened)
	}
	if no == nil && !v.Allow {
		no = denied("%s", v.Reason)
	}
	found := c.to.find(raw, h.name)
	if no == nil && len(found) > 0 {
		no = denied("the secret %s is in the ClientHello, which is not encrypted", found[0])
	}
	if no == nil && opened && !c.g.cfg.Authority.covers(c.to.name) {
		no = denied("the rule opens TLS, and the sandbox's authority does not cover the name: start a new sandbox")
	}
	if no != nil {
		c.deny(v.RuleName(), no, h.name)
		c.presentAll(found, "ClientHello")
		sayAlert(c.guest, no.alert)
		return ""
	}
	no = c.open(current, v, !opened)
	switch {
	case opened:
		return c.serveOpened(raw, no)
	case no != nil:
		sayAlert(c.guest, no.alert)
		return ""
	}
	return c.splice(raw)
}

// serveClear serves HTTP without TLS, or responds with the reason why it is denied.
func (c *conn) serveClear(first []byte) string {
	var no *refusal
	current := c.g.cfg.Live.Current()
	v := netpolicy.Decide(current.Policy, c.to.question())
	switch {
	case !isTokenByte(first[0]) && !bytes.Contains([]byte("\r\n\t "), first): // white space before a request gets an HTTP error
		c.deny(v.RuleName(), denied("the first byte is of neither TLS nor HTTP: give the rule mode: direct"), "")
		reset(c.guest)
		return ""
	case c.dst.Port() == 443:
		no = denied("port 443 accepts only TLS")
		c.deny(v.RuleName(), no, "")
	case !v.Allow:
		no = denied("%s", v.Reason)
		c.deny(v.RuleName(), no, "")
	default:
		no = c.open(current, v, false)
	}
	return c.serveHTTP1(&guestConn{Conn: c.guest, head: first, stall: c.g.limits.Stall}, "http", no)
}

// asRefusal returns err as a refusal; text describes other errors.
func asRefusal(err error, words func(error) *refusal) *refusal {
	if err == nil {
		return nil
	}
	var r *refusal
	if errors.As(err, &r) {
		return r
	}
	return words(err)
}

// recheck decides again, and reports whether the policy has ended the connection.
func (c *conn) recheck() bool {
	c.life.mu.Lock()
	defer c.life.mu.Unlock()
	return c.recheckLocked()
}

func (c *conn) recheckLocked() bool {
	if c.life.over || c.life.id == "" {
		return false // it asks again before it dials
	}
	current := c.g.cfg.Live.Current()
	v := c.stillAllowed(current.Policy)
	if v.Allow {
		return false
	}
	c.life.revoked, c.life.gen = &v, current.Number
	c.life.killLocked(string(v.Reason))
	return true
}

// nowOpened is the reason for which a spliced connection ends when its rule gets an http part.
const nowOpened netpolicy.Reason = "the rule inspects requests now, and this connection was not opened"

// stillAllowed decides on the connection and its requests. The caller holds mu.
func (c *conn) stillAllowed(p *netpolicy.Policy) netpolicy.Verdict {
	v := netpolicy.Decide(p, c.to.question())
	if !v.Allow {
		return v
	}
	if c.life.blind && v.Rule.HTTP != nil {
		return netpolicy.Verdict{Rule: v.Rule, Reason: nowOpened}
	}
	for peer := range c.life.trying {
		if v := c.to.decidePeer(p, peer.Addr()); !v.Allow {
			return v
		}
	}
	for r := range c.life.requests {
		q := c.to.question()
		q.Request = r
		if v := netpolicy.Decide(p, q); !v.Allow {
			return v
		}
	}
	return v
}
