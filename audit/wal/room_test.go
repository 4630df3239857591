package wal_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/custody-project/custody/audit/wal"
)

var errSpool = errors.New("the spool is full")

// TestRoom has a spool that is full until its records are sealed and shipped:
// in strict mode the log waits and loses nothing, and it seals the active segment, since
// it could not be shipped otherwise.
func TestRoom(t *testing.T) {
	k := newKey(t)
	dir := runDir(t)
	var full atomic.Bool
	stalled, resumed := make(chan error, 1), make(chan bool, 1)
	o := k.options()
	o.Room = func() error {
		if full.Load() {
			return errSpool
		}
		return nil
	}
	o.OnStall = func(err error) { stalled <- err }
	o.OnResume = func() { resumed <- true }
	l, err := wal.Create(dir, o)
	check(t, err)
	want := map[int]uint64{}
	put := func(id int) uint64 {
		seq, err := l.Append(t.Context(), event(t, id))
		check(t, err)
		want[id] = seq
		return seq
	}
	check(t, l.Sync(t.Context(), put(0)))
	full.Store(true)
	waiting := put(1)
	if err := <-stalled; !errors.Is(err, errSpool) || !errors.Is(err, wal.ErrNoRoom) {
		t.Errorf("stalled with %v", err)
	}
	if sealed := glob(t, dir, "*"+wal.ManifestSuffix); len(sealed) != 1 {
		t.Errorf("%d segments are sealed while there is no space, want 1", len(sealed))
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := l.Sync(short, waiting); !errors.Is(err, context.DeadlineExceeded) || l.Durable() != 1 {
		t.Errorf("sync without space: %v, durable to %d", err, l.Durable())
	}
	full.Store(false)
	<-resumed
	check(t, l.Sync(t.Context(), waiting))
	if l.Durable() != waiting {
		t.Errorf("durable to %d, want %d", l.Durable(), waiting)
	}
	check(t, l.Close(t.Context(), wal.Sealed))
	holds(t, read(t, dir), want)
	verify(t, dir, k)
}

// TestRoomDegrade checks that a gap record declares the dropped events, with the cause.
func TestRoomDegrade(t *testing.T) {
	k := newKey(t)
	dir := runDir(t)
	var full atomic.Bool
	resumed, stalled := make(chan bool, 1), make(chan error, 1)
	o := k.options()
	o.Mode, o.BufferBytes = wal.Degrade, 1000
	o.Room = func() error {
		if full.Load() {
			return errSpool
		}
		return nil
	}
	o.OnStall = func(err error) { stalled <- err }
	o.OnResume = func() { resumed <- true }
	l, err := wal.Create(dir, o)
	check(t, err)
	full.Store(true)
	want, lost := map[int]uint64{}, uint64(0)
	for id := range 50 {
		seq, err := l.Append(t.Context(), event(t, id))
		switch {
		case err == nil:
			want[id] = seq
		case errors.Is(err, wal.ErrDropped):
			lost++
		default:
			t.Fatal(err)
		}
		if id == 0 {
			<-stalled
		}
	}
	full.Store(false)
	<-resumed
	check(t, l.Close(t.Context(), wal.Sealed))
	holds(t, read(t, dir), want)
	report := verify(t, dir, k)
	if len(report.Gaps) != 1 || report.Gaps[0].Count != lost || report.Gaps[0].Cause != wal.ErrNoRoom.Error() {
		t.Errorf("%d lost, declared %+v", lost, report.Gaps)
	}
}

// TestOnCommit checks that each record is counted once, with its bytes, and that each seal is reported when its manifest exists.
func TestOnCommit(t *testing.T) {
	k := newKey(t)
	dir := runDir(t)
	var records, bytes int
	var took []time.Duration
	o := k.options()
	o.SegmentBytes = segmentBytes
	o.OnCommit = func(r, b int, d time.Duration) {
		records, bytes = records+r, bytes+b
		took = append(took, d)
	}
	seals := 0
	o.OnSeal = func() {
		seals++
		if manifests := glob(t, filepath.Clean(dir), "*"+wal.ManifestSuffix); len(manifests) != seals {
			t.Errorf("seal %d was reported with %d manifests", seals, len(manifests))
		}
	}
	l, err := wal.Create(dir, o)
	check(t, err)
	done, err := script(t.Context(), t, l) // after Close no goroutine calls OnCommit
	check(t, err)
	if manifests := glob(t, filepath.Clean(dir), "*"+wal.ManifestSuffix); len(manifests) != seals {
		t.Errorf("%d seals were reported, there are %d manifests", seals, len(manifests))
	}
	var size int
	for _, f := range frames(t, dir) {
		size += int(f.Size())
	}
	if records != len(done.posted) || bytes != size {
		t.Errorf("%d records of %d bytes, want %d of %d", records, bytes, len(done.posted), size)
	}
	if slices.Min(took) <= 0 {
		t.Errorf("a commit took %v", slices.Min(took))
	}
	if paths := glob(t, filepath.Clean(dir), "*"+wal.SegmentSuffix); len(paths) < 3 {
		t.Errorf("only %d segments", len(paths))
	}
}
