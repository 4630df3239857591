package main

import (
	"net"
	"sync"
	"time"
)

// quiet is a listener of a service that ends when no one has been connected for a while.
type quiet struct {
	net.Listener
	after time.Duration
	timer *time.Timer

	mu        sync.Mutex // guards what follows, and the timer against being set while connections are open
	connected int
}

// watchQuiet calls stop once no one has been connected to l for so long; 0 is never.
func watchQuiet(l net.Listener, after time.Duration, stop func()) net.Listener {
	if after <= 0 {
		return l
	}
	return &quiet{Listener: l, after: after, timer: time.AfterFunc(after, stop)}
}

// Accept implements net.Listener.
func (q *quiet) Accept() (net.Conn, error) {
	c, err := q.Listener.Accept()
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.connected++
	q.timer.Stop()
	return &counted{Conn: c, gone: sync.OnceFunc(q.left)}, nil
}

func (q *quiet) left() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.connected--; q.connected == 0 {
		q.timer.Reset(q.after)
	}
}

// Close implements net.Listener.
func (q *quiet) Close() error {
	q.timer.Stop()
	return q.Listener.Close()
}

// counted is a connection whose end is noted, once.
type counted struct {
	net.Conn
	gone func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.gone()
	return c.Conn.Close()
}
