package host

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/custody-project/custody/audit/wal"
)

// defaultKeyWait is the time that the end of a run waits for a key that cannot sign.
const defaultKeyWait = 30 * time.Second

// keyWatch is a Sealer that records whether its key could sign. A key in another process may be unavailable.
type keyWatch struct {
	wal.Sealer
	wait time.Duration
	away atomic.Bool // the last try failed
}

// Seal implements wal.Sealer.
func (k *keyWatch) Seal(s wal.Segment) (leaves, manifest []byte, err error) {
	leaves, manifest, err = k.Sealer.Seal(s)
	k.away.Store(err != nil)
	return leaves, manifest, err
}

// giveUp calls stop when the key could not sign for the time wait, counted from now at the earliest. It returns when
// ctx is done.
func (k *keyWatch) giveUp(ctx context.Context, stop func()) {
	tick := time.NewTicker(k.wait/20 + time.Millisecond)
	defer tick.Stop()
	var away time.Time // when the key was first seen to fail
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			switch {
			case !k.away.Load():
				away = time.Time{}
			case away.IsZero():
				away = now
			case now.Sub(away) >= k.wait:
				stop()
				return
			}
		}
	}
}
