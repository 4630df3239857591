package trace

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"
)

// Stream is the host's end of a connection of the sentry's trace sink. The
// sentry waits while the host does not read, and drops messages when it has
// waited too long.
type Stream struct {
	conn *net.UnixConn
	raw  syscall.RawConn

	mu   sync.Mutex // guards idle and done
	idle bool       // the reader has taken, and handled, all that was sent
	done bool
	turn *sync.Cond // signals changes of idle and done
}

// handshakeLimit bounds the exchange of versions.
const handshakeLimit = 10 * time.Second

// Accept takes over a new connection, on which Enlarge was called, and exchanges versions. It needs no privileges.
func Accept(conn *net.UnixConn) (*Stream, error) {
	conn.SetDeadline(time.Now().Add(handshakeLimit))
	buf := make([]byte, 1024)
	n, err := conn.Read(buf)
	if err != nil {
		return nil, fmt.Errorf("trace sink: read the handshake: %w", err)
	}
	version := uint64(0)
	if err := fields(buf[:n], func(f protowire.Number, v value) error {
		if f == 1 {
			version = v.num
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("trace sink: handshake: %w", err)
	}
	if version < Version {
		return nil, fmt.Errorf("trace sink: version %d of the protocol, expected %d or later", version, Version)
	}
	if _, err := conn.Write(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), Version)); err != nil {
		return nil, fmt.Errorf("trace sink: handshake: %w", err)
	}
	conn.SetDeadline(time.Time{})
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &Stream{conn: conn, raw: raw}
	s.turn = sync.NewCond(&s.mu)
	return s, nil
}

// Read calls handle with each message until the connection ends, and returns why it ended: nil
// after the sentry closed it. handle returning an error ends it.
func (s *Stream) Read(handle func(Message) error) error {
	defer func() {
		s.mu.Lock()
		s.done = true
		s.mu.Unlock()
		s.turn.Broadcast()
		s.conn.Close()
	}()
	buf := make([]byte, MaxMessage)
	for {
		n, err := s.receive(buf)
		if err != nil || n == 0 {
			return err
		}
		m, err := Parse(buf[:n])
		if err != nil {
			return err
		}
		if err := handle(m); err != nil {
			return err
		}
	}
}

// receive waits for a message; it declares the stream idle while there is none.
func (s *Stream) receive(buf []byte) (n int, err error) {
	waitErr := s.raw.Read(func(fd uintptr) bool {
		s.setIdle(false)
		var flags int
		for err = unix.EINTR; err == unix.EINTR; {
			n, _, flags, _, err = unix.Recvmsg(int(fd), buf, nil, unix.MSG_DONTWAIT)
		}
		switch {
		case err == unix.EAGAIN:
			s.setIdle(true)
			return false
		case err == nil && flags&unix.MSG_TRUNC != 0:
			err = fmt.Errorf("trace message of more than %d bytes", len(buf))
		}
		return true
	})
	if waitErr != nil { // else err is of the last try
		err = waitErr
	}
	if errors.Is(err, net.ErrClosed) || errors.Is(err, unix.ECONNRESET) {
		return 0, nil
	}
	return n, err
}

func (s *Stream) setIdle(idle bool) {
	s.mu.Lock()
	s.idle = idle
	s.mu.Unlock()
	if idle {
		s.turn.Broadcast()
	}
}

// Flush returns when every message that was sent before the call has been handled, or the stream has ended.
func (s *Stream) Flush(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.turn.Broadcast()
	})
	defer stop()
	for {
		s.mu.Lock()
		for !s.idle && !s.done && ctx.Err() == nil {
			s.turn.Wait()
		}
		done := s.done
		s.mu.Unlock()
		if done || ctx.Err() != nil {
			return ctx.Err()
		}
		queued := 0
		var err error
		if ctl := s.raw.Control(func(fd uintptr) { queued, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }); ctl != nil || err != nil {
			return errors.Join(ctl, err)
		}
		s.mu.Lock()
		idle := s.idle
		s.mu.Unlock()
		if idle && queued == 0 {
			return nil
		}
		time.Sleep(50 * time.Microsecond) // the reader has not been woken yet
	}
}

// Ended reports whether Read has returned, or is about to: no more messages are handled.
func (s *Stream) Ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done
}

// Close ends the stream; Read returns.
func (s *Stream) Close() error { return s.conn.Close() }
