package serve

import (
	"net"
	"sync"
	"time"
)

// idleListener calls stop when it has had no open connection for a while. It is safe for concurrent use.
//
//	idle -- Accept --> in use -- last connection closed --> idle -- no connection within after --> stop is called
//	  `------------------`------ Close --> closed: stop is not called any more
type idleListener struct {
	net.Listener
	after time.Duration

	mu    sync.Mutex // guards the fields below
	timer *time.Timer
	open  int  // connections
	ended bool // Close was called: the timer stays stopped
}

// closeWhenIdle calls stop once l has had no open connection for this long; 0 is never.
func closeWhenIdle(l net.Listener, after time.Duration, stop func()) net.Listener {
	if after <= 0 {
		return l
	}
	return &idleListener{Listener: l, after: after, timer: time.AfterFunc(after, stop)}
}

// Accept implements net.Listener.
func (l *idleListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open++
	l.timer.Stop()
	return &countedConn{Conn: c, closed: sync.OnceFunc(l.closed)}, nil
}

func (l *idleListener) closed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open--; l.open == 0 && !l.ended {
		l.timer.Reset(l.after)
	}
}

// Close implements net.Listener.
func (l *idleListener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.timer.Stop()
	return l.Listener.Close()
}

// countedConn is a connection that reports its first Close.
type countedConn struct {
	net.Conn
	closed func()
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}
