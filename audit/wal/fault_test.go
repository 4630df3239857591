package wal_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/custody-project/custody/audit/wal"
)

const segmentBytes = 700 // three or four events

// TestFaultInEveryOperation fails each single file operation of a run in turn,
// once or several times in a row, and checks that the run continues and loses nothing.
func TestFaultInEveryOperation(t *testing.T) {
	k := newKey(t)
	for times, errno := range map[int]syscall.Errno{1: syscall.EIO, 2: syscall.ENOSPC, 5: syscall.EIO} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%d/late=%v", errno.Error(), times, late), func(t *testing.T) {
				for n := 0; oneFault(t, k, n, times, errno, late); n++ {
					if n > 1000 {
						t.Fatal("the script does not end")
					}
				}
			})
		}
	}
}

// oneFault reports whether operation n exists.
func oneFault(t *testing.T, k key, n, times int, errno syscall.Errno, late bool) (hit bool) {
	op := "none"
	m := newMemFS(func(i int, what string) error {
		if i < n || i >= n+times {
			return nil
		}
		hit, op = true, what
		return errno
	})
	m.late = late
	survives(t, k, m)
	if t.Failed() {
		t.Fatalf("fault in operation %d (%s)", n, op)
	}
	return hit
}

// TestRandomFaults fails operations at random, so that repairs fail as well.
func TestRandomFaults(t *testing.T) {
	k := newKey(t)
	for seed := range uint64(80) {
		dice := rand.New(rand.NewPCG(seed, 0))
		rate := dice.Float64() / 4
		survives(t, k, newMemFS(func(int, string) error {
			if dice.Float64() < rate {
				return syscall.EIO
			}
			return nil
		}))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// survives runs the script with temporary faults, cuts the power, and checks that
// every record exists once.
func survives(t *testing.T, k key, m *memFS) {
	var stalls, resumes atomic.Int32
	o := k.options()
	o.FS, o.SegmentBytes = m, segmentBytes
	o.OnStall = func(error) { stalls.Add(1) }
	o.OnResume = func() { resumes.Add(1) }
	l, err := wal.Create(memDir, o)
	check(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	done, err := script(ctx, t, l)
	if err != nil {
		t.Errorf("the script: %v", err)
		return
	}
	if stalls.Load() != resumes.Load() {
		t.Errorf("%d stalls, %d resumes", stalls.Load(), resumes.Load())
	}
	dir := filepath.Join(t.TempDir(), memDir)
	if !m.dump(t, dir, nothing) {
		t.Error("the directory is gone after a power cut")
		return
	}
	records := read(t, dir)
	holds(t, records, done.posted)
	if len(records) != len(done.posted) {
		t.Errorf("%d records, want %d", len(records), len(done.posted))
	}
	verify(t, dir, k)
}

// TestBadFile makes a segment's file with records permanently unwritable: the
// log moves to a new file, and what is acknowledged there survives a power cut.
func TestBadFile(t *testing.T) {
	k := newKey(t)
	m := newMemFS(nil)
	o := k.options()
	o.FS = m
	l, err := wal.Create(memDir, o)
	check(t, err)
	want := map[int]uint64{}
	for id := range 9 {
		if id == 4 {
			m.spoil(wal.FileName(1, wal.SegmentSuffix))
		}
		seq, err := l.Append(t.Context(), event(t, id))
		check(t, err)
		check(t, l.Sync(t.Context(), seq))
		want[id] = seq
		dir := filepath.Join(t.TempDir(), testRun)
		m.dump(t, dir, nothing)
		holds(t, read(t, dir), want)
	}
	check(t, l.Close(t.Context(), wal.Sealed))
	dir := filepath.Join(t.TempDir(), testRun)
	m.dump(t, dir, nothing)
	holds(t, read(t, dir), want)
	verify(t, dir, k)
}

// TestPowerCutInEveryOperation cuts the power at each file operation in turn,
// and checks that everything acknowledged exists, whatever else survived.
func TestPowerCutInEveryOperation(t *testing.T) {
	k := newKey(t)
	for n := 0; ; n++ {
		var cut atomic.Bool
		m := newMemFS(func(i int, _ string) error {
			if i >= n {
				cut.Store(true)
				return syscall.EIO
			}
			return nil
		})
		ctx, cancel := context.WithCancel(context.Background())
		o := k.options()
		o.FS, o.SegmentBytes = m, segmentBytes
		o.OnStall = func(error) { cancel() }
		l, err := wal.Create(memDir, o)
		check(t, err)
		done, err := script(ctx, t, l)
		l.Close(ctx, wal.Sealed)
		cancel()
		if !cut.Load() {
			check(t, err)
			return
		}
		for _, s := range []survival{nothing, half, all} {
			dir := filepath.Join(t.TempDir(), testRun)
			if !m.dump(t, dir, s) {
				if len(done.synced) > 0 {
					t.Fatalf("operation %d, %s: the directory is gone", n, s)
				}
				continue
			}
			records, _ := recovered(t, dir, k)
			holds(t, records, done.synced)
			if t.Failed() {
				t.Fatalf("power cut at operation %d, %s survived", n, s)
			}
		}
	}
}

// TestFaultInRecover fails each operation of Recover once; the next try must succeed, lose nothing, and report what was
// cut.
func TestFaultInRecover(t *testing.T) {
	k := newKey(t)
	torn := tornRun(t, k)
	for n := 0; ; n++ {
		m := newMemFS(nil)
		m.load(t, torn.dir)
		hit := false
		base := m.ops
		m.fault = func(i int, _ string) error {
			if i-base == n {
				hit = true
				return syscall.EIO
			}
			return nil
		}
		o := k.options()
		o.FS = m
		l, rec, err := wal.Recover(t.Context(), memDir, o)
		if err != nil {
			if !errors.Is(err, syscall.EIO) {
				t.Fatalf("operation %d: %v", n, err)
			}
			l, rec, err = wal.Recover(t.Context(), memDir, o)
			check(t, err)
		}
		if rec.CutBytes != torn.cut {
			t.Errorf("operation %d: %d bytes cut, want %d", n, rec.CutBytes, torn.cut)
		}
		check(t, l.Close(context.Background(), wal.Interrupted))
		dir := filepath.Join(t.TempDir(), testRun)
		m.kept = true
		m.dump(t, dir, nothing)
		records := read(t, dir)
		holds(t, records, torn.done.synced)
		gaps := 0
		for _, r := range records {
			if r.Gap != nil && r.Gap.Bytes == torn.cut {
				gaps++
			}
		}
		if gaps != 1 {
			t.Errorf("operation %d: %d gap records for the torn tail, want 1", n, gaps)
		}
		verify(t, dir, k)
		if !hit {
			return
		}
	}
}
