package exporttest

import (
	"crypto/rand"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Fault is what a Proxy does to one connection.
type Fault int

// The faults.
const (
	Pass    Fault = iota
	Refuse        // reset immediately
	Hang          // takes everything, answers nothing
	Break         // passes, and resets in the middle of the first answer
	Late          // passes, and resets when some answers have gone through
	Garbage       // answers bytes that mean nothing
	Drip          // answers something that begins well, a byte at a time, without an end
)

// Proxy stands before a real server, and does to connections what networks and broken servers do.
type Proxy struct {
	Addr   string
	target string
	l      net.Listener
	wait   sync.WaitGroup

	mu    sync.Mutex // guards what follows
	next  []Fault
	seen  map[Fault]int
	conns map[net.Conn]bool
}

// NewProxy listens on loopback until the test ends. Connections get the faults in turn, and pass after them.
func NewProxy(t testing.TB, target string, faults ...Fault) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Addr: l.Addr().String(), target: target, l: l, next: faults, seen: map[Fault]int{}, conns: map[net.Conn]bool{}}
	p.wait.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.wait.Go(func() { p.serve(c.(*net.TCPConn)) })
		}
	})
	t.Cleanup(p.close)
	return p
}

func (p *Proxy) close() {
	p.l.Close()
	p.mu.Lock()
	for c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.wait.Wait()
}

// Left is how many faults no connection has had yet.
func (p *Proxy) Left() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.next)
}

func (p *Proxy) fault(c net.Conn) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = true
	if len(p.next) == 0 {
		return Pass
	}
	f := p.next[0]
	p.next = p.next[1:]
	p.seen[f]++
	return f
}

func (p *Proxy) serve(c *net.TCPConn) {
	defer c.Close()
	switch f := p.fault(c); f {
	case Refuse:
		c.SetLinger(0)
	case Hang:
		io.Copy(io.Discard, c)
	case Garbage:
		b := make([]byte, 2048)
		c.Read(b)                 // it has asked
		go io.Copy(io.Discard, c) // ends with the connection
		rand.Read(b)
		c.Write(b[:64])
		time.Sleep(20 * time.Millisecond)
	case Drip:
		go io.Copy(io.Discard, c) // ends with the connection
		for _, b := range []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFF\r\n{") {
			if _, err := c.Write([]byte{b}); err != nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
		for {
			if _, err := c.Write([]byte(" ")); err != nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	default:
		p.pass(c, f)
	}
}

// pass carries bytes in both directions, and resets the connection within an answer on demand.
func (p *Proxy) pass(c *net.TCPConn, f Fault) {
	up, err := net.Dial("tcp", p.target)
	if err != nil {
		c.SetLinger(0)
		return
	}
	defer up.Close()
	p.mu.Lock()
	p.conns[up] = true
	p.mu.Unlock()
	p.wait.Go(func() { // ends when either side does
		io.Copy(up, c)
		up.(*net.TCPConn).CloseWrite()
	})
	limit := map[Fault]int64{Pass: 1 << 62, Break: 40, Late: 1500}[f]
	io.CopyN(c, up, limit)
	if f != Pass {
		c.SetLinger(0)
	}
}
