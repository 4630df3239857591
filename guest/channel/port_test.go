package channel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/custody-project/custody/internal/splice"
)

// listen serves connections to a loopback address with do.
func listen(t *testing.T, do func(*net.TCPConn)) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go do(c.(*net.TCPConn))
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// TestDial: bytes pass both ways, each direction ends by itself, and the end of one side reaches the other.
func TestDial(t *testing.T) {
	g := newGuest(t, localRunner{})
	g.Dial = func(ctx context.Context, port int) (splice.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", fmt.Sprint("127.0.0.1:", port))
		if err != nil {
			return nil, err
		}
		return c.(*net.TCPConn), nil
	}
	g.Ports = func() ([]int, error) { return []int{8081, 22, 8081}, nil }
	c := g.connect(t, g.host, nil)
	ctx := timeout(t)
	if ports, err := c.Ports(ctx); err != nil || fmt.Sprint(ports) != "[22 8081]" {
		t.Errorf("%v, %v", ports, err)
	}
	const size = 3 << 20
	conn, err := c.Dial(ctx, listen(t, func(c *net.TCPConn) {
		defer c.Close()
		n, _ := io.Copy(io.Discard, c)
		fmt.Fprintf(c, "got %d%s", n, strings.Repeat("x", size))
	}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(make([]byte, size)); err != nil {
		t.Error(err)
	}
	conn.CloseWrite()
	text, err := io.ReadAll(conn)
	if want := fmt.Sprint("got ", size, strings.Repeat("x", size)); err != nil || string(text) != want {
		t.Errorf("%d bytes, %.20q: %v", len(text), text, err)
	}
	<-conn.Over()

	gone := make(chan struct{})
	conn, err = c.Dial(ctx, listen(t, func(c *net.TCPConn) {
		io.Copy(io.Discard, c)
		c.Close()
		close(gone)
	}))
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	<-gone
	<-conn.Over()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	if _, err := c.Dial(ctx, port); !errors.Is(err, ErrNotListening) {
		t.Errorf("a port where nothing listens: %v", err)
	}
	if _, err := c.Dial(ctx, 0); err == nil || c.Err() != nil {
		t.Errorf("port 0: %v", err)
	}
}
