package syslog

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/exporttest"
)

// receiver stores what it reads from each connection.
type receiver struct {
	net.Listener
	conns chan net.Conn
}

func listen(t *testing.T, config *tls.Config) *receiver {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if config != nil {
		l = tls.NewListener(l, config)
	}
	r := &receiver{l, make(chan net.Conn, 10)}
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if s, ok := c.(*tls.Conn); ok {
				wait.Go(func() { s.Handshake() })
			}
			r.conns <- c
		}
	})
	t.Cleanup(func() {
		l.Close()
		wait.Wait()
		close(r.conns)
		for c := range r.conns {
			c.Close()
		}
	})
	return r
}

func (r *receiver) next(t *testing.T) net.Conn {
	t.Helper()
	select {
	case c := <-r.conns:
		t.Cleanup(func() { c.Close() })
		return c
	case <-time.After(time.Minute):
		t.Fatal("no connection")
		return nil
	}
}

// contains reads until an event was seen.
func contains(t *testing.T, c net.Conn, id string) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(time.Minute))
	var all strings.Builder
	b := make([]byte, 4096)
	for !strings.Contains(all.String(), `id="`+id+`"`) {
		n, err := c.Read(b)
		all.Write(b[:n])
		if err != nil {
			t.Fatalf("%s did not come: %v", id, err)
		}
	}
}

// TestClosedPeer: a receiver that closed the connection, gracefully or not, is detected before anything is written to
// it, and the last messages are sent again.
func TestClosedPeer(t *testing.T) {
	for _, how := range []string{"closed", "half-closed", "reset"} {
		t.Run(how, func(t *testing.T) {
			r := listen(t, nil)
			s := New(Options{Addr: r.Addr().String()})
			defer s.Close()
			items := exporttest.Items("r-1", 20)
			if err := s.Send(t.Context(), items[:10]); err != nil {
				t.Fatal(err)
			}
			c := r.next(t).(*net.TCPConn)
			switch how {
			case "half-closed":
				c.CloseWrite()
			case "reset":
				c.SetLinger(0)
				c.Close()
			default:
				io.ReadFull(c, make([]byte, 100))
				c.Close()
			}
			for end := time.Now().Add(time.Minute); !s.link.closed(); time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the end was not seen")
				}
			}
			if err := s.Send(t.Context(), items[10:]); err != nil {
				t.Fatal(err)
			}
			again := r.next(t)
			contains(t, again, "r-1:1") // the previous batch
			contains(t, again, "r-1:20")
		})
	}
}

// TestPeerThatDoesNotRead: its kernel buffers what fits, and then acknowledges nothing: the Send fails in time.
func TestPeerThatDoesNotRead(t *testing.T) {
	r := listen(t, nil)
	s := New(Options{Addr: r.Addr().String(), Timeout: 100 * time.Millisecond})
	defer s.Close()
	items := exporttest.Items("r-1", 10)
	for i := range items {
		items[i].Data = []byte(strings.Repeat("x", 1<<20))
	}
	var err error
	for range 10 { // until the buffers of both kernels are full
		if err = s.Send(t.Context(), items); err != nil {
			break
		}
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Send(ctx, items); err == nil {
		t.Error("it was sent although it was stopped")
	}
}

func TestResendIsBounded(t *testing.T) {
	s := New(Options{Resend: 1000})
	for range 100 {
		s.remember(make([]byte, 300))
	}
	if s.kept > 1000 || len(s.recent) > 4 {
		t.Errorf("%d bytes in %d batches", s.kept, len(s.recent))
	}
}

func TestTooLong(t *testing.T) {
	r := listen(t, nil)
	s := New(Options{Addr: r.Addr().String(), MaxBytes: 2000})
	defer s.Close()
	items := exporttest.Items("r-1", 3)
	items[1].Data = []byte(strings.Repeat("x", 3000))
	err := s.Send(t.Context(), items)
	var each export.Outcomes
	var refused *export.Refused
	if !errors.As(err, &each) || each[0] != nil || !errors.As(each[1], &refused) || each[2] != nil {
		t.Fatal(err)
	}
	contains(t, r.next(t), "r-1:3")
}

// TestCertificates: a receiver without a valid certificate gets nothing.
func TestCertificates(t *testing.T) {
	certs := exporttest.NewCerts(t)
	r := listen(t, &tls.Config{Certificates: []tls.Certificate{certs.Server}, ClientCAs: certs.Pool, ClientAuth: tls.RequireAndVerifyClientCert})
	for name, config := range map[string]*tls.Config{
		"another authority": exporttest.NewCerts(t).Client(t),
		"another name":      func() *tls.Config { c := certs.Client(t); c.ServerName = "else.where"; return c }(),
	} {
		s := New(Options{Addr: r.Addr().String(), TLS: config})
		if err := s.Send(t.Context(), exporttest.Items("r-1", 1)); err == nil {
			t.Errorf("%s: it was sent", name)
		}
		s.Close()
	}
	// With TLS 1.3 a client learns late that its certificate is missing: nevertheless nothing counts as sent.
	s := New(Options{Addr: r.Addr().String(), TLS: &tls.Config{RootCAs: certs.Pool}})
	defer s.Close()
	for range 3 {
		if err := s.Send(t.Context(), exporttest.Items("r-1", 1)); err == nil {
			t.Error("without a client certificate: it was sent")
		}
	}
}
