package wal_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/custody-project/custody/audit/wal"
)

// crashed is a run whose process died, with one sealed and one unsealed segment.
type crashed struct {
	dir  string
	open string // the unsealed segment
	done tally
	cut  int64 // bytes of a torn tail
}

func crashedRun(t testing.TB, k key) crashed {
	t.Helper()
	var dead atomic.Bool
	m := newMemFS(func(int, string) error {
		if dead.Load() {
			return syscall.EIO
		}
		return nil
	})
	o := k.options()
	o.FS = m
	l, err := wal.Create(memDir, o)
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	c := crashed{done: tally{map[int]uint64{}, map[int]uint64{}}}
	for id := range 7 {
		seq, err := l.Append(ctx, event(t, id))
		check(t, err)
		check(t, l.Sync(ctx, seq))
		c.done.synced[id] = seq
		if id == 3 {
			check(t, l.Rotate(ctx))
		}
	}
	dead.Store(true)
	cancel()
	if err := l.Close(ctx, wal.Sealed); !errors.Is(err, wal.ErrAborted) {
		t.Fatalf("close on a dead disk: %v", err)
	}
	c.dir = filepath.Join(t.TempDir(), testRun)
	m.dump(t, c.dir, all)
	c.open = filepath.Join(c.dir, wal.FileName(5, wal.SegmentSuffix))
	return c
}

func tornRun(t testing.TB, k key) crashed {
	c := crashedRun(t, k)
	data, err := os.ReadFile(c.open)
	check(t, err)
	c.cut = 77
	check(t, os.WriteFile(c.open, append(data, data[:c.cut]...), 0o600))
	return c
}

// bounds returns the offsets at which the frames of data end.
func bounds(t testing.TB, data []byte) []int {
	t.Helper()
	r := wal.NewReader("", bytes.NewReader(data))
	ends := []int{}
	for {
		if _, err := r.Next(); err != nil {
			return ends
		}
		ends = append(ends, int(r.Offset()))
	}
}

// TestRecoverAtEveryOffset truncates the unsealed segment at every byte, and
// garbles every byte of it: all earlier frames survive, and a gap declares the rest.
func TestRecoverAtEveryOffset(t *testing.T) {
	k := newKey(t)
	c := crashedRun(t, k)
	data, err := os.ReadFile(c.open)
	check(t, err)
	ends := bounds(t, data)
	for at := 0; at < len(data); at++ {
		t.Run("cut", func(t *testing.T) { recoverFrom(t, k, c, data[:at], ends, at) })
		garbled := bytes.Clone(data)
		garbled[at] ^= 0x55
		t.Run("garble", func(t *testing.T) { recoverFrom(t, k, c, garbled, ends, at) })
		if t.Failed() {
			t.Fatalf("at byte %d of %d", at, len(data))
		}
	}
}

func recoverFrom(t *testing.T, k key, c crashed, segment []byte, ends []int, at int) {
	m := newMemFS(nil)
	m.load(t, c.dir)
	m.put(filepath.Base(c.open), segment)
	o := k.options()
	o.FS = m
	l, rec, err := wal.Recover(t.Context(), memDir, o)
	check(t, err)
	_, err = l.Append(t.Context(), event(t, 1_000_000))
	check(t, err)
	check(t, l.Close(t.Context(), wal.Interrupted))
	dir := filepath.Join(t.TempDir(), testRun)
	m.dump(t, dir, nothing)
	verify(t, dir, k)
	records := read(t, dir)
	whole, survive := 0, map[int]uint64{0: 1, 1: 2, 2: 3, 3: 4}
	for i, end := range ends {
		if end <= at {
			whole = end
			survive[4+i] = uint64(5 + i)
		}
	}
	holds(t, records, survive)
	if got := ids(t, records); len(got) != len(survive)+1 {
		t.Errorf("%d events survive, want %d and the one added", len(got), len(survive))
	}
	if rec.CutBytes != int64(len(segment)-whole) {
		t.Errorf("%d bytes cut, want %d", rec.CutBytes, len(segment)-whole)
	}
	if rec.CutBytes > 0 {
		note, err := os.ReadFile(filepath.Join(dir, filepath.Base(rec.CutNote)))
		check(t, err)
		if !bytes.Equal(note, segment[whole:]) {
			t.Errorf("the note does not have the cut bytes")
		}
	}
}

// TestRecoverTornGap: if a process dies while it writes the gap record of dropped events as the
// first record of a segment, recovery declares that gap as well.
func TestRecoverTornGap(t *testing.T) {
	k := newKey(t)
	for name, data := range map[string]string{"empty": "", "torn": "CWF1\x01"} {
		t.Run(name, func(t *testing.T) {
			c := crashedRun(t, k)
			check(t, os.Remove(c.open))
			check(t, os.WriteFile(filepath.Join(c.dir, wal.FileName(9, wal.SegmentSuffix)), []byte(data), 0o600))
			records, rec := recovered(t, c.dir, k)
			gap := records[4]
			if gap.Seq != 9 || gap.Gap == nil || gap.Gap.First != 5 || gap.Gap.Last != 8 || gap.Gap.Count != 4 {
				t.Errorf("the fifth record is %+v", gap)
			}
			if rec.CutBytes != int64(len(data)) {
				t.Errorf("%d bytes cut", rec.CutBytes)
			}
		})
	}
}

func TestRecoverRefuses(t *testing.T) {
	k := newKey(t)
	t.Run("a live run", func(t *testing.T) {
		dir := runDir(t)
		l, err := wal.Create(dir, k.options())
		check(t, err)
		if !wal.Locked(dir) {
			t.Error("not locked while it is written")
		}
		if _, _, err := wal.Recover(t.Context(), dir, k.options()); !errors.Is(err, wal.ErrLocked) {
			t.Errorf("recover: %v", err)
		}
		check(t, l.Close(context.Background(), wal.Sealed))
		if wal.Locked(dir) {
			t.Error("locked after close")
		}
		if _, _, err := wal.Recover(t.Context(), dir, k.options()); !errors.Is(err, wal.ErrFinished) {
			t.Errorf("recover a closed run: %v", err)
		}
		if _, err := wal.Create(dir, k.options()); !errors.Is(err, wal.ErrExists) {
			t.Errorf("create over a record: %v", err)
		}
	})
	t.Run("a missing manifest", func(t *testing.T) {
		c := crashedRun(t, k)
		check(t, os.Remove(filepath.Join(c.dir, wal.FileName(1, wal.ManifestSuffix))))
		if _, _, err := wal.Recover(t.Context(), c.dir, k.options()); !errors.Is(err, wal.ErrDamaged) {
			t.Errorf("recover: %v", err)
		}
	})
	t.Run("another run", func(t *testing.T) {
		c := crashedRun(t, k)
		o := k.options()
		o.Run = "r-other"
		if _, _, err := wal.Recover(t.Context(), c.dir, o); !errors.Is(err, wal.ErrDamaged) {
			t.Errorf("recover: %v", err)
		}
	})
}

const childEnv = "CUSTODY_WAL_TEST_CHILD"

// TestMain also runs as the child process that is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		child(dir)
		return
	}
	if do := os.Getenv(sweepEnv); do != "" {
		sweepChild(do)
		return
	}
	os.Exit(m.Run())
}

// child writes as fast as it can and prints each seq once it is durable.
func child(dir string) {
	t := &testing.T{}
	k := newKey(t)
	o := k.options()
	o.SegmentAge, o.SegmentBytes = 20*time.Millisecond, 64<<10
	l, err := wal.Create(dir, o)
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	for id := 0; ; id++ {
		seq, err := l.Append(ctx, event(t, id))
		if err != nil {
			panic(err)
		}
		if id%7 != 0 {
			continue
		}
		if err := l.Sync(ctx, seq); err != nil {
			panic(err)
		}
		fmt.Printf("%d %d\n", id, seq)
	}
}

// TestKill kills a process that writes, and checks that all records that it acknowledged exist.
// Its key is lost with it, so the test reads the sealed segments without verifying them.
func TestKill(t *testing.T) {
	for round := range 6 {
		dir := runDir(t)
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), childEnv+"="+dir)
		out, err := cmd.StdoutPipe()
		check(t, err)
		check(t, cmd.Start())
		acked := map[int]uint64{}
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var id int
			var seq uint64
			if n, _ := fmt.Sscanf(lines.Text(), "%d %d", &id, &seq); n != 2 {
				continue // the last line can be incomplete
			}
			acked[id] = seq
			if len(acked) == 40+100*round {
				check(t, cmd.Process.Kill())
			}
		}
		if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("child: %v", err)
		}
		l, _, err := wal.Recover(t.Context(), dir, newKey(t).options())
		check(t, err)
		check(t, l.Close(context.Background(), wal.Interrupted))
		holds(t, read(t, dir), acked)
	}
}
