package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
)

// trusted returns the TLS configuration of a guest that trusts the authority and connects to a.example.
func (w *world) trusted() *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.cfg.Authority.PEM())
	return &tls.Config{RootCAs: roots, ServerName: "a.example"}
}

// TestSlowGuests: many concurrent guests take long for their part of the handshake, and for the first request after it.
func TestSlowGuests(t *testing.T) {
	w, _ := openedWorld(t, nil, func(c *Config) { c.Limits.Hello, c.Limits.Conns = 200*time.Millisecond, 100 })
	var all sync.WaitGroup
	for range 50 {
		c := tls.Client(&lazy{Conn: w.dial("a.example", 443), after: 600 * time.Millisecond}, w.trusted())
		all.Go(func() {
			if err := c.Handshake(); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(400 * time.Millisecond)
			io.WriteString(c, "GET /v1/x HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
			if answer := hear(c); !strings.HasPrefix(answer, "HTTP/1.1 200 ") {
				t.Errorf("%q", answer)
			}
		})
	}
	all.Wait()
}

// lazy is a connection whose first read is delayed.
type lazy struct {
	net.Conn
	after time.Duration
	once  sync.Once
}

func (l *lazy) Read(p []byte) (int, error) {
	l.once.Do(func() { time.Sleep(l.after) })
	return l.Conn.Read(p)
}

// TestTurns: handshakes wait while others are in progress. A handshake releases its slot when its guest disconnects or
// the gateway ends it.
func TestTurns(t *testing.T) {
	w, _ := openedWorld(t, nil)
	for range cap(w.turns) {
		w.turns <- struct{}{}
	}
	ended := make(chan error, 3)
	for _, leaves := range []bool{true, false} {
		c := tls.Client(w.dial("a.example", 443), w.trusted())
		ctx, cancel := context.WithCancel(context.Background())
		go func() { ended <- c.HandshakeContext(ctx) }()
		select {
		case err := <-ended:
			t.Errorf("answered without a free slot: %v", err)
		case <-time.After(200 * time.Millisecond):
		}
		if leaves {
			if cancel(); <-ended == nil {
				t.Error("no error")
			}
		} else {
			defer cancel()
		}
	}
	for range cap(w.turns) {
		<-w.turns
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	w.until("all places are free", func() bool { return len(w.turns) == 0 })
	for range 3 * cap(w.turns) { // a silent client holds no handshake slot
		c := w.dial("a.example", 443)
		c.Write(rawHello(t, w.trusted()))
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHandshakeReasons: the record has the reason why a handshake failed.
func TestHandshakeReasons(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(w *world, c *net.TCPConn)
		want string
	}{
		"no trust": {func(w *world, c *net.TCPConn) { _ = tls.Client(c, &tls.Config{ServerName: "a.example"}).Handshake() },
			"it does not accept the gateway's certificate (bad certificate): does its program trust the sandbox's authority?"},
		"gone": {func(w *world, c *net.TCPConn) {
			c.Write(rawHello(t, w.trusted()))
			io.ReadFull(c, make([]byte, 1))
			c.Close()
		}, "its program closed the connection without an alert"},
		"immediately": {func(w *world, c *net.TCPConn) {
			c.Write(rawHello(t, w.trusted()))
			c.CloseWrite()
			hear(c)
		}, "its program closed the connection without an alert"},
		"another alert": {func(w *world, c *net.TCPConn) {
			config := w.trusted()
			config.MaxVersion = tls.VersionTLS12 // the alert is not encrypted
			c.Write(rawHello(t, config))
			io.ReadFull(c, make([]byte, 1))
			c.Write(alertInternalError.record())
			hear(c)
		}, "its program aborted it (internal error)"},
		"old TLS": {func(w *world, c *net.TCPConn) {
			config := w.trusted()
			config.MinVersion, config.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
			_ = tls.Client(c, config).Handshake()
		}, "client offered only unsupported versions"},
		"silence": {func(w *world, c *net.TCPConn) {
			c.Write(rawHello(t, w.trusted()))
			hear(c)
		}, "idle for too long"},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := openedWorld(t, nil, func(c *Config) { c.Limits.Idle = 500 * time.Millisecond })
			c.do(w, w.dial("a.example", 443))
			if f := w.flow(audit.FlowClose); !strings.Contains(f.Reason, c.want) || strings.Contains(f.Reason, "trust") != (name == "no trust") {
				t.Errorf("%q", f.Reason)
			}
		})
	}
}

// TestOneLeaf: many concurrent requests for the certificate of one name get the same one.
func TestOneLeaf(t *testing.T) {
	for range 20 {
		a, err := NewAuthority("r-test", []string{"a.example"})
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		serials := make(chan string, 50)
		for range cap(serials) {
			all.Go(func() {
				c, err := a.leaf("a.example")
				if err != nil {
					t.Error(err)
					return
				}
				serials <- c.Leaf.SerialNumber.String()
			})
		}
		all.Wait()
		close(serials)
		first := <-serials
		for s := range serials {
			if s != first {
				t.Fatal("more than one certificate was made")
			}
		}
	}
}
