// Package ship carries sealed segments from the log to a store.
//
// The transport is a NATS JetStream stream. By default (Start) it is on a server inside this
// process that does not listen and keeps messages in memory; in a fleet (Dial, Ingest) it is on
// external servers, which keep messages on disk. Either way the log keeps every segment that the store
// does not have, and lost segments are read from it again. A segment is one message. It leaves the stream when the
// store has committed it; after an error it is delivered again, with increasing
// delays; a segment that no store can ever accept is set aside and reported.
//
//	Publish --> stream (bounded) --> consumer --> Store.Ingest --ok--> ack
//	   ^          |                     ^             |
//	   | waits    | same id: dropped    +--- later ---+ failed
//	   +--full----+                                   | malformed, conflicting
//	                                                  +--> term, Drain reports it
//
// A publisher asks which segments the store has (Stored), and only then removes its log.
package ship

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/custody-project/custody/store"
)

// Store ingests segments and reports which it has; see store.Store. It must accept a segment that it already has.
// store.ErrConflict and store.ErrMalformed are permanent; other errors are retried.
type Store interface {
	Ingest(ctx context.Context, segs ...store.Segment) error
	Repair(ctx context.Context, seg store.Segment) error
	Manifests(ctx context.Context, tenant, run string) ([]store.Manifest, error)
	Records(ctx context.Context, q store.Query) iter.Seq2[store.Row, error]
}

// A failing store gets a segment again after firstRetry, then after twice
// the previous delay, up to lastRetry, as long as the transport is open.
const (
	firstRetry = 20 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// ErrClosed means that the transport was closed.
var ErrClosed = errors.New("transport is closed")

// Transport is a running transport. It is safe for concurrent use.
type Transport struct {
	store Store
	stop  context.CancelFunc
	done  chan struct{} // closed when the goroutine of Start has ended

	ready    chan struct{} // closed when embedded and startErr are set
	embedded *embedded
	startErr error

	publishing sync.Mutex // held through a publish: segments keep their order

	room                    // its lock guards the fields below
	pending map[string]sent // segments that are not committed, by message id
	refused refusals
	failing error // why the store did not accept the last segment, nil if it did
	counts  Stats // without the fields that Stats computes
}

// Start starts a transport into s and returns immediately; the server starts in the background within milliseconds,
// and if it fails Publish and Drain return the error. The caller must call Close; the end of ctx does not stop it.
func Start(ctx context.Context, s Store) *Transport {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	t := &Transport{store: s, stop: stop, done: make(chan struct{}), ready: make(chan struct{}),
		room: room{limit: maxHeld}, pending: map[string]sent{}}
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

// Close stops the transport. Segments that are not committed are still in the log.
func (t *Transport) Close() {
	t.room.close()
	t.stop()
	<-t.done
}

// Publish publishes a segment. It returns when the stream has it, and waits
// while the stream has 64 MiB. Publishing a segment again is harmless.
func (t *Transport) Publish(ctx context.Context, seg store.Segment) error {
	return t.publish(ctx, seg, &nats.Msg{Header: nats.Header{jetstream.MsgIDHeader: {messageID(seg)}}})
}

// Republish publishes a segment that is incomplete or altered in the store: the stream treats it as a new message, and
// the store repairs its rows.
func (t *Transport) Republish(ctx context.Context, seg store.Segment) error {
	return t.publish(ctx, seg, &nats.Msg{Header: repairHeader(seg)})
}

// headerRepair marks a message whose segment is for Store.Repair.
const headerRepair = "Custody-Repair"

// repairHeader has a unique message id.
func repairHeader(seg store.Segment) nats.Header {
	return nats.Header{jetstream.MsgIDHeader: {messageID(seg) + ":again-" + rand.Text()}, headerRepair: {"1"}}
}

func isRepair(h nats.Header) bool { return h.Get(headerRepair) == "1" }

// publish sends msg with its subject and header.
func (t *Transport) publish(ctx context.Context, seg store.Segment, msg *nats.Msg) error {
	message, err := Encode(seg)
	if err != nil {
		return fmt.Errorf("publish segment: %w", err)
	}
	subject, err := subjectOf(seg.Tenant, seg.Host, seg.Run)
	if err != nil {
		return fmt.Errorf("publish segment: %w", err)
	}
	t.publishing.Lock()
	defer t.publishing.Unlock()
	msg.Subject, msg.Data = subject, message
	if err := t.send(ctx, msg); err != nil {
		return fmt.Errorf("publish segment of run %s, seq %d to %d: %w", seg.Run, seg.First, seg.Last, err)
	}
	return nil
}

func (t *Transport) send(ctx context.Context, msg *nats.Msg) error {
	if err := t.waitReady(ctx); err != nil {
		return err
	}
	id := msg.Header.Get(jetstream.MsgIDHeader)
	s := sent{size: len(msg.Data), at: time.Now()}
	fresh, err := t.hold(ctx, id, s)
	if err != nil {
		return err
	}
	ack, err := t.embedded.stream.PublishMsg(ctx, msg)
	if fresh && (err != nil || ack.Duplicate) {
		// The message was not stored, or a duplicate is already committed.
		t.release(id)
	}
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.Published++
	t.counts.PublishedBytes += uint64(s.size)
	t.counts.Publish.add(time.Since(s.at))
	return nil
}

// hold waits for space, counts a message as pending and reports whether it was not pending before.
func (t *Transport) hold(ctx context.Context, id string, s sent) (fresh bool, err error) {
	if err := t.enter(ctx, s.size); err != nil {
		return false, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, there := t.pending[id]; there {
		t.held -= s.size
		t.signal()
		return false, nil
	}
	t.pending[id] = s
	return true, nil
}

func (t *Transport) release(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held -= t.pending[id].size
	delete(t.pending, id)
	t.signal()
}

// Drain waits until all published segments are committed to the store. Its error
// joins those of the segments that the store refused.
func (t *Transport) Drain(ctx context.Context) error {
	err := t.waitReady(ctx)
	if err == nil {
		err = t.wait(ctx, func() bool { return len(t.pending) == 0 })
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		err = fmt.Errorf("%d segments have not reached the store: %w", len(t.pending), errors.Join(err, t.failing))
	}
	return errors.Join(t.refused.err(), err)
}

// Stored returns the segments of a run in the store, in order; none if the store does not have the run.
// A deep answer is computed from the records in the store.
func (t *Transport) Stored(ctx context.Context, tenant, run string, deep bool) (found []Held, err error) {
	err = held(ctx, t.store, tenant, run, 0, deep, func(h Held) error {
		found = append(found, h)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("ask what the store has of run %s: %w", run, err)
	}
	return found, nil
}

// Committed returns how many segments the store has committed.
func (t *Transport) Committed() uint64 { return t.Stats().Stored }

// Stats returns statistics of this transport.
func (t *Transport) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.counts
	s.underway(t.pending)
	if t.failing != nil {
		s.Failing = t.failing.Error()
	}
	return s
}

func (t *Transport) waitReady(ctx context.Context) error {
	select {
	case <-t.ready:
		return t.startErr
	case <-ctx.Done():
		return ctx.Err()
	}
}
