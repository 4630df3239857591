// Package syslog is the sink for receivers of RFC 5424 over TCP (RFC 6587) and TLS (RFC 5425), each message
// after its length.
//
// The protocol has no acknowledgements. Instead: a Send ends when the receiver's kernel has acknowledged every byte; the
// sink detects that the receiver has closed a connection before it writes to it; and it sends the last messages, up to a
// few megabytes, again over the next connection, since it is unknown how much of them was read. Remaining losses: a
// receiver that dies with more than that in its buffers, or drops what it has read, loses events undetected.
package syslog

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/export"
)

// Options of a Sink. Addr is required.
type Options struct {
	Addr string      // host and port
	TLS  *tls.Config // nil for plain TCP
	// MaxBytes is the maximum message size of the receiver, 0 if it has none. Receivers silently truncate longer
	// ones; with MaxBytes they become dead letters.
	MaxBytes int
	Resend   int           // bytes that are sent again over a new connection; 4 MiB
	Timeout  time.Duration // of connecting, and of a batch until it is acknowledged; 30 s
}

// Sink sends to one receiver.
//
//	down --dial, handshake, resend--> up --write, acknowledged--> up
//	  ^                                |
//	  '------- closed, reset, slow ----'
type Sink struct {
	o      Options
	link   *link
	recent [][]byte // the last sent messages, oldest first
	kept   int      // bytes of recent
}

// New returns a sink, which connects when there is something to send.
func New(o Options) *Sink {
	if o.Resend == 0 {
		o.Resend = 4 << 20
	}
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	return &Sink{o: o}
}

// Warning implements export.Warner.
func (s *Sink) Warning() string {
	w := "syslog has no acknowledgement: events that a receiver loses after its kernel acknowledged them are lost undetected"
	if s.o.TLS == nil {
		w += "; the connection is not encrypted"
	}
	return w
}

// Send implements export.Sink.
func (s *Sink) Send(ctx context.Context, items []export.Item) error {
	frames, outcomes := s.frames(items)
	if len(frames) > 0 {
		if err := s.write(ctx, frames); err != nil {
			s.down()
			return err
		}
		s.remember(frames)
	}
	if outcomes != nil {
		return outcomes
	}
	return nil
}

// frames encodes items; those that are too long are refused.
func (s *Sink) frames(items []export.Item) (frames []byte, outcomes export.Outcomes) {
	for n, i := range items {
		before := len(frames)
		frames = appendFrame(frames, i)
		if size := len(frames) - before; s.o.MaxBytes > 0 && size > s.o.MaxBytes {
			frames = frames[:before]
			if outcomes == nil {
				outcomes = make(export.Outcomes, len(items))
			}
			outcomes[n] = &export.Refused{Reason: fmt.Sprintf("the message has %d bytes, and the receiver accepts %d", size, s.o.MaxBytes)}
		}
	}
	return frames, outcomes
}

func (s *Sink) write(ctx context.Context, frames []byte) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	if s.link != nil && s.link.closed() {
		s.down()
	}
	if s.link != nil {
		return s.link.write(ctx, frames)
	}
	began := time.Now()
	l, err := dial(ctx, s.o)
	if err != nil {
		return err
	}
	s.link = l
	for _, again := range s.recent {
		if err := l.write(ctx, again); err != nil {
			return err
		}
	}
	if err := l.write(ctx, frames); err != nil {
		return err
	}
	return l.probation(ctx, max(probation, 2*time.Since(began)))
}

func (s *Sink) remember(frames []byte) {
	s.recent = append(s.recent, frames)
	s.kept += len(frames)
	for len(s.recent) > 1 && s.kept > s.o.Resend {
		s.kept -= len(s.recent[0])
		s.recent[0] = nil
		s.recent = s.recent[1:]
	}
}

func (s *Sink) down() {
	if s.link != nil {
		s.link.close()
		s.link = nil
	}
}

// Close implements export.Sink.
func (s *Sink) Close() error {
	if s.link == nil {
		return nil
	}
	err := s.link.goodbye()
	s.down()
	return err
}

// link is one connection. A goroutine reads from it to detect its end; close waits for the goroutine.
type link struct {
	net.Conn
	raw    *net.TCPConn
	reader sync.WaitGroup
	ended  chan struct{} // closed when the receiver has closed or reset the connection
}

func dial(ctx context.Context, o Options) (*link, error) {
	d := net.Dialer{KeepAlive: 15 * time.Second}
	c, err := d.DialContext(ctx, "tcp", o.Addr)
	if err != nil {
		return nil, err
	}
	l := &link{Conn: c, raw: c.(*net.TCPConn), ended: make(chan struct{})}
	if o.TLS != nil {
		config := o.TLS.Clone()
		if host, _, err := net.SplitHostPort(o.Addr); err == nil && config.ServerName == "" {
			config.ServerName = host
		}
		secure := tls.Client(c, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			c.Close()
			return nil, fmt.Errorf("tls with %s: %w", o.Addr, err)
		}
		l.Conn = secure
	}
	l.reader.Go(func() { // ends with the connection
		defer close(l.ended)
		b := make([]byte, 512)
		for {
			if _, err := l.Read(b); err != nil {
				return
			}
		}
	})
	return l, nil
}

func (l *link) closed() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// write returns when the receiver's kernel has acknowledged all of b.
func (l *link) write(ctx context.Context, b []byte) error {
	stop := context.AfterFunc(ctx, func() { l.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := l.Write(b); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return errors.Join(cause, err)
		}
		return err
	}
	return l.acknowledged(ctx)
}

// acknowledged waits until the kernel's send queue is empty (tcp(7), SIOCOUTQ).
func (l *link) acknowledged(ctx context.Context) error {
	for wait := 50 * time.Microsecond; ; wait = min(2*wait, 20*time.Millisecond) {
		left, err := l.unacknowledged()
		switch {
		case err != nil:
			return err
		case l.closed(): // after a reset the queue is empty too
			return errClosed
		case left == 0:
			return nil
		}
		select {
		case <-l.ended:
			return errClosed
		case <-ctx.Done():
			return fmt.Errorf("%d bytes are not acknowledged: %w", left, context.Cause(ctx))
		case <-time.After(wait):
		}
	}
}

// probation is how long a new connection must last before what was sent over it counts: with TLS 1.3 a
// receiver refuses a client certificate after the handshake, and proxies accept connections for unavailable receivers.
const probation = 250 * time.Millisecond

func (l *link) probation(ctx context.Context, d time.Duration) error {
	select {
	case <-l.ended:
		return errors.New("the receiver accepted the connection and closed it: does it require another certificate, or is it unavailable?")
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

var errClosed = errors.New("the receiver closed the connection before it acknowledged everything")

func (l *link) unacknowledged() (left int, err error) {
	raw, err := l.raw.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		if left, failed = unix.IoctlGetInt(int(fd), unix.TIOCOUTQ); failed == nil {
			var code int
			if code, failed = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR); failed == nil && code != 0 {
				failed = unix.Errno(code)
			}
		}
	})
	return left, errors.Join(err, failed)
}

// goodbye closes the connection such that no reset discards sent data.
func (l *link) goodbye() error {
	l.SetDeadline(time.Now().Add(time.Second))
	if s, ok := l.Conn.(*tls.Conn); ok {
		return s.CloseWrite()
	}
	return l.raw.CloseWrite()
}

func (l *link) close() {
	l.Conn.Close()
	l.reader.Wait()
}
