package exporttest

import (
	"crypto/rand"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Fault is a fault of one connection.
type Fault int

// The faults.
const (
	Pass    Fault = iota
	Refuse        // reset immediately
	Hang          // accepts everything, answers nothing
	Break         // forwards, and resets during the first answer
	Late          // forwards, and resets after some answers
	Garbage       // sends an invalid answer
	Drip          // begins a valid answer, and sends it byte by byte without an end
)

// Proxy is a proxy before a real server that injects faults of networks and broken servers.
type Proxy struct {
	Addr   string
	target string
	l      net.Listener
	wait   sync.WaitGroup

	mu    sync.Mutex // guards the fields below
	next  []Fault
	seen  map[Fault]int
	conns map[net.Conn]bool
}

// NewProxy listens on loopback until the test ends. Connections get the faults in turn, and are then forwarded.
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

// Left returns the number of unused faults.
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
		c.Read(b)                 // the request has arrived
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

// pass forwards bytes in both directions, and optionally resets the connection during an answer.
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
