package hostlog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/internal/regular"
)

// lock excludes other goroutines and other openers of the same file, in this process or another.
type lock struct {
	turn  chan struct{} // holds one token: who has it may ask for the flock
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

// lock returns when the lock is held, or when ctx ends. It asks again and again, since a
// blocking flock could not be given up.
func (l *lock) lock(ctx context.Context) error {
	select {
	case <-l.turn:
	case <-l.ended:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	for wait := 50 * time.Microsecond; ; wait = min(2*wait, 4*time.Millisecond) {
		err := unix.Flock(int(l.file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			l.turn <- struct{}{}
			return fmt.Errorf("lock %s: %w", l.file.Name(), err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			l.turn <- struct{}{}
			return fmt.Errorf("another process holds %s: %w", l.file.Name(), ctx.Err())
		}
	}
}

func (l *lock) unlock() {
	unix.Flock(int(l.file.Fd()), unix.LOCK_UN)
	l.turn <- struct{}{}
}

// close waits until nobody of this opener holds the lock, which then cannot be taken again.
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
