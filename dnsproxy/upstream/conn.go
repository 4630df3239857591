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

// buffers are for UDP responses, which are at most ednsSize long if the server complies.
var buffers = sync.Pool{New: func() any { return new([4096]byte) }}

// conn is a socket or a connection. It carries one query at a time.
type conn struct {
	net.Conn
	uses int
	idle time.Time // when it was put into a pool
}

// bound sets ctx as the limit of reads and writes. Stop removes the limit; it returns false if ctx has ended.
func (c *conn) bound(ctx context.Context) (stop func() bool) {
	deadline, _ := ctx.Deadline() // the zero time, without a deadline, means none
	c.SetDeadline(deadline)
	if ctx.Done() == nil {
		return func() bool { return true }
	}
	return context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
}

var errWrong = errors.New("the response is to a different query")

// roundTrip sends a query over a stream: each message is preceded by its length (RFC 7766, section 8).
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
		return nil, fmt.Errorf("an incomplete answer on the connection: %w", err)
	}
	if p.compare(msg) == foreign {
		return nil, errWrong
	}
	return unpack(msg)
}

// pool keeps idle connections. It is bounded: it closes connections over the limit.
type pool struct {
	size, uses int

	mu     sync.Mutex // guards the fields below
	free   []*conn    // the most recently used is taken first
	closed bool
}

// take returns a connection, and reports whether it was used before.
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

// pop returns a connection that was not idle for too long, and closes those that were.
func (p *pool) pop(now time.Time) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) == 0 {
		return nil
	}
	c := p.free[len(p.free)-1]
	if now.Sub(c.idle) > idleTime { // and so have all before it
		p.drop()
		return nil
	}
	p.free = p.free[:len(p.free)-1]
	return c
}

// give returns an idle connection to the pool.
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

// drop closes the idle connections. The caller holds mu.
func (p *pool) drop() {
	for _, c := range p.free {
		c.Close()
	}
	clear(p.free)
	p.free = p.free[:0]
}
