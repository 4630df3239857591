package wal_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/custody-project/custody/audit/wal"
)

// away is a sealer whose key is unreachable for a while.
type away struct {
	wal.Sealer
	gone *atomic.Bool
}

var errAway = errors.New("the key cannot be reached")

func (a away) Seal(seg wal.Segment) (leaves, manifest []byte, err error) {
	if a.gone.Load() {
		return nil, nil, errAway
	}
	return a.Sealer.Seal(seg)
}

// TestKeyAway: if a remote key is unreachable when a segment must be sealed, the log
// stalls as with a full disk, until the key is reachable again.
func TestKeyAway(t *testing.T) {
	k := newKey(t)
	dir := runDir(t)
	var gone atomic.Bool
	stalled, resumed := make(chan error, 1), make(chan bool, 1)
	o := k.options()
	o.Sealer = away{o.Sealer, &gone}
	o.OnStall = func(err error) { stalled <- err }
	o.OnResume = func() { resumed <- true }
	l, err := wal.Create(dir, o)
	check(t, err)
	seq, err := l.Append(t.Context(), event(t, 0))
	check(t, err)
	check(t, l.Sync(t.Context(), seq))
	gone.Store(true)
	rotated := make(chan error, 1)
	go func() { rotated <- l.Rotate(t.Context()) }()
	if err := <-stalled; !errors.Is(err, errAway) {
		t.Errorf("stalled with %v", err)
	}
	gone.Store(false)
	<-resumed
	check(t, <-rotated)
	check(t, l.Close(t.Context(), wal.Sealed))
	holds(t, read(t, dir), map[int]uint64{0: seq})
	verify(t, dir, k)
}
