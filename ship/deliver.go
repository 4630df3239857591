package ship

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/custody-project/custody/store"
)

// A transport in this process passes waiting segments to the store together, up to these bounds: each call
// costs a commit, or round trips, regardless of their number.
const (
	maxTogether  = 8
	rowsTogether = 50_000
)

// delivery is a segment that is passed to the store.
type delivery struct {
	msg    jetstream.Msg
	id     string
	seg    store.Segment
	repair bool
}

// ingest moves segments from the consumer into the store until ctx ends.
func (t *Transport) ingest(ctx context.Context) {
	for ctx.Err() == nil {
		for batch := t.next(ctx); len(batch) > 0 && ctx.Err() == nil; {
			n := together(batch)
			t.insist(ctx, batch[:n])
			batch = batch[n:]
		}
	}
}

// next waits for a segment and returns it with those that wait after it, in order. It returns none if none
// arrived for a while.
func (t *Transport) next(ctx context.Context) []delivery {
	m, err := t.embedded.consumer.Next(jetstream.FetchContext(ctx))
	if err != nil {
		if !errors.Is(err, nats.ErrTimeout) && !errors.Is(err, jetstream.ErrNoMessages) {
			pause(ctx, firstRetry)
		}
		return nil
	}
	batch := t.open(nil, m)
	if more, err := t.embedded.consumer.FetchNoWait(maxTogether - 1); err == nil {
		for m := range more.Messages() {
			batch = t.open(batch, m)
		}
	}
	return batch
}

// open adds the segment in a message to batch, and refuses other messages.
func (t *Transport) open(batch []delivery, m jetstream.Msg) []delivery {
	d := delivery{msg: m, id: m.Headers().Get(jetstream.MsgIDHeader), repair: isRepair(m.Headers())}
	var err error
	if d.seg, err = Decode(m.Data()); err != nil {
		_ = m.Term()
		t.refuse(d.id, err)
		return batch
	}
	return append(batch, d)
}

// together returns how many segments at the start of a batch the store ingests in one call: a repair is a separate call.
func together(batch []delivery) int {
	rows := 0
	for i, d := range batch {
		rows += len(d.seg.Frames)
		if i > 0 && (d.repair || batch[0].repair || rows > rowsTogether) {
			return i
		}
	}
	return len(batch)
}

// insist passes segments to the store with increasing delays, until it has ingested or refused each, or ctx ends; the
// rest are lost with the server. Later segments wait: records appear in the store in order. A lost ack
// causes a redelivery, which the store ignores.
func (t *Transport) insist(ctx context.Context, batch []delivery) {
	for failures, delay := 1, firstRetry; ctx.Err() == nil; failures, delay = failures+1, min(2*delay, lastRetry) {
		start := time.Now()
		err := t.hand(ctx, batch)
		switch {
		case err == nil:
			for _, d := range batch {
				_ = d.msg.Ack()
				t.commit(d.id, time.Since(start))
			}
			return
		case isFinal(err) && len(batch) == 1:
			_ = batch[0].msg.Term()
			t.refuse(batch[0].id, err)
			return
		case len(batch) > 1 && (isFinal(err) || failures == patience): // the failure may be due to one of them
			for i := range batch {
				t.insist(ctx, batch[i:i+1])
			}
			return
		case ctx.Err() == nil:
			t.fail(err)
			for _, d := range batch {
				_ = d.msg.InProgress()
			}
			pause(ctx, delay)
		}
	}
}

// hand calls the store.
func (t *Transport) hand(ctx context.Context, batch []delivery) error {
	if batch[0].repair {
		return t.store.Repair(ctx, batch[0].seg)
	}
	segs := make([]store.Segment, len(batch))
	for i, d := range batch {
		segs[i] = d.seg
	}
	return t.store.Ingest(ctx, segs...)
}

func (t *Transport) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.StoreFailures++
	t.failing = err
}

func (t *Transport) commit(id string, took time.Duration) {
	t.mu.Lock()
	t.counts.Stored++
	t.counts.Commit.add(took)
	t.failing = nil
	t.mu.Unlock()
	t.release(id)
}

func (t *Transport) refuse(id string, err error) {
	t.mu.Lock()
	t.counts.Refused++
	t.refused.add(err)
	t.mu.Unlock()
	t.release(id)
}
