// Package splice carries bytes both ways between two connections, each direction with its own end.
package splice

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// Conn is a connection of which each direction can be closed by itself.
type Conn interface {
	io.ReadWriteCloser
	// CloseWrite ends what is written; reads go on.
	CloseWrite() error
}

// buffer is how much of each direction is in this process, in bytes.
const buffer = 32 << 10

// Traffic counts the bytes of two connections while they are joined. It is safe for concurrent use.
type Traffic struct{ there, back atomic.Int64 }

// There returns the bytes that the first connection sent and the second one took, Back those of the other direction.
func (t *Traffic) There() int64 { return t.there.Load() }

// Back is described at There.
func (t *Traffic) Back() int64 { return t.back.Load() }

// ender is a Conn that knows when its peer has ended both directions, which a read does not show.
type ender interface{ Over() <-chan struct{} }

// Join carries bytes between a and b until both directions have ended, one of the two fails to be read, ctx is done, or nothing has been carried for
// the time idle, unless that is 0. It closes both. The error is why it ended early: that of ctx, of a read, or ErrIdle.
func Join(ctx context.Context, a, b Conn, idle time.Duration, t *Traffic) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() {
		a.Close()
		b.Close()
	})
	defer stop()
	moved := func() {}
	if idle > 0 {
		timer := time.AfterFunc(idle, func() { cancel(ErrIdle) })
		defer timer.Stop()
		moved = func() { timer.Reset(idle) }
	}
	var both, ends sync.WaitGroup
	read := func(c Conn) { // to its end
		if e, ok := c.(ender); ok {
			ends.Go(func() {
				select {
				case <-e.Over():
					cancel(errOver)
				case <-ctx.Done():
				}
			})
		}
	}
	both.Go(func() { carry(b, a, &t.there, moved, read, cancel) })
	both.Go(func() { carry(a, b, &t.back, moved, read, cancel) })
	both.Wait()
	err := context.Cause(ctx)
	cancel(nil)
	ends.Wait()
	a.Close()
	b.Close()
	if errors.Is(err, errOver) {
		return nil
	}
	return err
}

// errOver is why the other direction ends, too, when the peer of a connection has gone.
var errOver = errors.New("the peer has ended both directions")

// ErrIdle means that nothing was carried for too long.
var ErrIdle = errors.New("nothing was sent or received for too long")

// carry copies one direction. If it cannot be written any more, it ends, and the other one goes on to its own end: what the peer has sent
// before it closed still arrives. If it cannot be read, both end. The buffer is zeroed: secrets can pass through it.
func carry(to, from Conn, count *atomic.Int64, moved func(), read func(Conn), cancel context.CancelCauseFunc) {
	buf := make([]byte, buffer)
	defer clear(buf)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			moved()
			written, failed := to.Write(buf[:n])
			count.Add(int64(written))
			if failed != nil {
				return
			}
			moved()
		}
		if err == io.EOF {
			to.CloseWrite()
			read(from)
			return
		}
		if err != nil {
			cancel(err)
			return
		}
	}
}
