//lint:file-ignore SA1019 net/http serves listeners only, and this serves connections that are decrypted already

package simnet

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// Hello is in every response of the network's web servers, and in no other.
const Hello = "hello from the simulated internet"

// WebPorts are the TCP ports on which the web servers listen, 443 and 8443 with TLS.
var WebPorts = []uint16{80, 443, 8443}

// web is the network's web servers: one handler, which serves every name.
type web struct {
	log   *log
	model http.Handler // serves LLM
	cert  tls.Certificate
	repo  http.Handler
	plain *http.Server // HTTP/1.1, inside TLS or not
	two   *http2.Server
	queue chan net.Conn // connections for plain
	done  chan struct{} // closed by Close

	mu    sync.Mutex // guards open
	open  map[net.Conn]bool
	ended bool
}

// serveWeb starts the web servers.
func (n *Network) serveWeb() error {
	s := &web{log: &n.log, model: n.model, cert: n.ca.site, repo: repository(), two: &http2.Server{}, queue: make(chan net.Conn), done: make(chan struct{}), open: map[net.Conn]bool{}}
	s.plain = &http.Server{Handler: s, ConnContext: func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, talkKey{}, c)
	}}
	var listeners []net.Listener
	err := n.spaces.world.do(func() error {
		for _, port := range WebPorts {
			l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
			if err != nil {
				return err
			}
			listeners = append(listeners, l)
		}
		return nil
	})
	for i, l := range listeners {
		n.services.run(l, func() { s.accept(l, WebPorts[i] != 80) })
	}
	if err != nil {
		return fmt.Errorf("web servers: %w", err)
	}
	n.services.run(s, func() { s.plain.Serve(queueListener{s}) })
	return nil
}

// Close ends all connections.
func (s *web) Close() error {
	s.mu.Lock()
	s.ended = true
	for c := range s.open {
		c.Close()
	}
	s.mu.Unlock()
	close(s.done)
	return s.plain.Close()
}

// accept accepts connections until the listener is closed.
func (s *web) accept(l net.Listener, secret bool) {
	var talks sync.WaitGroup
	defer talks.Wait()
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		talks.Go(func() { s.talk(c, secret) })
	}
}

// talk terminates the TLS of a connection and passes it to the server of its protocol.
func (s *web) talk(raw net.Conn, secret bool) {
	t := &talk{Conn: raw, web: s, began: time.Now()}
	if !s.track(t) {
		raw.Close()
		return
	}
	defer t.keep(s.log)
	if secret {
		c := tls.Server(raw, &tls.Config{
			Certificates: []tls.Certificate{s.cert}, NextProtos: []string{"h2", "http/1.1"},
			GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
				t.sni = h.ServerName
				t.keep(s.log) // now, because the client may send nothing more
				return nil, nil
			},
		})
		c.SetDeadline(time.Now().Add(5 * time.Minute)) // many clients in a slow VM need long
		if err := c.Handshake(); err != nil {
			t.Close()
			return
		}
		c.SetDeadline(time.Time{})
		t.Conn = c
		if c.ConnectionState().NegotiatedProtocol == "h2" {
			s.two.ServeConn(t, &http2.ServeConnOpts{
				Context: context.WithValue(context.Background(), talkKey{}, t), BaseConfig: s.plain, Handler: s,
			})
			t.Close()
			return
		}
	}
	t.closed = make(chan struct{})
	select {
	case s.queue <- t:
		<-t.closed // the server closes it
	case <-s.done:
		t.Close()
	}
}

func (s *web) track(t *talk) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.open[t] = true
	}
	return !s.ended
}

// queueListener returns to plain the connections that talk has prepared.
type queueListener struct{ *web }

func (q queueListener) Accept() (net.Conn, error) {
	select {
	case c := <-q.queue:
		return c, nil
	case <-q.done:
		return nil, net.ErrClosed
	}
}

func (q queueListener) Close() error   { return nil }
func (q queueListener) Addr() net.Addr { return &net.TCPAddr{} }

type talkKey struct{}

// talk is a connection that records the bytes that its client sent.
type talk struct {
	net.Conn
	web    *web
	sni    string
	began  time.Time
	once   sync.Once
	closed chan struct{} // nil for HTTP/2

	mu   sync.Mutex // guards said
	said []byte
}

// heardLimit bounds the recorded bytes of a connection.
const heardLimit = 64 << 10

func (t *talk) Read(b []byte) (int, error) {
	n, err := t.Conn.Read(b)
	t.mu.Lock()
	t.said = append(t.said, b[:min(n, max(0, heardLimit-len(t.said)))]...)
	t.mu.Unlock()
	return n, err
}

func (t *talk) Close() error {
	err := t.Conn.Close()
	t.once.Do(func() {
		t.web.mu.Lock()
		delete(t.web.open, t)
		t.web.mu.Unlock()
		if t.closed != nil {
			close(t.closed)
		}
	})
	return err
}

// keep logs what the client has sent so far.
func (t *talk) keep(l *log) {
	t.mu.Lock()
	said := t.said
	t.mu.Unlock()
	add(l, &l.talks, Talk{Time: t.began, SNI: t.sni, Src: addrOf(t.RemoteAddr()), Dst: addrOf(t.LocalAddr()), Said: said})
}

func addrOf(a net.Addr) netip.AddrPort {
	p, _ := netip.ParseAddrPort(a.String())
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}

// ServeHTTP serves every name of the network.
//
//	/repo.git/...        a git repository
//	/big                 bytes without end, 16 KiB every 2 ms
//	/swallow             Hello, after the whole request
//	.../drip             bytes without end, Hello every 20 ms
//	.../redirect?to=URL  a redirect to URL
//	.../reflect?as=HOW   the value of the request's KeyHeader; see reflect
//	anything else        Hello, host and path
//
// At LLM it serves the LLM API instead.
func (s *web) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	s.note(r)
	switch {
	case r.Host == LLM && sni(r) == LLM:
		s.model.ServeHTTP(rw, r)
	case strings.HasPrefix(r.URL.Path, "/repo.git/"):
		http.StripPrefix("/repo.git", s.repo).ServeHTTP(rw, r)
	case r.URL.Path == "/big":
		s.endless(rw, r, slices.Repeat([]byte("abundance "), 1638), 2*time.Millisecond)
	case r.URL.Path == "/swallow":
		io.Copy(io.Discard, r.Body)
		fmt.Fprintln(rw, Hello)
	case strings.HasSuffix(r.URL.Path, "/drip"):
		s.endless(rw, r, []byte(Hello+"\n"), 20*time.Millisecond)
	case strings.HasSuffix(r.URL.Path, "/reflect"):
		s.reflect(rw, r)
	case strings.HasSuffix(r.URL.Path, "/redirect"):
		http.Redirect(rw, r, r.URL.Query().Get("to"), http.StatusFound)
	default:
		fmt.Fprintf(rw, "%s: %s %s\n", Hello, r.Host, r.RequestURI)
	}
}

// sni returns the TLS server name of a request's connection, "" in cleartext.
func sni(r *http.Request) string {
	if t, ok := r.Context().Value(talkKey{}).(*talk); ok {
		return t.sni
	}
	return ""
}

func (s *web) note(r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 4096))
	r.Body = struct { // the handler reads the whole body
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), r.Body), r.Body}
	req := Request{
		Time: time.Now(), Proto: r.Proto, Method: r.Method, Host: r.Host, URI: r.RequestURI, Header: r.Header.Clone(), Body: string(body),
	}
	if t, ok := r.Context().Value(talkKey{}).(*talk); ok {
		req.SNI, req.Src, req.Dst = t.sni, addrOf(t.RemoteAddr()), addrOf(t.LocalAddr())
	}
	add(s.log, &s.log.requests, req)
}

func (s *web) endless(rw http.ResponseWriter, r *http.Request, block []byte, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if _, err := rw.Write(block); err != nil {
			return
		}
		if err := http.NewResponseController(rw).Flush(); err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		case <-s.done:
			return
		}
	}
}
