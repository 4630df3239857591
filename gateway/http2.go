//lint:file-ignore SA1019 net/http serves listeners only, and this serves connections that are decrypted already

package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/net/http2"

	"github.com/custody-project/custody/audit"
)

// serveOpened serves a connection whose TLS the gateway terminates. hello is what the guest has sent; no, if not nil, is
// the response to every request.
func (c *conn) serveOpened(hello []byte, no *refusal) string {
	guest := &guestConn{Conn: c.guest, head: hello, stall: c.g.limits.Stall}
	t := tls.Server(guest, c.g.cfg.Authority.config(c.to.name))
	if err := c.shakeHands(t, guest); err != nil {
		return unshaken(err)
	}
	h2 := t.ConnectionState().NegotiatedProtocol == http2.NextProtoTLS
	x := newExchanger(c, "https", h2)
	defer x.close()
	if h2 {
		x.serveHTTP2(t, no)
		return ""
	}
	return (&http1{exchanger: x, guest: guest, stream: t, no: no}).serve()
}

// shakeHands does the TLS handshake. The gateway's part waits for a slot, in order of arrival. The guest's part can take
// long when many of its programs connect, and is limited only by the timeout of a silent connection.
func (c *conn) shakeHands(t *tls.Conn, guest *guestConn) error {
	select {
	case c.g.turns <- struct{}{}:
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
	guest.waits = sync.OnceFunc(func() { <-c.g.turns })
	defer guest.waits()
	return t.HandshakeContext(c.ctx)
}

// unshaken returns why a handshake failed.
func unshaken(err error) string {
	const way = "the TLS handshake with the guest failed: "
	op := new(net.OpError)
	switch {
	case errors.As(err, &op) && op.Op == "remote error":
		said := strings.TrimPrefix(op.Err.Error(), "tls: ")
		if strings.Contains(said, "certificate") {
			return way + "it does not accept the gateway's certificate (" + said + "): does its program trust the sandbox's authority?"
		}
		return way + "its program aborted it (" + said + ")"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return way + "its program closed the connection without an alert"
	}
	return way + err.Error()
}

// maxStreamHead bounds the fields of an HTTP/2 request, in bytes.
const maxStreamHead = maxHead

// serveHTTP2 serves HTTP/2 (RFC 9113). golang.org/x/net/http2 checks frames, pseudo-header fields (section 8.3),
// connection fields and the body's length; all policy checks are made here.
func (x *exchanger) serveHTTP2(t *tls.Conn, no *refusal) {
	limits := x.conn.g.limits
	quiet := log.New(io.Discard, "", 0) // its messages are in the record, or contain data of the guest
	server := &http2.Server{
		MaxConcurrentStreams: uint32(limits.Requests),
		IdleTimeout:          limits.KeepAlive,
		WriteByteTimeout:     limits.Stall,
		MaxReadFrameSize:     16 << 10,
		CountError:           x.malformedStream,
	}
	server.ServeConn(t, &http2.ServeConnOpts{
		Context:    x.conn.ctx,
		BaseConfig: &http.Server{MaxHeaderBytes: maxStreamHead, ErrorLog: quiet},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !x.conn.life.enter() {
				panic(http.ErrAbortHandler)
			}
			defer x.conn.life.helpers.Done()
			if err := x.stream(w, r, no); err != nil {
				panic(http.ErrAbortHandler) // resets the stream: the response is incomplete
			}
		}),
	})
}

// malformedStream records a request that the library has rejected; the library reports only the reason.
func (x *exchanger) malformedStream(kind string) {
	_, what, ok := strings.Cut(kind, "PROTOCOL_ERROR")
	if !ok {
		return
	}
	ev := x.event(&ask{proto: "HTTP/2.0"})
	ev.Verdict, ev.Rule, ev.Generation = audit.Deny, x.conn.to.verdict().RuleName(), x.conn.g.cfg.Live.Current().Number
	ev.Reason = "not proper HTTP/2:" + strings.ReplaceAll(what, "_", " ")
	_, _ = x.conn.g.post(x.conn.ctx, audit.Event{Kind: audit.KindHTTP, HTTP: ev}) // it is rejected in any case
}

// stream serves one HTTP/2 request.
func (x *exchanger) stream(w http.ResponseWriter, r *http.Request, no *refusal) error {
	defer x.conn.survive()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(x.conn.ctx, cancel)()
	if no == nil {
		no = vetStream(r)
	}
	hosts := r.Header["Host"]
	if no == nil && slices.ContainsFunc(hosts, func(h string) bool { return !x.isHost(h) }) {
		no = misnamed("the request's Host is not the destination's name")
	}
	delete(r.Header, "Host")
	delete(r.Header, "Content-Length") // it is in the request's field
	return x.exchange(ctx, w, &ask{
		proto: r.Proto, method: r.Method, target: r.RequestURI, host: r.Host, header: r.Header,
		length: r.ContentLength, body: &streamed{ReadCloser: r.Body}, no: no, trailer: true,
	})
}

// vetStream checks what is specific to HTTP/2.
func vetStream(r *http.Request) *refusal {
	lengths := r.Header["Content-Length"]
	switch {
	case r.TLS == nil:
		return malformed("the request's :scheme is not https")
	case len(r.Header[":protocol"]) > 0:
		return denied("a change of the protocol (:protocol) inside of HTTP is not carried")
	case len(r.Header["Host"]) > 1:
		return malformed("the request has more than one Host")
	case len(lengths) > 1:
		return malformed("the request has more than one Content-Length")
	}
	if len(lengths) == 1 {
		if n, ok := contentLength(lengths[0]); !ok || lengths[0] == "" || n != r.ContentLength {
			return malformed("the request's Content-Length is not the length of its body")
		}
	}
	return nil
}
