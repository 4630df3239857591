package sandbox

import (
	"context"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
)

type events []audit.Event

func (e *events) Record(ctx context.Context, ev audit.Event) (uint64, error) { return e.Post(ctx, ev) }
func (e *events) Sync(context.Context, uint64) error                         { return nil }
func (e *events) Post(_ context.Context, ev audit.Event) (uint64, error) {
	*e = append(*e, ev)
	return uint64(len(*e)), nil
}

// TestInterruptedLeases: Interrupted records for each credential that it expires, and when.
func TestInterruptedLeases(t *testing.T) {
	end := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	secret := func(step, name string, op audit.SecretOp, accessor string, until time.Time) audit.Event {
		return audit.Event{Kind: audit.KindSecret, Step: step, Observer: audit.Host,
			Secret: &audit.Secret{Name: name, Op: op, Accessor: accessor, Expires: until}}
	}
	died := []audit.Event{
		secret("one", "git", audit.SecretMint, "a1", end),
		secret("one", "git", audit.SecretRevoke, "a1", time.Time{}),
		secret("two", "git", audit.SecretMint, "a2", end),
		secret("two", "db", audit.SecretMint, "a2", end),
		secret("two", "", audit.SecretRenew, "a2", end.Add(time.Minute)),
		secret("two", "db", audit.SecretRevoke, "a2", time.Time{}),
	}
	var log events
	closed, err := Interrupted(t.Context(), &log, "", func(yield func(audit.Record, error) bool) {
		for _, ev := range died {
			if !yield(audit.Record{Event: ev}, nil) {
				return
			}
		}
	})
	if !closed || err != nil || len(log) != 2 {
		t.Fatalf("%v, %v, %+v", closed, err, log)
	}
	s := log[0].Secret
	if s == nil || s.Op != audit.SecretExpire || s.Name != "git" || s.Accessor != "a2" || log[0].Step != "two" || !s.Expires.Equal(end.Add(time.Minute)) {
		t.Errorf("%+v", s)
	}
}
