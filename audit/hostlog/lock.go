package hostlog

import (
	"context"
	"os"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/internal/flock"
	"github.com/custody-project/custody/internal/regular"
)

// lock excludes other goroutines and other openers of the same file, in this process or another.
type lock struct {
	turn  chan struct{} // holds one token: its owner may take the flock
	ended chan struct{} // closed by close
	file  *os.File
}

func openLock(path string) (*lock, error) {
	// For reading, so that a file system can still be made read-only.
	f, err := regular.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	l := &lock{turn: make(chan struct{}, 1), ended: make(chan struct{}), file: f}
	l.turn <- struct{}{}
	return l, nil
}

// lock acquires the lock. The error is a flock.HeldError if another process holds it for too long.
func (l *lock) lock(ctx context.Context) error {
	select {
	case <-l.turn:
	case <-l.ended:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	err := flock.Lock(ctx, l.file, unix.LOCK_EX)
	if err != nil {
		l.turn <- struct{}{}
	}
	return err
}

func (l *lock) unlock() {
	unix.Flock(int(l.file.Fd()), unix.LOCK_UN)
	l.turn <- struct{}{}
}

// close waits until the lock is free and prevents further locking.
func (l *lock) close(ctx context.Context) error {
	select {
	case <-l.ended:
		return nil
	case <-l.turn:
		close(l.ended)
		return l.file.Close()
	case <-ctx.Done():
		return ctx.Err()
	}
}
