package egress

import (
	"context"
	"sync/atomic"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/gateway"
)

// witness is the record as the enforcers see it: it adds to each event what
// only the sandbox knows, the current step and the process behind a flow.
type witness struct {
	recorder Recorder
	attempts *attempts
	step     atomic.Pointer[string]
	// credentials gets the placeholders in questions; values are masked in the record, and found there. Nil: there are none.
	credentials gateway.Credentials
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
	return w.seen(ctx, ev, w.recorder.Record)
}

// Post returns when the event has its place.
func (w *witness) Post(ctx context.Context, ev audit.Event) (uint64, error) {
	return w.seen(ctx, ev, w.recorder.Post)
}

func (w *witness) seen(ctx context.Context, ev audit.Event, record func(context.Context, audit.Event) (uint64, error)) (uint64, error) {
	w.complete(&ev)
	if ev.DNS == nil || w.credentials == nil {
		return record(ctx, ev)
	}
	asked := string(ev.DNS.Name) // what is recorded is masked
	seq, err := record(ctx, ev)
	found, _ := w.find(asked) // what could not be looked through has been refused
	for _, secret := range found {
		w.credentials.Presented(ctx, secret, "the resolver", "a question", seq)
	}
	return seq, err
}

// holdsSecret reports whether a secret or a placeholder stands in a name, or that this cannot be known.
func (w *witness) holdsSecret(name string) bool {
	found, ok := w.find(name)
	return !ok || len(found) > 0
}

// find returns the secrets that stand in a name; not ok means that it could not be looked through.
func (w *witness) find(name string) (found []string, ok bool) {
	if w.credentials == nil {
		return nil, true
	}
	defer func() {
		if recover() != nil {
			found, ok = nil, false
		}
	}()
	return w.credentials.Find([]byte(name)), true
}

// Sync returns when the event with that seq is durable.
func (w *witness) Sync(ctx context.Context, seq uint64) error { return w.recorder.Sync(ctx, seq) }
