// Package ship carries sealed segments from the log to a store.
//
// The way is a NATS JetStream stream, by default on a server inside this
// process that listens nowhere and keeps messages in memory: the log is the
// truth, so whatever is under way when the process dies is read from the log
// again. A segment is one message. It leaves the stream when the store has
// committed it; one that the store could not take is delivered again, later and
// later; one that the store can never take is dropped here and reported.
//
//	Publish --> stream (bounded) --> consumer --> Store.Ingest --ok--> ack
//	   ^          |                     ^             |
//	   | waits    | same id: dropped    +--- later ---+ failed
//	   +--full----+                                   | malformed, conflicting
//	                                                  +--> term, Drain reports it
package ship

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/custody-project/custody/audit/store"
)

// Store takes segments in. It must not mind a segment that it already has.
// store.ErrConflict and store.ErrMalformed are final; other errors are tried again.
type Store interface {
	Ingest(ctx context.Context, segs ...store.Segment) error
}

// A store that fails gets a segment again after firstRetry, then after twice
// the time before, up to lastRetry, for as long as the transport is open.
const (
	firstRetry = 20 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// maxRefused errors are kept for Drain; of later ones only the number.
const maxRefused = 16

// ErrClosed means that the transport was closed.
var ErrClosed = errors.New("transport is closed")

// Transport is a running transport. Its methods may be called at once.
type Transport struct {
	store Store
	stop  context.CancelFunc
	done  chan struct{} // closed when the goroutine of Start has ended

	ready    chan struct{} // closed when embedded and startErr are set
	embedded *embedded
	startErr error

	publishing sync.Mutex // held through a publish: segments keep their order

	mu       sync.Mutex // guards all below
	changed  chan struct{}
	pending  map[string]int // bytes of messages that are not committed, by id
	held     int            // sum of pending
	refused  []error
	dropped  int   // refused beyond maxRefused
	failing  error // why the store did not take the last segment, nil if it did
	closed   bool
	accepted uint64 // segments committed
}

// Start starts a transport into s and returns at once; the server comes up
// behind it within milliseconds, and an error of that is what Publish and Drain
// return. The caller ends it with Close; the end of ctx does not.
func Start(ctx context.Context, s Store) *Transport {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	t := &Transport{store: s, stop: stop, done: make(chan struct{}), ready: make(chan struct{}),
		changed: make(chan struct{}), pending: map[string]int{}}
	go func() { // Close waits for it
		defer close(t.done)
		t.embedded, t.startErr = startEmbedded(ctx)
		close(t.ready)
		if t.startErr == nil {
			t.ingest(ctx)
			t.embedded.stop()
		}
	}()
	return t
}

// Close ends the transport. What was not committed is still in the log.
func (t *Transport) Close() {
	t.mu.Lock()
	t.closed = true
	t.signal()
	t.mu.Unlock()
	t.stop()
	<-t.done
}

// Publish hands a segment over. It returns when the stream has it, and waits
// while 64 MiB are held there. Publishing a segment again is harmless.
func (t *Transport) Publish(ctx context.Context, seg store.Segment) error {
	message, err := Encode(seg)
	if err != nil {
		return fmt.Errorf("publish segment: %w", err)
	}
	subject, err := subjectOf(seg.Run)
	if err != nil {
		return fmt.Errorf("publish segment: %w", err)
	}
	t.publishing.Lock()
	defer t.publishing.Unlock()
	if err := t.publish(ctx, subject, messageID(seg), message); err != nil {
		return fmt.Errorf("publish segment of run %s, seq %d to %d: %w", seg.Run, seg.First, seg.Last, err)
	}
	return nil
}

func (t *Transport) publish(ctx context.Context, subject, id string, message []byte) error {
	if err := t.waitReady(ctx); err != nil {
		return err
	}
	err := t.waitFor(ctx, func() bool { return t.held == 0 || t.held+len(message) <= maxHeld })
	if err != nil {
		return err
	}
	fresh := t.hold(id, len(message))
	ack, err := t.embedded.stream.Publish(ctx, subject, message, jetstream.WithMsgID(id))
	if fresh && (err != nil || ack.Duplicate) {
		// It did not get there, or did earlier and is committed already.
		t.release(id)
	}
	return err
}

// hold counts a message as under way and reports whether it was not before.
func (t *Transport) hold(id string, size int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, there := t.pending[id]; there {
		return false
	}
	t.pending[id] = size
	t.held += size
	return true
}

func (t *Transport) release(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held -= t.pending[id]
	delete(t.pending, id)
	t.signal()
}

// Drain waits until all that was published is committed to the store. Its error
// joins those of the segments that the store refused for good.
func (t *Transport) Drain(ctx context.Context) error {
	err := t.waitReady(ctx)
	if err == nil {
		err = t.waitFor(ctx, func() bool { return len(t.pending) == 0 })
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		err = fmt.Errorf("%d segments have not reached the store: %w", len(t.pending), errors.Join(err, t.failing))
	}
	if t.dropped > 0 {
		err = errors.Join(err, fmt.Errorf("and %d more segments were refused", t.dropped))
	}
	return errors.Join(errors.Join(t.refused...), err)
}

// Committed returns how many segments the store has committed.
func (t *Transport) Committed() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.accepted
}

func (t *Transport) waitReady(ctx context.Context) error {
	select {
	case <-t.ready:
		return t.startErr
	case <-ctx.Done():
		return ctx.Err()
	}
}

// waitFor waits until condition, called under mu, holds.
func (t *Transport) waitFor(ctx context.Context, condition func() bool) error {
	for {
		t.mu.Lock()
		ok, closed, changed := condition(), t.closed, t.changed
		t.mu.Unlock()
		switch {
		case closed:
			return ErrClosed
		case ok:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// signal wakes all that wait. The caller holds mu.
func (t *Transport) signal() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// subjectOf returns the subject for a run's segments. NATS gives dots, spaces
// and wildcards in it a meaning; a dot, which a run's name may have, becomes an
// underscore. The message itself says which run it is of.
func subjectOf(run string) (string, error) {
	valid := func(r rune) bool {
		return r == '-' || r == '_' || r == '.' || (r >= '0' && r <= '9') || (r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z')
	}
	if run == "" || strings.ContainsFunc(run, func(r rune) bool { return !valid(r) }) {
		return "", fmt.Errorf("%w: a run cannot be called %.40q", store.ErrMalformed, run)
	}
	return strings.TrimSuffix(subjects, "*") + strings.ReplaceAll(run, ".", "_"), nil
}

// messageID names what a message says, for the server to drop repeats.
func messageID(seg store.Segment) string {
	if len(seg.Frames) == 0 {
		return fmt.Sprintf("%s:manifest-%d:%x", seg.Run, seg.Index, seg.Root)
	}
	return fmt.Sprintf("%s:%d-%d:%x", seg.Run, seg.First, seg.Last, seg.Root)
}
