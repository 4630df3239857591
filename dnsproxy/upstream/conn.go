package upstream

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// buffers are for responses over UDP, which are at most ednsSize where a
// server keeps to it.
var buffers = sync.Pool{New: func() any { return new([4096]byte) }}

// conn is a socket or a connection on which one question at a time is asked.
type conn struct {
	net.Conn
	uses int
	idle time.Time // since when, while it is in a pool
}

// bound makes reads and writes end with ctx. Stop ends that; it returns false if
// they were cut short.
func (c *conn) bound(ctx context.Context) (stop func() bool) {
	deadline, _ := ctx.Deadline() // none is the zero time, which stands for none
	c.SetDeadline(deadline)
	if ctx.Done() == nil {
		return func() bool { return true }
	}
	return context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
}

var errWrong = errors.New("the server answered another question")

// roundTrip asks over a stream: each message has its length before it (RFC 7766, section 8).
func (c *conn) roundTrip(p packet) (*dns.Msg, error) {
	out := binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(p.bytes)), uint16(len(p.bytes)))
	if _, err := c.Write(append(out, p.bytes...)); err != nil {
		return nil, err
	}
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, fmt.Errorf("no answer on the connection: %w", err)
	}
	msg := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(c, msg); err != nil {
		return nil, fmt.Errorf("half an answer on the connection: %w", err)
	}
	if p.compare(msg) == foreign {
		return nil, errWrong
	}
	return unpack(msg)
}

// pool keeps connections for the next question. It is bounded: one too many is closed.
type pool struct {
	size, uses int

	mu     sync.Mutex // guards the rest
	free   []*conn    // the one used last is taken first
	closed bool
}

// take returns a connection, and whether it was used before.
func (p *pool) take(dial func() (net.Conn, error)) (c *conn, used bool, err error) {
	if c := p.pop(time.Now()); c != nil {
		return c, true, nil
	}
	raw, err := dial()
	if err != nil {
		return nil, false, err
	}
	return &conn{Conn: raw}, false, nil
}

// pop returns a connection that was not idle for too long; those that were are closed.
func (p *pool) pop(now time.Time) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) == 0 {
		return nil
	}
	c := p.free[len(p.free)-1]
	if now.Sub(c.idle) > idleTime { // and so were all before it
		p.drop()
		return nil
	}
	p.free = p.free[:len(p.free)-1]
	return c
}

// give puts a connection back on which nothing is under way.
func (p *pool) give(c *conn) {
	c.uses++
	c.idle = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.free) == p.size || c.uses >= p.uses {
		c.Close()
		return
	}
	p.free = append(p.free, c)
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.drop()
}

// drop closes what is kept. The caller holds mu.
func (p *pool) drop() {
	for _, c := range p.free {
		c.Close()
	}
	clear(p.free)
	p.free = p.free[:0]
}
