package egress

import (
	"context"
	"sync/atomic"

	"github.com/custody-project/custody/audit"
)

// witness is the record as the enforcers see it: it adds to each event what
// only the sandbox knows, the step under way and the process behind a flow.
type witness struct {
	recorder Recorder
	attempts *attempts
	step     atomic.Pointer[string]
}

func (w *witness) complete(ev *audit.Event) {
	if s := w.step.Load(); s != nil {
		ev.Step = *s
	}
	if ev.Flow != nil {
		w.attempts.fill(ev.Flow)
	}
}

// Record returns when the event is durable.
func (w *witness) Record(ctx context.Context, ev audit.Event) (uint64, error) {
	w.complete(&ev)
	return w.recorder.Record(ctx, ev)
}

// Post returns when the event has its place.
func (w *witness) Post(ctx context.Context, ev audit.Event) (uint64, error) {
	w.complete(&ev)
	return w.recorder.Post(ctx, ev)
}

// Sync returns when the event with that seq is durable.
func (w *witness) Sync(ctx context.Context, seq uint64) error { return w.recorder.Sync(ctx, seq) }
