package gateway

import (
	"net"
	"sync"
	"time"
)

// guestConn is the guest's side of a connection that the gateway parses: with the bytes that were read before, and with
// timeouts for reads and writes.
type guestConn struct {
	net.Conn
	head  []byte        // read before
	stall time.Duration // for one write
	waits func()        // called before each read of data that the guest has not sent yet; nil: nothing

	mu          sync.Mutex    // guards the fields below, and the read deadline
	patience    time.Duration // for one read; 0: the deadline is not changed
	interrupted bool
}

// Read implements net.Conn.
func (g *guestConn) Read(p []byte) (int, error) {
	if len(g.head) > 0 {
		n := copy(p, g.head)
		g.head = g.head[n:]
		return n, nil
	}
	if g.waits != nil {
		g.waits()
	}
	g.mu.Lock()
	if g.patience > 0 && !g.interrupted {
		_ = g.Conn.SetReadDeadline(time.Now().Add(g.patience)) // fails only on a closed socket, and then the read fails too
	}
	g.mu.Unlock()
	return g.Conn.Read(p)
}

// Write implements net.Conn.
func (g *guestConn) Write(p []byte) (int, error) {
	_ = g.Conn.SetWriteDeadline(time.Now().Add(g.stall)) // as above
	return g.Conn.Write(p)
}

// within sets a timeout for all following reads together; 0: none.
func (g *guestConn) within(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.patience = 0
	if g.interrupted {
		return
	}
	var limit time.Time
	if d > 0 {
		limit = time.Now().Add(d)
	}
	_ = g.Conn.SetReadDeadline(limit)
}

// each sets a timeout for every single read from now on.
func (g *guestConn) each(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.patience = d
}

// interrupt ends the current read, and all until resume.
func (g *guestConn) interrupt() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.interrupted = true
	_ = g.Conn.SetReadDeadline(time.Unix(1, 0))
}

func (g *guestConn) resume() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.interrupted, g.patience = false, 0
	_ = g.Conn.SetReadDeadline(time.Time{})
}
