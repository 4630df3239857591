package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"

	"golang.org/x/net/http2"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/netpolicy"
)

// maxAnswerHead bounds the head of a host's response, in bytes.
const maxAnswerHead = 256 << 10

// maxUnread bounds the buffered part of an HTTP/2 response that the guest does not read, in bytes.
const maxUnread = 512 << 10

// exchanger sends the requests of one connection, which all have the same host.
type exchanger struct {
	conn      *conn
	scheme    string   // http or https
	authority string   // the name, with the port unless it is the scheme's default
	protocols []string // of TLS, from which the host may choose
	peer      *http.Transport
}

func newExchanger(c *conn, scheme string, h2 bool) *exchanger {
	x := &exchanger{conn: c, scheme: scheme, authority: c.to.name}
	if port := c.dst.Port(); scheme == "http" && port != 80 || scheme == "https" && port != 443 {
		x.authority += ":" + strconv.Itoa(int(port))
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(h2) // an HTTP/1 request stays one: no translation
	if x.protocols = []string{"http/1.1"}; h2 {
		x.protocols = []string{http2.NextProtoTLS, "http/1.1"}
	}
	x.peer = &http.Transport{
		DialContext:            x.dialHost,
		DialTLSContext:         x.dialTLS,
		Protocols:              protocols,
		ResponseHeaderTimeout:  c.g.limits.Answer,
		IdleConnTimeout:        c.g.limits.KeepAlive,
		MaxConnsPerHost:        c.g.limits.Requests,
		MaxResponseHeaderBytes: maxAnswerHead,
		HTTP2:                  &http.HTTP2Config{MaxReceiveBufferPerStream: maxUnread},
		DisableCompression:     true,
	}
	return x
}

func (x *exchanger) close() { x.peer.CloseIdleConnections() }

// exchange sends one request, passes its response on, and records it. After an error the response is incomplete, and the
// guest must be able to detect that.
func (x *exchanger) exchange(ctx context.Context, w http.ResponseWriter, q *ask) error {
	f := x.newFlight(ctx, w, q)
	defer f.stop(nil)
	defer x.conn.g.asking.Add(-1)
	if n := x.conn.g.asking.Add(1); n > int64(x.conn.g.limits.Exchanges) && q.no == nil {
		q.no = &refusal{http.StatusServiceUnavailable, alertInternalError, fmt.Sprintf("the sandbox has %d concurrent requests, its limit", n-1)}
	}
	u, no := x.vet(q)
	if no != nil {
		_ = f.scope.head(q) // for the report; the request is denied in any case
		return x.refuse(w, q, x.conn.to.verdict(), no)
	}
	req := &netpolicy.Request{Method: q.method, Path: u.RawPath}
	current, v := x.conn.hold(req)
	defer x.conn.life.release(req)
	if no := cmp.Or(x.decide(v, q, u), f.scope.head(q)); no != nil {
		return x.refuse(w, q, v, no)
	}
	f.ev.Verdict, f.ev.Rule, f.ev.Generation = audit.Allow, v.RuleName(), current.Number
	return f.carryOut(v.Rule, u)
}

var errSwitched = errors.New("the host changed the protocol without a request")

// hold registers a request for Recheck and decides on it.
func (c *conn) hold(req *netpolicy.Request) (netpolicy.Generation, netpolicy.Verdict) {
	c.life.mu.Lock()
	c.life.requests[req] = true
	c.life.mu.Unlock()
	current := c.g.cfg.Live.Current()
	q := c.to.question()
	q.Request = req
	return current, netpolicy.Decide(current.Policy, q)
}

func (x *exchanger) decide(v netpolicy.Verdict, q *ask, u *url.URL) *refusal {
	if !v.Allow {
		return denied("%s", v.Reason)
	}
	return x.overrides(v.Rule, q, u.RawPath, u.RawQuery)
}

// explain returns why no response arrived, in words that do not depend on the guest's data.
func explain(err error, name string) *refusal {
	var cert *tls.CertificateVerificationError
	var no *refusal
	switch {
	case errors.As(err, &no):
		return no
	case errors.As(err, &cert):
		return failed("the certificate of %s is not valid: %v", name, cert.Err)
	case errors.Is(err, errSwitched):
		return failed("%s changed the protocol without a request", name)
	case errors.Is(err, errEchoed):
		return failed("%v: it is withheld", errEchoed)
	case timedOut(err):
		return &refusal{http.StatusGatewayTimeout, alertInternalError, name + " did not answer in time"}
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return failed("%s", unreached(err))
	}
	return failed("%s closed the connection or violated TLS or HTTP", name)
}

// refuse records that a request is denied, and responds with the reason.
func (x *exchanger) refuse(w http.ResponseWriter, q *ask, v netpolicy.Verdict, no *refusal) error {
	ev := x.event(q)
	ev.Verdict, ev.Rule, ev.Reason, ev.Status = audit.Deny, v.RuleName(), no.reason, no.status
	ev.Generation = x.conn.g.cfg.Live.Current().Number
	seq, _ := x.conn.g.record(x.conn.ctx, audit.Event{Kind: audit.KindHTTP, HTTP: ev}) // denied in any case
	return x.reply(w, no, v.RuleName(), seq)
}

// reply sends a response with all that a developer needs to find the refusal in the record.
func (x *exchanger) reply(w http.ResponseWriter, no *refusal, rule string, seq uint64) error {
	reason := no.reason
	if red := x.conn.g.cfg.Redactor; red != nil { // the reason can contain data of a host, such as its certificate
		reason = masked(red, reason)
	}
	b, err := json.Marshal(struct {
		Error  string `json:"error"`
		Reason string `json:"reason"`
		Rule   string `json:"rule"`
		Run    string `json:"run"`
		Seq    uint64 `json:"seq"`
	}{no.word(), reason, rule, x.conn.g.cfg.Run, seq})
	if err != nil {
		return err
	}
	b = append(b, '\n')
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(no.status)
	_, err = w.Write(b)
	return err
}

func (x *exchanger) event(q *ask) *audit.HTTP {
	x.conn.life.mu.Lock()
	defer x.conn.life.mu.Unlock()
	return &audit.HTTP{Flow: x.conn.life.id, Proto: q.proto, Method: audit.Text(q.method), Host: audit.Text(q.host), Path: audit.Text(q.target)}
}

// contents is a request's body.
type contents interface {
	io.ReadCloser
	take()          // called before the transport reads it
	sent() int64    // bytes so far
	ended() bool    // another request can follow on the connection
	flaw() *refusal // the reason if the guest's body is incomplete
}

func (b *body) take()       { b.taken.Store(true) }
func (b *body) sent() int64 { return b.read.Load() }
func (b *body) ended() bool { return b.whole.Load() }

func (b *body) flaw() *refusal { return b.flawed.Load() }

// streamed is the body of an HTTP/2 request.
type streamed struct {
	io.ReadCloser
	n atomic.Int64
}

// Read implements io.Reader.
func (s *streamed) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	s.n.Add(int64(n))
	return n, err
}

func (s *streamed) take()       {}
func (s *streamed) sent() int64 { return s.n.Load() }
func (s *streamed) ended() bool { return true }

func (s *streamed) flaw() *refusal { return nil } // the library has reported it, see malformedStream
