package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/dnsproxy/upstream"
	"github.com/custody-project/custody/netpolicy"
)

// endless sends until its client disconnects, and reports that.
func endless(gone chan<- error) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		chunk := make([]byte, 16<<10)
		for {
			if _, err := rw.Write(chunk); err != nil {
				gone <- err
				return
			}
		}
	})
}

// TestRevoke removes a rule during downloads: spliced, without TLS, and opened.
func TestRevoke(t *testing.T) {
	for name, c := range map[string]struct {
		rule   netpolicy.Rule
		port   uint16
		url    string
		change []func(*http.Transport)
		after  []netpolicy.Rule
		reason netpolicy.Reason
	}{
		"spliced":         {rule("a.example"), 443, "https://a.example/", nil, nil, netpolicy.NoRule},
		"spliced, http":   {rule("a.example"), 443, "https://a.example/", nil, []netpolicy.Rule{rule("a.example", withHTTP(nil, nil))}, nowOpened},
		"clear":           {rule("a.example", ports(80)), 80, "http://a.example/", nil, []netpolicy.Rule{rule("a.example")}, netpolicy.WrongPort},
		"opened, 1":       {rule("a.example", withHTTP(nil, nil)), 443, "https://a.example/", nil, nil, netpolicy.NoRule},
		"opened, 2":       {rule("a.example", withHTTP(nil, nil)), 443, "https://a.example/", []func(*http.Transport){withH2}, nil, netpolicy.NoRule},
		"opened, path":    {rule("a.example", withHTTP(nil, nil)), 443, "https://a.example/x", nil, []netpolicy.Rule{rule("a.example", withHTTP(nil, []string{"/y"}))}, netpolicy.WrongPath},
		"opened, address": {rule("a.example", withHTTP(nil, nil), addresses("127.0.0.0/8")), 443, "https://a.example/x", nil, []netpolicy.Rule{rule("a.example", withHTTP(nil, nil))}, netpolicy.SpecialRange},
	} {
		w := newWorld(t, []netpolicy.Rule{c.rule})
		gone := make(chan error, 1)
		h := w.newHost("a.example", c.port, endless(gone))
		if len(c.rule.Addresses) > 0 {
			inner := netip.AddrFrom4([4]byte{127, 9, h.addr.As4()[2], h.addr.As4()[3]})
			w.newHostAt(inner, w.ca.leaf(t, "a.example"), 443, endless(gone))
			w.zone.set("a.example", inner)
		}
		resp, err := w.client("a.example", c.change...).Get(c.url)
		if err != nil {
			t.Fatal(name, err)
		}
		if _, err := io.CopyN(io.Discard, resp.Body, 1<<20); err != nil {
			t.Fatal(name, err)
		}
		if n := w.Recheck(context.Background()); n != 0 {
			t.Errorf("%s: %d ended without a change", name, n)
		}
		w.live.Set(w.policy(c.after...))
		began := time.Now()
		if n := w.Recheck(context.Background()); n != 1 {
			t.Errorf("%s: %d ended", name, n)
		}
		took := time.Since(began)
		if w.count(audit.FlowRevoke) != 1 {
			t.Errorf("%s: no revoke event when Recheck returned", name)
		}
		f := w.flow(audit.FlowRevoke)
		if f.Verdict != audit.Deny || f.Reason != string(c.reason) || f.Generation != 2 || f.BytesIn != 2000 || f.ID != w.flow(audit.FlowOpen).ID || f.Peer == "" {
			t.Errorf("%s: %+v", name, f)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err == nil {
			t.Errorf("%s: the guest received an orderly end", name)
		}
		select {
		case <-gone:
		case <-time.After(time.Minute):
			t.Errorf("%s: the host can still send", name)
		}
		if !strings.HasPrefix(name, "spliced") {
			if ev := w.http(1); ev.Verdict != audit.Deny || ev.Reason != string(c.reason) || ev.BytesIn < 1<<20 {
				t.Errorf("%s: %+v", name, ev)
			}
		}
		t.Logf("%s: ended in %v", name, took)
	}
}

// TestRevokeResets checks both sockets after a revoke.
func TestRevokeResets(t *testing.T) {
	w := newWorld(t, []netpolicy.Rule{rule("a.example")})
	addr := newAddr()
	w.zone.set("a.example", addr)
	l, err := tls.Listen("tcp", addr.String()+":443", &tls.Config{Certificates: []tls.Certificate{*w.ca.leaf(t, "a.example")}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	far := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, err = io.Copy(io.Discard, c)
		}
		far <- err
	}()
	c, err := w.handshake("a.example", "a.example")
	if err != nil {
		t.Fatal(err)
	}
	w.live.Set(w.policy())
	if n := w.Recheck(context.Background()); n != 1 {
		t.Fatalf("%d ended", n)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the guest's side: %v", err)
	}
	if err := <-far; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the host's side: %v", err)
	}
}

// slowResolver lets a test delay the answer.
type slowResolver struct {
	Resolver
	asked, answer chan struct{}
}

func (s *slowResolver) Resolve(ctx context.Context, name string, qtype uint16) (upstream.Answer, error) {
	s.asked <- struct{}{}
	<-s.answer
	return s.Resolver.Resolve(ctx, name, qtype)
}

// TestRevokeBeforeDial removes the rule while the name is being resolved, and during the dial.
func TestRevokeBeforeDial(t *testing.T) {
	slow := &slowResolver{asked: make(chan struct{}, 2), answer: make(chan struct{})}
	w := newWorld(t, []netpolicy.Rule{rule("a.example"), rule("o.example", withHTTP(nil, nil))}, func(c *Config) {
		slow.Resolver = c.Resolver
		c.Resolver = slow
	})
	for _, name := range []string{"a.example", "o.example"} {
		h := w.newHost(name, 443, nil)
		c := w.dial(name, 443)
		go func() { _ = tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake() }()
		<-slow.asked
		<-slow.asked
		before := w.live.Current().Policy
		w.live.Set(w.policy())
		w.Recheck(context.Background())
		slow.answer <- struct{}{}
		slow.answer <- struct{}{}
		if name == "a.example" {
			w.until("the end", func() bool { return w.count(audit.FlowRevoke)+w.count(audit.FlowClose) > 0 })
		} else {
			time.Sleep(50 * time.Millisecond) // its first request would dial; there is none
		}
		if h.hits.Load() != 0 {
			t.Errorf("%s was dialled", name)
		}
		w.live.Set(before)
	}
}

// TestRevokeDial ends a dial to a host that does not answer.
func TestRevokeDial(t *testing.T) {
	w := newWorld(t, []netpolicy.Rule{rule("a.example")})
	// A listener whose queue is full: the kernel drops further SYNs, so a dial hangs.
	addr := newAddr()
	w.zone.set("a.example", addr)
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Port: 443, Addr: addr.As4()}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		d := net.Dialer{Timeout: 100 * time.Millisecond}
		if c, err := d.Dial("tcp", addr.String()+":443"); err == nil {
			defer c.Close()
		}
	}
	go func() { _, _ = w.handshakeErr("a.example") }()
	w.flow(audit.FlowOpen)
	time.Sleep(20 * time.Millisecond) // time for the SYN
	w.live.Set(w.policy())
	if n := w.Recheck(context.Background()); n != 1 {
		t.Errorf("%d ended", n)
	}
	if f := w.flow(audit.FlowRevoke); f.Peer != "" || f.Reason != string(netpolicy.NoRule) {
		t.Errorf("%+v", f)
	}
}

func (w *world) handshakeErr(name string) (*tls.Conn, error) { return w.handshake(name, name) }

// mustReset connects, and checks that the connection is reset soon.
func (w *world) mustReset(name string) {
	w.Helper()
	w.names.set(name)
	var err error
	inSandbox(w, func() error {
		var c net.Conn
		if c, err = net.Dial("tcp4", w.names.base.String()+":443"); err == nil {
			_, err = c.Read(make([]byte, 1))
			c.Close()
		}
		return nil
	})
	if !errors.Is(err, syscall.ECONNRESET) {
		w.Errorf("%v, not a reset", err)
	}
}

// TestTooMany opens more connections than a sandbox may have.
func TestTooMany(t *testing.T) {
	w := newWorld(t, []netpolicy.Rule{rule("a.example")}, func(c *Config) { c.Limits.Conns = 3 })
	for range 3 {
		w.dial("a.example", 443)
	}
	w.until("three connections", func() bool { return len(w.all()) == 3 })
	for range 4 {
		w.mustReset("a.example")
	}
	w.until("4 denials", func() bool {
		var n uint64
		for _, ev := range w.log.all() {
			if ev.Flow != nil && ev.Flow.State == audit.FlowDeny && strings.Contains(ev.Flow.Reason, "3 concurrent connections") {
				n += ev.Flow.Count
			}
		}
		return n == 4
	})
}

// TestIdle keeps connections idle.
func TestIdle(t *testing.T) {
	w := newWorld(t, []netpolicy.Rule{rule("a.example")}, func(c *Config) { c.Limits.Idle = 200 * time.Millisecond })
	w.newHost("a.example", 443, nil)
	c, err := w.handshake("a.example", "a.example")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("not ended")
	}
	if f := w.flow(audit.FlowClose); f.Reason != "idle for too long" {
		t.Errorf("%+v", f)
	}
}

// panicky is a Names that panics.
type panicky struct{ Names }

func (panicky) Name(netip.Addr) (string, uint64, bool) { panic("the guest's secret") }

func TestPanic(t *testing.T) {
	w := newWorld(t, []netpolicy.Rule{rule("a.example")}, func(c *Config) { c.Names = panicky{} })
	w.mustReset("a.example")
	w.until("a finding", func() bool {
		for _, ev := range w.log.all() {
			if ev.Finding != nil && strings.Contains(ev.Finding.Detail, "gateway.") && !strings.Contains(ev.Finding.Detail, "secret") {
				return true
			}
		}
		return false
	})
	w.until("the connection's end", func() bool { return len(w.all()) == 0 })
}

// TestUnknownAddress dials a synthetic address without a name.
func TestUnknownAddress(t *testing.T) {
	w := newWorld(t, []netpolicy.Rule{rule("a.example")})
	w.mustReset("")
	if f := w.lastDeny(); !strings.Contains(f.Reason, "no name with this address") {
		t.Errorf("%+v", f)
	}
}

// TestCloseEndsAll closes a gateway with connections of all kinds: all of them must end.
func TestCloseEndsAll(t *testing.T) {
	before := runtime.NumGoroutine()
	func() {
		tt := &ending{TB: t}
		defer tt.end()
		w := newWorld(tt, []netpolicy.Rule{rule("a.example"), rule("o.example", withHTTP(nil, nil)), rule("c.example", ports(80))})
		gone := make(chan error, 10)
		w.newHost("a.example", 443, endless(gone))
		w.newHost("o.example", 443, endless(gone))
		w.newHost("c.example", 80, endless(gone))
		w.dial("a.example", 443)
		get := func(name, url string, change ...func(*http.Transport)) {
			resp, err := w.client(name, change...).Get(url)
			if err != nil {
				t.Fatal(err)
			}
			tt.Cleanup(func() { resp.Body.Close() })
		}
		if w.cfg.Authority == nil {
			t.Fatal("no authority")
		}
		roots := w.roots
		get("o.example", "https://o.example/")
		get("o.example", "https://o.example/", withH2)
		get("c.example", "http://c.example/")
		get("a.example", "https://a.example/", func(h *http.Transport) { h.TLSClientConfig.RootCAs = roots })
		w.Gateway.Close()
		if n := w.count(audit.FlowClose); n != 4 {
			t.Errorf("the record has %d of 4 ends", n)
		}
	}()
	for limit := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
	}
}

// ending runs its cleanups when end is called, not at the test's end.
type ending struct {
	testing.TB
	todo []func()
}

func (e *ending) Cleanup(f func()) { e.todo = append(e.todo, f) }

func (e *ending) end() {
	for i := len(e.todo) - 1; i >= 0; i-- {
		e.todo[i]()
	}
}

// TestRecordFailsLater: the record fails after a connection was opened. The current request is the last.
func TestRecordFailsLater(t *testing.T) {
	var served atomic.Int64
	w, _ := openedWorld(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { fmt.Fprint(rw, served.Add(1)) }))
	client := w.client("a.example")
	resp, err := client.Get("https://a.example/v1/x")
	if err != nil {
		t.Fatal(err)
	}
	hear(resp.Body)
	w.log.fail.Store(true)
	for range 3 {
		if resp, err := client.Get("https://a.example/v1/x"); err == nil {
			hear(resp.Body)
			resp.Body.Close()
		}
	}
	if served.Load() > 2 {
		t.Errorf("%d requests were served", served.Load())
	}
	w.log.fail.Store(false)
	if _, err := client.Get("https://a.example/v1/x"); err != nil {
		t.Errorf("not served after the record can be written again: %v", err)
	}
}
