package dnsproxy

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// readUDP reads the UDP socket. It ignores errors of single packets, such as those of ICMP.
func (s *session) readUDP(ctx context.Context) error {
	for {
		p := newPending()
		n, from, err := s.udp.ReadFromUDPAddrPort(p.packet[:])
		if err != nil {
			p.free()
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return err
			}
			if !pause(ctx, retryPause) {
				return err
			}
			continue
		}
		p.from = from
		p.read(n)
		if s.take(ctx, p) {
			s.out <- p
		}
	}
}

// retryPause limits the CPU use of a socket that fails repeatedly.
const retryPause = 10 * time.Millisecond

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// accept accepts TCP connections up to the limit, and closes further ones immediately.
func (s *session) accept(ctx context.Context, ln net.Listener) error {
	var conns sync.WaitGroup
	defer conns.Wait()
	free := make(chan struct{}, s.cfg.Conns)
	for {
		c, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) || !pause(ctx, retryPause) {
				return err
			}
			continue
		}
		select {
		case free <- struct{}{}:
		default:
			s.count.refused.Add(1)
			c.Close()
			continue
		}
		conns.Go(func() {
			defer func() { <-free }()
			s.serveTCP(ctx, c)
		})
	}
}

// Limits of one connection.
const (
	maxInFlight  = 32 // queries that were read and not yet answered
	writeTimeout = 5 * time.Second
)

// stream is a TCP connection. Its reader and its writer are one goroutine each. A query takes a slot before it is read,
// and releases it when its reply is written or omitted. So a client that does not read replies blocks no other client.
type stream struct {
	net.Conn
	slots chan struct{} // one for each question in flight
	out   chan []byte   // never full: there are as many places as slots
}

func (c *stream) done() { <-c.slots }

// reply hands the answer, and with it the slot, to the writer.
func (c *stream) reply(p *pending) {
	p.conn = nil
	c.out <- p.pack(make([]byte, 0, 512), p.reply, 1<<16-1)
}

// serveTCP serves a connection until its client is idle for too long, closes it, or sends a malformed message. A message
// must be complete within the idle time, so that a slow sender cannot hold the connection.
func (s *session) serveTCP(ctx context.Context, raw net.Conn) {
	c := &stream{Conn: raw, slots: make(chan struct{}, maxInFlight), out: make(chan []byte, maxInFlight)}
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	defer stop()
	var writer sync.WaitGroup
	writer.Go(c.write)
	for ctx.Err() == nil && s.readTCP(ctx, c) {
	}
	for range maxInFlight { // wait for the queries in flight
		c.slots <- struct{}{}
	}
	close(c.out)
	writer.Wait()
	raw.Close()
}

// readTCP reads and takes one query. It returns false if no other follows.
func (s *session) readTCP(ctx context.Context, c *stream) bool {
	c.slots <- struct{}{}
	p := newPending()
	p.conn = c
	n, ok := c.read(p.packet[:], s.cfg.Idle)
	if n < 0 {
		p.free()
		return false
	}
	p.read(n)
	if s.take(ctx, p) {
		s.out <- p
	}
	return ok
}

// read reads one message into buf (RFC 7766, section 8). A message that is too long fills buf, and is the last. n is
// negative if there is no message.
func (c *stream) read(buf []byte, idle time.Duration) (n int, ok bool) {
	c.SetReadDeadline(time.Now().Add(idle))
	var head [2]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return -1, false
	}
	size := int(binary.BigEndian.Uint16(head[:]))
	fits := size <= len(buf)
	n, err := io.ReadFull(c, buf[:min(size, len(buf))])
	if err != nil {
		return -1, false
	}
	return n, fits && size >= headerSize
}

// write is the writer. After an error it closes the connection and discards the remaining replies.
func (c *stream) write() {
	for msg := range c.out {
		c.SetWriteDeadline(time.Now().Add(writeTimeout))
		out := append(binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(msg)), uint16(len(msg))), msg...)
		if _, err := c.Write(out); err != nil {
			c.Close()
		}
		c.done()
	}
}
