package gateway

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync"

	"golang.org/x/net/http2"

	"github.com/custody-project/custody/audit"
)

// hostConn is an HTTP/1 connection to a host, with or without TLS. net/http reads from it, and receives only bytes that
// belong to a response: it would write others to the program's log, and could parse them as the response to the next
// request. Such bytes end the connection.
type hostConn struct {
	net.Conn
	of *conn

	mu         sync.Mutex // guards the fields below
	ends       ends
	credential string // the last one that was sent on the connection; empty: none
	over       bool
}

// due records that the next bytes are the response to a request with this credential, or without one.
func (h *hostConn) due(method, credential string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ends.expect(method)
	h.credential = cmp.Or(credential, h.credential)
}

// Read implements net.Conn.
func (h *hostConn) Read(p []byte) (int, error) {
	h.mu.Lock()
	over := h.over
	h.mu.Unlock()
	if over {
		return 0, io.EOF
	}
	n, err := h.Conn.Read(p)
	own, credential := h.part(p[:n])
	if own == n {
		return n, err
	}
	if h.of.surplus(p[:n], own, credential) {
		return 0, errEchoed
	}
	if own == 0 {
		return 0, io.EOF
	}
	return own, nil
}

// part returns how many bytes of p belong to a response. If there are others, the connection has ended.
func (h *hostConn) part(p []byte) (own int, credential string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	own = h.ends.take(p)
	h.over = h.over || own < len(p)
	return own, h.credential
}

// Write implements net.Conn.
func (h *hostConn) Write(p []byte) (int, error) {
	h.mu.Lock()
	over := h.over
	h.mu.Unlock()
	if over {
		return 0, errOver
	}
	return h.Conn.Write(p)
}

// errEchoed means that a response ends within the value of a secret.
var errEchoed = errors.New("the host's answer ends within the value of a secret")

// surplus records that a host to which a credential was sent has sent more than its response: p, of which the first own
// bytes belong to the response. It returns true if the end of the response must not be passed on, because a value
// continues beyond it and would not be masked.
func (c *conn) surplus(p []byte, own int, credential string) (cut bool) {
	if credential == "" || own == 0 && isTimeout(p) {
		return false
	}
	defer c.survive()
	keys := c.g.cfg.Credentials
	found := keys.Find(p[own:])
	if len(found) == 0 {
		before := keys.Find(p[:own])
		found = slices.DeleteFunc(keys.Find(p), func(name string) bool { return slices.Contains(before, name) })
		cut = len(found) > 0
	}
	ctx, cancel := lastWords(c.ctx)
	defer cancel()
	c.life.mu.Lock()
	seq := c.life.shown
	c.life.mu.Unlock()
	for _, name := range found {
		keys.Echoed(name, c.to.name, seq)
	}
	if len(found) == 0 {
		_, _ = c.g.post(ctx, audit.Event{Kind: audit.KindFinding, Finding: &audit.Finding{ // the connection is closed in any case
			Rule: audit.RuleAnswerOverrun, Secret: credential, Seq: seq,
			Detail: c.to.name + " sent more than its answer on a connection that had carried a credential; it was dropped",
		}})
	}
	return cut
}

// isTimeout reports whether an unsolicited response is a 408 for an idle connection, which some servers send.
func isTimeout(p []byte) bool {
	return len(p) >= 12 && bytes.HasPrefix(p, []byte("HTTP/1.")) && string(p[8:12]) == " 408"
}

// dialHost connects to the host for a request without TLS.
func (x *exchanger) dialHost(ctx context.Context, _, _ string) (net.Conn, error) {
	s, err := x.conn.dial(ctx)
	if err != nil {
		return nil, err
	}
	return &hostConn{Conn: s, of: x.conn}, nil
}

// dialTLS connects to the host with TLS.
func (x *exchanger) dialTLS(ctx context.Context, _, _ string) (net.Conn, error) {
	s, err := x.conn.dial(ctx)
	if err != nil {
		return nil, err
	}
	t := tls.Client(s, &tls.Config{
		RootCAs: x.conn.g.cfg.Roots, ServerName: x.conn.to.name, MinVersion: tls.VersionTLS12, NextProtos: x.protocols,
	})
	ctx, cancel := context.WithTimeout(ctx, x.conn.g.limits.Dial)
	defer cancel()
	if err := t.HandshakeContext(ctx); err != nil {
		s.Close()
		return nil, err
	}
	if t.ConnectionState().NegotiatedProtocol == http2.NextProtoTLS {
		return t, nil // its frames name their streams
	}
	return &hostConn{Conn: t, of: x.conn}, nil
}

// announced registers the response to a request at the connection that sends the request.
func (f *flight) announced(out *http.Request) *http.Request {
	return out.WithContext(httptrace.WithClientTrace(f.ctx, &httptrace.ClientTrace{
		GotConn: func(got httptrace.GotConnInfo) {
			if h, ok := got.Conn.(*hostConn); ok {
				h.due(out.Method, f.ev.Credential)
			}
		},
	}))
}
