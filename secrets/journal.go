package secrets

import (
	"context"
	"fmt"

	"github.com/custody-project/custody/audit"
)

// Recorder records events of the run; audit.Recorder implements it.
type Recorder interface {
	// Record returns when the event is durable.
	Record(ctx context.Context, ev audit.Event) (seq uint64, err error)
	// Post returns when the event is accepted; it is durable before any later one.
	Post(ctx context.Context, ev audit.Event) (seq uint64, err error)
}

// journal records an Issuer's events.
type journal struct{ recorder Recorder }

// record returns when the events, in their order, are durable.
func (j journal) record(ctx context.Context, events ...audit.Event) error {
	for at, ev := range events {
		put := j.recorder.Post
		if at == len(events)-1 {
			put = j.recorder.Record
		}
		ev.Observer = audit.Host
		if _, err := put(ctx, ev); err != nil {
			return fmt.Errorf("record %s: %w", ev.Kind, err)
		}
	}
	return nil
}

// post returns when the event is accepted.
func (j journal) post(ctx context.Context, ev audit.Event) error {
	ev.Observer = audit.Host
	if _, err := j.recorder.Post(ctx, ev); err != nil {
		return fmt.Errorf("record %s: %w", ev.Kind, err)
	}
	return nil
}
