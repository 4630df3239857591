package wal_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit/wal"
)

// TestFullDisk writes to a real file system of 512 KiB that other files have filled: before the run begins, and again
// during the run.
func TestFullDisk(t *testing.T) {
	k := newKey(t)
	disk := t.TempDir()
	check(t, unix.Mount("custody-test", disk, "tmpfs", 0, "size=512k"))
	t.Cleanup(func() { check(t, unix.Unmount(disk, 0)) })
	filler := filepath.Join(disk, "filler")
	dir := filepath.Join(disk, testRun)

	stalled, resumed := make(chan error, 1), make(chan bool, 1)
	o := k.options()
	o.SegmentBytes = 8 << 10
	o.OnStall = func(err error) { stalled <- err }
	o.OnResume = func() { resumed <- true }
	fill(t, filler)
	l, err := wal.Create(dir, o)
	check(t, err)
	want, id := map[int]uint64{}, 0
	for range 2 {
		var seq uint64
		for range 100 {
			seq, err = l.Append(t.Context(), event(t, id))
			check(t, err)
			want[id] = seq
			id++
		}
		if err := <-stalled; !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("stalled with %v", err)
		}
		check(t, os.Remove(filler))
		<-resumed
		check(t, l.Sync(t.Context(), seq))
		fill(t, filler)
	}
	check(t, os.Remove(filler))
	check(t, l.Close(t.Context(), wal.Sealed))
	records := read(t, dir)
	holds(t, records, want)
	if len(records) != len(want) {
		t.Errorf("%d records, want %d", len(records), len(want))
	}
	verify(t, dir, k)
}

// fill writes to path until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	check(t, err)
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 512))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}
