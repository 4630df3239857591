package ship

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// ingest moves segments from the consumer into the store until ctx ends.
func (t *Transport) ingest(ctx context.Context) {
	messages, err := t.embedded.consumer.Messages(jetstream.PullMaxMessages(1))
	if err != nil { // options that are constant were refused, or the server is gone
		t.refuse("", err)
		return
	}
	defer messages.Stop()
	for ctx.Err() == nil {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err == nil {
			t.take(ctx, m)
		} else if errors.Is(err, jetstream.ErrMsgIteratorClosed) {
			return
		} else if ctx.Err() == nil {
			pause(ctx, firstRetry) // a missed heartbeat; the iterator goes on
		}
	}
}

// take ingests one message and tells the server what became of it. An answer
// that gets lost means a repeat, which the store does not mind.
func (t *Transport) take(ctx context.Context, m jetstream.Msg) {
	id := m.Headers().Get(jetstream.MsgIDHeader)
	start := time.Now()
	seg, err := Decode(m.Data())
	if err == nil && isRepair(m.Headers()) {
		err = t.store.Repair(ctx, seg)
	} else if err == nil {
		err = t.store.Ingest(ctx, seg)
	}
	switch {
	case err == nil:
		_ = m.Ack()
		t.commit(id, time.Since(start))
	case isFinal(err):
		_ = m.Term()
		t.refuse(id, err)
	case ctx.Err() != nil: // closing; the message goes with the server
	default:
		_ = m.NakWithDelay(retryAfter(m))
		t.mu.Lock()
		t.counts.StoreFailures++
		t.failing = err
		t.mu.Unlock()
	}
}

func retryAfter(m jetstream.Msg) time.Duration {
	meta, err := m.Metadata()
	if err != nil {
		return lastRetry
	}
	delay := firstRetry
	for i := uint64(1); i < meta.NumDelivered && delay < lastRetry; i++ {
		delay *= 2
	}
	return min(delay, lastRetry)
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
