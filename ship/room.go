package ship

import (
	"context"
	"sync"
)

// room bounds the bytes of pending messages. Callers wait for space in it, or for a change of other state that its
// lock guards.
type room struct {
	limit int

	mu      sync.Mutex // guards the fields below, and state of the owner
	changed chan struct{}
	held    int
	closed  bool
}

// enter waits until size fits, or room is empty, and takes the space.
func (r *room) enter(ctx context.Context, size int) error {
	return r.wait(ctx, func() bool {
		fits := r.held == 0 || r.held+size <= r.limit
		if fits {
			r.held += size
		}
		return fits
	})
}

func (r *room) leave(size int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held -= size
	r.signal()
}

// wait returns once condition, which is called under mu, holds.
func (r *room) wait(ctx context.Context, condition func() bool) error {
	for {
		r.mu.Lock()
		if r.closed {
			r.mu.Unlock()
			return ErrClosed
		}
		if condition() {
			r.mu.Unlock()
			return nil
		}
		if r.changed == nil {
			r.changed = make(chan struct{})
		}
		changed := r.changed
		r.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// signal wakes all waiters. The caller holds mu.
func (r *room) signal() {
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// close makes all waiters, now or later, return ErrClosed.
func (r *room) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.signal()
}
