package host

import (
	"context"
	"fmt"
	"time"

	"github.com/custody-project/custody/ship"
)

// The time that the end of a run waits for a store that this process writes to, since the store last took a segment.
const (
	failingWait = 5 * time.Second  // if its last answer was an error
	silentWait  = 30 * time.Second // if it has not answered: SQLite waits 15 s for another process's transaction
)

// patient returns a context that outlasts ctx while t still brings segments into its store.
func patient(ctx context.Context, t *ship.Transport) (context.Context, context.CancelFunc) {
	keep, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(stuck(keep, t)) })
	return keep, func() {
		stop()
		cancel(nil)
	}
}

// stuck returns when t has brought nothing into its store for too long, or when ctx ends.
func stuck(ctx context.Context, t *ship.Transport) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	settled, since := uint64(0), time.Now()
	for {
		stats := t.Stats()
		if n := stats.Stored + stats.Refused; n != settled {
			settled, since = n, time.Now()
		}
		limit := silentWait
		if stats.Failing != "" {
			limit = failingWait
		}
		if time.Since(since) >= limit {
			return fmt.Errorf("the store took no segment for %v", limit)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
