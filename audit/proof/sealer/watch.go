package sealer

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/custody-project/custody/audit/wal"
)

// defaultWait is how long the end of a run waits for a key that cannot sign.
const defaultWait = 30 * time.Second

// Watch is a wal.Sealer that notices whether its key can sign: a key in another process or at a server may be unavailable.
type Watch struct {
	wal.Sealer
	Wait time.Duration // how long a log that is closed waits for the key; default 30 s

	away atomic.Bool // the last try failed
}

// Seal implements wal.Sealer.
func (w *Watch) Seal(s wal.Segment) (leaves, manifest []byte, err error) {
	leaves, manifest, err = w.Sealer.Seal(s)
	w.away.Store(err != nil)
	return leaves, manifest, err
}

// Close closes a log that this Watch seals. If the key cannot sign for the time Wait, the last records stay unsigned, and the error states why.
func (w *Watch) Close(ctx context.Context, log *wal.Log, closing wal.Closing) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go w.giveUp(ctx, cancel)
	err := log.Close(ctx, closing)
	if err != nil && w.away.Load() {
		return fmt.Errorf("all records are on the disk, but the last ones are not signed; the next custody command that can sign them does so: %w", err)
	}
	return err
}

// giveUp calls stop when the key could not sign for the time Wait, counted from now at the earliest. It returns when
// ctx is done.
func (w *Watch) giveUp(ctx context.Context, stop func()) {
	wait := cmp.Or(w.Wait, defaultWait)
	tick := time.NewTicker(wait/20 + time.Millisecond)
	defer tick.Stop()
	var away time.Time // when the key was first seen to fail
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			switch {
			case !w.away.Load():
				away = time.Time{}
			case away.IsZero():
				away = now
			case now.Sub(away) >= wait:
				stop()
				return
			}
		}
	}
}
