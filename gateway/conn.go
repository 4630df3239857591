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
	"sync"
	"time"

	"golang.org/x/sys/unix"

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
	name     string // that dst stands for
	dnsSeq   uint64
	ctx      context.Context
	cancel   context.CancelFunc
	began    time.Time
	done     chan struct{}  // closed when the end is in the record
	helpers  sync.WaitGroup // dials and requests of HTTP/2

	mu       sync.Mutex // guards what follows
	id       string     // of the flow; empty until it is open
	rule     string     // that opened the flow
	gen      uint32
	shown    uint64           // seq of the event of the opening or the refusal
	peers    []netip.AddrPort // to go to, in order; the first stands in the event of the opening
	peer     netip.AddrPort   // that was reached
	trying   map[netip.AddrPort]bool
	blind    bool // spliced: no one sees what is inside
	requests map[*netpolicy.Request]bool
	sockets  map[*net.TCPConn]bool // to peers
	over     bool                  // from here on no socket is added
	ended    string                // why the gateway ended it; empty: it did not
	revoked  *netpolicy.Verdict    // why the policy ended it
}

func newConn(g *Gateway, guest *net.TCPConn) *conn {
	c := &conn{
		g: g, guest: guest, began: time.Now(), done: make(chan struct{}),
		src: endpoint(guest.RemoteAddr()), dst: endpoint(guest.LocalAddr()),
		trying: map[netip.AddrPort]bool{}, requests: map[*netpolicy.Request]bool{}, sockets: map[*net.TCPConn]bool{},
	}
	c.ctx, c.cancel = context.WithCancel(g.ctx)
	return c
}

func endpoint(a net.Addr) netip.AddrPort {
	if tcp, ok := a.(*net.TCPAddr); ok {
		ap := tcp.AddrPort()
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	}
	return netip.AddrPort{}
}

// run serves the connection to its end.
func (c *conn) run() {
	defer close(c.done)
	defer c.g.forget(c)
	why := ""
	defer func() {
		c.cancel()
		c.closeAll()
		c.helpers.Wait()
		c.recordEnd(why)
	}()
	defer c.survive()
	why = c.serve()
}

// survive keeps a panic from ending more than this connection. The record has the place in the code, not the guest's
// bytes.
func (c *conn) survive() {
	if recover() == nil {
		return
	}
	c.kill("a mistake in the gateway ended the connection")
	ctx, cancel := lastWords(c.ctx)
	defer cancel()
	_, _ = c.g.post(ctx, audit.Event{Kind: audit.KindFinding, Finding: &audit.Finding{ // the connection is closed in any case
		Rule: audit.RuleGatewayPanic, Detail: "a mistake in the gateway ended a connection at " + panicSite(),
	}})
}

// panicSite is the function of this package that a panic went through first.
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

// serve returns why the connection ended, where there is more to say than that it did.
func (c *conn) serve() string {
	name, seq, ok := c.g.cfg.Names.Name(c.dst.Addr())
	if !ok {
		c.deny(netpolicy.Default, denied("the address stands for no name that the resolver gave the guest"), "")
		c.abort()
		return ""
	}
	c.name, c.dnsSeq = name, seq
	_ = c.guest.SetReadDeadline(time.Now().Add(c.g.limits.Hello)) // a socket that takes none fails at the read
	first, err := fill(c.guest, nil, 1)
	switch {
	case err != nil:
		c.deny(c.verdict().RuleName(), silent(err), "")
		c.abort()
		return ""
	case first[0] == typeHandshake:
		return c.serveTLS(first)
	}
	return c.serveClear(first)
}

// silent returns the reason if a client's first bytes did not come.
func silent(err error) *refusal {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return denied("the client did not send the first bytes in time: neither TLS nor HTTP. " +
			"Where the server speaks first the rule needs mode: direct")
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return denied("the client ended before its first bytes were whole")
	}
	return denied("the client's first bytes could not be read")
}

// question is what is asked about the connection as a whole.
func (c *conn) question() netpolicy.Question {
	return netpolicy.Question{Name: c.name, Port: netpolicy.Port{Proto: "tcp", Number: c.dst.Port()}, Via: netpolicy.Gateway}
}

func (c *conn) verdict() netpolicy.Verdict {
	return netpolicy.Decide(c.g.cfg.Live.Current().Policy, c.question())
}

// serveTLS serves a connection that begins with a TLS handshake.
func (c *conn) serveTLS(raw []byte) string {
	h, raw, err := readHello(c.guest, raw)
	_ = c.guest.SetReadDeadline(time.Time{})
	current := c.g.cfg.Live.Current()
	v := netpolicy.Decide(current.Policy, c.question())
	opened := v.Rule != nil && v.Rule.HTTP != nil
	no := asRefusal(err, silent)
	if no == nil {
		no = h.check(c.name, opened)
	}
	if no == nil && !v.Allow {
		no = denied("%s", v.Reason)
	}
	found := c.find(raw, h.name)
	if no == nil && len(found) > 0 {
		no = denied("the secret %s stands in the ClientHello, which anyone can read", found[0])
	}
	if no == nil && opened && !c.g.cfg.Authority.covers(c.name) {
		no = denied("the rule opens TLS, and the sandbox's authority does not cover the name: start a new sandbox")
	}
	if no != nil {
		c.deny(v.RuleName(), no, h.name)
		c.presentAll(found, "ClientHello")
		c.sayAlert(no.alert)
		return ""
	}
	no = c.open(current, v, !opened)
	switch {
	case opened:
		return c.serveOpened(raw, no)
	case no != nil:
		c.sayAlert(no.alert)
		return ""
	}
	return c.splice(raw)
}

// serveClear serves HTTP without TLS, or says in HTTP why it does not.
func (c *conn) serveClear(first []byte) string {
	var no *refusal
	current := c.g.cfg.Live.Current()
	v := netpolicy.Decide(current.Policy, c.question())
	switch {
	case !isTokenByte(first[0]) && !bytes.Contains([]byte("\r\n\t "), first): // white space before a request gets an HTTP error
		c.deny(v.RuleName(), denied("the first byte is of neither TLS nor HTTP: give the rule mode: direct"), "")
		c.abort()
		return ""
	case c.dst.Port() == 443:
		no = denied("port 443 takes TLS only")
		c.deny(v.RuleName(), no, "")
	case !v.Allow:
		no = denied("%s", v.Reason)
		c.deny(v.RuleName(), no, "")
	default:
		no = c.open(current, v, false)
	}
	return c.serveHTTP1(&guestConn{Conn: c.guest, head: first, stall: c.g.limits.Stall}, "http", no)
}

// asRefusal returns err as a refusal; other errors are put into words.
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

// sayAlert ends the connection with a TLS alert, and waits a little for the guest to
// have read it: a reset would overtake it.
func (c *conn) sayAlert(a alert) {
	_ = c.guest.SetDeadline(time.Now().Add(time.Second))
	_, _ = c.guest.Write(a.record()) // the refusal is in the record; telling it is a courtesy
	c.linger()
}

// linger ends our side and drops what the guest still sends, for a second and
// a quarter of a MiB at most, so that it can read our last words.
func (c *conn) linger() {
	_ = c.guest.SetReadDeadline(time.Now().Add(time.Second))
	if c.guest.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(c.guest, 256<<10))
	}
}

// abort ends the connection with RST.
func (c *conn) abort() { reset(c.guest) }

// kill ends the connection with RST on all sides, from any goroutine.
func (c *conn) kill(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.killLocked(why)
}

func (c *conn) killLocked(why string) {
	if c.over {
		return
	}
	c.over, c.ended = true, why
	c.cancel()
	reset(c.guest)
	for s := range c.sockets {
		reset(s)
	}
}

// wasEnded reports whether the gateway itself ended the connection.
func (c *conn) wasEnded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended != ""
}

func (c *conn) closeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.guest.Close()
	for s := range c.sockets {
		s.Close()
	}
}

// recheck decides again and reports whether the policy ended the connection now.
func (c *conn) recheck() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.recheckLocked()
}

func (c *conn) recheckLocked() bool {
	if c.over || c.id == "" {
		return false // one that is not open yet asks again before it dials
	}
	current := c.g.cfg.Live.Current()
	v := c.stillAllowed(current.Policy)
	if v.Allow {
		return false
	}
	c.revoked, c.gen = &v, current.Number
	c.killLocked(string(v.Reason))
	return true
}

// nowOpened is why a spliced connection ends when its rule gets an http part.
const nowOpened netpolicy.Reason = "the rule looks at requests now, and this connection was not opened"

// stillAllowed asks about all that the connection does. The caller holds mu.
func (c *conn) stillAllowed(p *netpolicy.Policy) netpolicy.Verdict {
	v := netpolicy.Decide(p, c.question())
	if !v.Allow {
		return v
	}
	if c.blind && v.Rule.HTTP != nil {
		return netpolicy.Verdict{Rule: v.Rule, Reason: nowOpened}
	}
	for peer := range c.trying {
		if v := c.decidePeer(p, peer.Addr()); !v.Allow {
			return v
		}
	}
	for r := range c.requests {
		q := c.question()
		q.Request = r
		if v := netpolicy.Decide(p, q); !v.Allow {
			return v
		}
	}
	return v
}

// idle returns for how long no byte has moved, as the kernel counts it.
func (c *conn) idle() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	quiet := quietFor(c.guest)
	for s := range c.sockets {
		quiet = min(quiet, quietFor(s))
	}
	return quiet
}

func quietFor(t *net.TCPConn) time.Duration {
	info, ok := tcpInfo(t)
	if !ok {
		return 0 // a socket that is closed is not idle
	}
	return time.Duration(min(info.Last_data_recv, info.Last_data_sent)) * time.Millisecond
}

// tcpClosed is TCP_CLOSE of linux/tcp_states.h.
const tcpClosed = 7

func tcpState(t *net.TCPConn) uint8 {
	info, ok := tcpInfo(t)
	if !ok {
		return tcpClosed
	}
	return info.State
}

// tcpInfo asks the kernel about a socket; it is not ok if that is closed here.
func tcpInfo(t *net.TCPConn) (info *unix.TCPInfo, ok bool) {
	raw, err := t.SyscallConn()
	if err != nil {
		return nil, false
	}
	failed := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	return info, failed == nil && err == nil
}
