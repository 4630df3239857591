package channel

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/custody-project/custody/audit"
)

// eventStream is the one stream with every sensor's events, in order.
// It combines events that follow each other quickly: sending one costs more than making it.
type eventStream struct {
	mu      sync.Mutex    // guards the fields below, and the order of frames
	opened  chan struct{} // closed once w is set
	w       io.Writer     // nil: the host has not opened the stream, or has suspended the guest
	marks   uint64
	pending []byte // frames to be sent; at most batchBytes and one frame
	late    *time.Timer
	err     error // of the last send that no one waited for
}

const (
	batchBytes = 32 << 10
	batchDelay = 25 * time.Millisecond // how long an event may wait for others
)

func (e *eventStream) open(w io.Writer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.w == nil {
		e.w = w
		close(e.opened)
	}
}

// detach ends the stream until the next session opens it. Emit waits for that. Everything has been sent.
func (e *eventStream) detach() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.w != nil {
		e.w, e.opened = nil, make(chan struct{})
	}
}

func (e *eventStream) emit(ctx context.Context, ev *audit.Event) error {
	if err := e.ready(ctx); err != nil {
		return err
	}
	defer e.mu.Unlock()
	var err error
	if e.pending, err = appendEvent(e.pending, ev); err != nil {
		return err
	}
	if len(e.pending) >= batchBytes {
		return e.send()
	}
	if e.late == nil {
		e.late = time.AfterFunc(batchDelay, e.sendLate)
	}
	return e.err
}

// send sends what is pending. The caller holds mu.
func (e *eventStream) send() error {
	if e.late != nil {
		e.late.Stop()
		e.late = nil
	}
	if e.err == nil && len(e.pending) > 0 {
		_, e.err = e.w.Write(e.pending)
		e.pending = e.pending[:0]
	}
	return e.err
}

func (e *eventStream) sendLate() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.send()
}

// mark appends a mark after all emitted events.
func (e *eventStream) mark(ctx context.Context) (uint64, error) {
	if err := e.ready(ctx); err != nil {
		return 0, err
	}
	defer e.mu.Unlock()
	e.marks++
	b, err := encodeFrame(eventFrame{Mark: e.marks}, maxEvent)
	if err != nil {
		return 0, err
	}
	e.pending = append(e.pending, b...)
	return e.marks, e.send()
}

// ready returns when there is a stream. The caller then holds mu, unless ready has returned an error.
func (e *eventStream) ready(ctx context.Context) error {
	for {
		e.mu.Lock()
		if e.w != nil {
			return nil
		}
		opened := e.opened
		e.mu.Unlock()
		select {
		case <-opened:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
