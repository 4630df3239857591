package export

import (
	"context"
	"fmt"
	"time"

	"github.com/custody-project/custody/store"
)

// batch is the events of one request, and the cursor after them.
type batch struct {
	items   []Item
	misfits []Letter // events that the format does not support
	bytes   int
	at      Cursor
}

// feeder reads a store's feed and builds batches.
type feeder struct {
	x       *Exporter
	out     chan<- batch
	read    *reader
	queue   *queue
	part    Part // position of the previous process in a segment
	b       batch
	flushed Cursor // of the last batch that was passed on
}

func newFeeder(x *Exporter, out chan<- batch) *feeder {
	return &feeder{x: x, out: out, read: newReader(x.o.Source), queue: newQueue(x.cursor.Feed), part: x.cursor.Part,
		b: batch{at: x.cursor}, flushed: x.cursor}
}

// run builds batches until ctx is done, or until the end of the feed if it does not follow.
func (f *feeder) run(ctx context.Context, follow bool) error {
	fails := 0
	for ctx.Err() == nil {
		more, err := f.step(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			fails++
			f.x.told.failed(fmt.Errorf("read the store: %w", err))
			f.x.o.Log.Warn("the store cannot be read", "err", err)
			sleep(ctx, min(f.x.o.Retry.First<<min(fails, 10), f.x.o.Retry.Max))
		case err == nil && fails > 0:
			fails = 0
			f.x.told.change(func(s *Stats) { s.FailingSince = time.Time{} }) // a failing sink reports its failure again
		case err == nil && more:
		case err == nil && !follow && len(f.queue.refs) == 0:
			return nil
		default:
			sleep(ctx, f.x.o.Poll)
		}
	}
	if follow {
		return nil
	}
	return context.Cause(ctx)
}

// step exports one segment, or asks the store for more; more is false when there is nothing to do now.
func (f *feeder) step(ctx context.Context) (more bool, err error) {
	if next := f.queue.next(time.Now()); next != nil {
		return true, f.segment(ctx, next)
	}
	if more, err = f.fetch(ctx); err != nil || more {
		return more, err
	}
	// All that there is was read: what is gathered need not wait for more.
	return false, f.flush(ctx)
}

// fetch asks the store for refs; the filter leaves out those of other runs.
func (f *feeder) fetch(ctx context.Context) (bool, error) {
	room := f.queue.room()
	if room == 0 {
		return false, nil
	}
	refs, err := f.x.o.Source.Feed(ctx, f.queue.fetch, room)
	if err != nil {
		return false, err
	}
	f.queue.add(refs, time.Now())
	return len(refs) > 0, nil
}

// segment exports what is left of a segment.
func (f *feeder) segment(ctx context.Context, q *queued) error {
	ref := q.Ref
	if ref.Count > 0 && f.x.o.Filter.run(ref.Tenant, ref.Run) {
		if err := f.events(ctx, ref); err != nil {
			return err
		}
	}
	f.queue.finish(q)
	f.b.at = Cursor{V: 1, Feed: f.queue.cursor}
	if f.x.o.Batch.Segments {
		return f.flush(ctx)
	}
	return nil
}

// events puts the events of ref into batches. What is in batches that were handed over is in
// f.part, so that it does not come twice when the store fails between.
func (f *feeder) events(ctx context.Context, ref store.Ref) error {
	var after, seen, wrong uint64
	if f.part.in(ref) {
		after = f.part.Seq
	}
	for e, err := range f.read.segment(ctx, ref, after, f.x.o.Filter.Kinds) {
		if err != nil {
			return err
		}
		if seen++; e.Wrong() {
			wrong++
		}
		if err := f.event(ctx, e); err != nil {
			return err
		}
		f.part = Part{Tenant: ref.Tenant, Run: ref.Run, Index: ref.Index, Seq: e.Seq}
		f.b.at = Cursor{V: 1, Feed: f.queue.cursor, Part: f.part}
	}
	f.part = Part{}
	if wrong > 0 {
		f.x.o.Log.Error("the store has records that differ from their host's signature; they are exported with a mark, and custody fsck names them",
			"run", ref.Run, "segment", ref.Index, "count", wrong)
	}
	if len(f.x.o.Filter.Kinds) == 0 && after == 0 && seen < ref.Count {
		f.missing(ref, ref.Count-seen)
	}
	return nil
}

// missing returns the error for a store with fewer records than it ingested: it is unknown which, and waiting does not help.
func (f *feeder) missing(ref store.Ref, n uint64) {
	f.x.told.change(func(s *Stats) { s.Missing += n })
	f.x.o.Log.Error("the store lacks records that it took in; custody fsck compares it with the log",
		"run", ref.Run, "segment", ref.Index, "count", n)
}

// event formats one event and adds it to the batch, which is first passed on if it is full.
func (f *feeder) event(ctx context.Context, e Event) error {
	item, pass, misfit := f.x.o.Filter.item(e, f.x.o.Format)
	if !pass {
		return nil
	}
	limit, n := f.x.o.Batch, len(f.b.items)+len(f.b.misfits)
	if n > 0 && (n >= limit.Items || f.b.bytes+len(item.Data) > limit.Bytes) {
		if err := f.flush(ctx); err != nil {
			return err
		}
	}
	f.b.bytes += len(item.Data)
	if misfit != nil {
		f.b.misfits = append(f.b.misfits, letter(item, "", misfit.Error(), time.Now()))
		return nil
	}
	f.b.items = append(f.b.items, item)
	return nil
}

// flush passes the batch on. A batch without events is passed on for its cursor.
func (f *feeder) flush(ctx context.Context) error {
	if len(f.b.items)+len(f.b.misfits) == 0 && f.b.at == f.flushed {
		return nil
	}
	select {
	case f.out <- f.b:
		f.flushed = f.b.at
		f.b = batch{at: f.b.at}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
