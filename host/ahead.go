package host

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/custody-project/custody/ship"
	"github.com/custody-project/custody/store"
)

// Ahead returns a Reader that has a live run's records before its segments are sealed: from the log, if the run is on
// this host, else from its host, over the transport. Close ends it and leaves r open.
func (h *Host) Ahead(ctx context.Context, r Reader, run store.Run) (Reader, error) {
	if h.RunLogs().Live(run.ID) {
		return h.Logs(), nil
	}
	t := h.config.Transport
	if t == nil {
		return unclosed{r}, nil
	}
	name, err := h.Keys().name()
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	a := &ahead{Reader: r, stop: stop, heard: map[uint64]store.Frame{}}
	frames := ship.Watch(ctx, h.Shipping().config(*t, name), run.Tenant, run.ID)
	a.listening.Go(func() { a.listen(frames) })
	return a, nil
}

// unclosed is a Reader that its user does not close.
type unclosed struct{ Reader }

// Close does nothing.
func (unclosed) Close() error { return nil }

// maxHeard bounds the buffered frames of live records. Records of further frames come from the store.
const maxHeard = 1 << 16

// ahead appends live records, received from the run's log or its host, to the records that the store has.
type ahead struct {
	Reader
	stop      context.CancelFunc
	listening sync.WaitGroup

	mu    sync.Mutex // guards the fields below
	heard map[uint64]store.Frame
	err   error
}

// Close stops receiving.
func (a *ahead) Close() error {
	a.stop()
	a.listening.Wait()
	return nil
}

func (a *ahead) listen(frames iter.Seq2[store.Frame, error]) {
	for f, err := range frames {
		if missed := new(ship.Missed); errors.As(err, &missed) {
			continue // the store has it, or will have it
		}
		a.mu.Lock()
		if err != nil {
			a.err = err
		} else if len(a.heard) < maxHeard {
			a.heard[f.Seq] = f
		}
		a.mu.Unlock()
	}
}

// Records yields the store's rows, then the live records that follow them without a gap.
func (a *ahead) Records(ctx context.Context, q store.Query) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		next, n := q.AfterSeq+1, 0
		for row, err := range a.Reader.Records(ctx, q) {
			if n++; !yield(row, err) || err != nil {
				return
			}
			next = row.Seq + 1
		}
		for ; q.Limit == 0 || n < q.Limit; n++ {
			row, ok, err := a.take(q, next)
			if !ok && err == nil || !yield(row, err) || err != nil {
				return
			}
			next++
		}
	}
}

func (a *ahead) take(q store.Query, seq uint64) (store.Row, bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for old := range a.heard {
		if old < seq { // the store has it, or it was returned before
			delete(a.heard, old)
		}
	}
	f, there := a.heard[seq]
	if !there {
		return store.Row{}, false, errors.Join(a.err)
	}
	head, err := store.HeadOf(q.Run, f)
	return store.Row{Head: head, Tenant: q.Tenant, Body: f.Body, Salt: f.Salt, Early: true}, true, err
}

// publishEvery is the shortest interval at which a live run's new records are published on the transport.
const publishEvery = 100 * time.Millisecond

// livePublisher publishes a run's records on the transport as soon as they are durable. Records that it cannot publish
// in time reach readers through the store.
type livePublisher struct {
	run  *Run
	tail *ship.Tail
	next uint64
}

// follow runs until stop is closed, and publishes the end then.
func (t *livePublisher) follow(ctx context.Context, stop <-chan struct{}) {
	defer t.tail.Close()
	for {
		select {
		case <-stop:
			t.pass(ctx)
			return
		case <-t.run.toTail:
			t.pass(ctx)
		}
		select { // records that arrive meanwhile are published together
		case <-stop:
		case <-time.After(publishEvery):
		}
	}
}

func (t *livePublisher) pass(ctx context.Context) {
	durable := t.run.durable()
	if durable < t.next {
		return
	}
	var frames []store.Frame
	for f, err := range t.run.host.RunLogs().framesFrom(t.run.ID, t.next) {
		if err != nil || f.Seq > durable {
			break
		}
		if f.Seq >= t.next {
			frames = append(frames, f)
		}
	}
	t.tail.Publish(ctx, frames)
	t.next = durable + 1
}
