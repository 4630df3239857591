package wal_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/redact"
)

func TestLog(t *testing.T) {
	k := newKey(t)
	dir := runDir(t)
	l, err := wal.Create(dir, k.options())
	check(t, err)
	done, err := script(context.Background(), t, l)
	check(t, err)
	records := read(t, dir)
	holds(t, records, done.posted)
	for i, r := range records {
		if r.Seq != uint64(i+1) || r.V != 1 || r.Run != testRun {
			t.Errorf("record %d: v %d, run %s, seq %d", i, r.V, r.Run, r.Seq)
		}
	}
	report := verify(t, dir, k)
	if report.Records != uint64(len(records)) || report.Closing != wal.Sealed || report.Segments != 2 {
		t.Errorf("report: %+v", report)
	}
	ctx := context.Background()
	if _, err := l.Append(ctx, event(t, 1)); !errors.Is(err, wal.ErrClosed) {
		t.Errorf("append after close: %v", err)
	}
	if err := l.Rotate(ctx); !errors.Is(err, wal.ErrClosed) {
		t.Errorf("rotate after close: %v", err)
	}
	if err := l.Close(ctx, wal.Sealed); !errors.Is(err, wal.ErrClosed) {
		t.Errorf("close after close: %v", err)
	}
	check(t, l.Sync(ctx, 1))
	if err := l.Sync(ctx, 99); err == nil {
		t.Error("sync of a seq that was never given out")
	}
}

// TestConcurrent checks that the events of each caller keep their order, and that none is lost.
func TestConcurrent(t *testing.T) {
	const callers, each = 16, 200
	k := newKey(t)
	dir := runDir(t)
	o := k.options()
	o.SegmentBytes, o.BufferBytes = 32<<10, 8<<10
	l, err := wal.Create(dir, o)
	check(t, err)
	ctx := context.Background()
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			var last uint64
			for i := range each {
				seq, err := l.Append(ctx, event(t, c*each+i))
				if err != nil || seq <= last {
					t.Errorf("seq %d after %d: %v", seq, last, err)
					return
				}
				last = seq
				if i%10 == 0 {
					if err := l.Sync(ctx, seq); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	check(t, l.Close(ctx, wal.Sealed))
	at := ids(t, read(t, dir))
	for id := range callers * each {
		if at[id] == 0 || id%each > 0 && at[id] < at[id-1] {
			t.Fatalf("event %d stands at %d, the one before at %d", id, at[id], at[id-1])
		}
	}
	verify(t, dir, k)
}

// TestSegments checks that a segment is sealed by size and by age, and that no empty one is sealed.
func TestSegments(t *testing.T) {
	k := newKey(t)
	ctx := context.Background()
	t.Run("size", func(t *testing.T) {
		dir := runDir(t)
		o := k.options()
		o.SegmentBytes = 1000
		l, err := wal.Create(dir, o)
		check(t, err)
		for id := range 50 {
			_, err := l.Append(ctx, event(t, id))
			check(t, err)
		}
		check(t, l.Close(ctx, wal.Sealed))
		paths, err := wal.Segments(dir)
		check(t, err)
		for _, p := range paths {
			if info, err := os.Stat(p); err != nil || info.Size() > 1000 || info.Size() < 500 {
				t.Errorf("%s: %v", p, info.Size())
			}
		}
		verify(t, dir, k)
	})
	t.Run("age", func(t *testing.T) {
		dir := runDir(t)
		o := k.options()
		o.SegmentAge = 5 * time.Millisecond
		l, err := wal.Create(dir, o)
		check(t, err)
		_, err = l.Append(ctx, event(t, 0))
		check(t, err)
		manifest := filepath.Join(dir, wal.FileName(1, wal.ManifestSuffix))
		waitFor(t, func() bool { _, err := os.Stat(manifest); return err == nil })
		check(t, l.Rotate(ctx))
		check(t, l.Close(ctx, wal.Sealed))
		if r := verify(t, dir, k); r.Segments != 1 || r.Records != 1 || r.Closing != wal.Sealed {
			t.Errorf("report: %+v", r)
		}
	})
	t.Run("nothing", func(t *testing.T) {
		dir := runDir(t)
		l, err := wal.Create(dir, k.options())
		check(t, err)
		check(t, l.Close(ctx, wal.Interrupted))
		if r := verify(t, dir, k); r.Records != 0 || r.Closing != wal.Interrupted {
			t.Errorf("report: %+v", r)
		}
	})
}

func waitFor(t testing.TB, cond func() bool) {
	t.Helper()
	for range 60_000 {
		if cond() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("the condition did not hold within a minute")
}

// jam is a fault that, while set, fails every operation of a disk.
type jam struct{ atomic.Bool }

func (j *jam) fault(int, string) error {
	if j.Load() {
		return syscall.ENOSPC
	}
	return nil
}

// TestStrictStall fills the buffer during a stall: Append waits, nothing is
// acknowledged, each callback is called once, and afterwards every event is durable.
func TestStrictStall(t *testing.T) {
	k := newKey(t)
	var disk jam
	m := newMemFS(disk.fault)
	stalled, resumed := make(chan error, 10), make(chan bool, 10)
	o := k.options()
	o.FS, o.BufferBytes = m, 1000
	o.OnStall = func(err error) { stalled <- err }
	o.OnResume = func() { resumed <- true }
	disk.Store(true)
	l, err := wal.Create(memDir, o) // on a disk that is full from the beginning
	check(t, err)
	if err := <-stalled; !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("stalled with %v", err)
	}
	ctx := context.Background()
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	want := map[int]uint64{}
	for id := 0; ; id++ {
		seq, err := l.Append(short, event(t, id))
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		check(t, err)
		want[id] = seq
	}
	if len(want) == 0 || len(want) > 10 {
		t.Errorf("a buffer of %d bytes accepted %d events", o.BufferBytes, len(want))
	}
	if err := l.Sync(short, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("sync during a stall: %v", err)
	}
	disk.Store(false)
	<-resumed
	check(t, l.Sync(ctx, uint64(len(want))))
	check(t, l.Close(ctx, wal.Sealed))
	if len(stalled)+len(resumed) > 0 {
		t.Error("callbacks came more than once")
	}
	dir := runDir(t)
	m.dump(t, dir, nothing)
	holds(t, read(t, dir), want)
	verify(t, dir, k)
}

// TestDegradeStall drops the events that do not fit in the buffer, and checks that a gap declares them.
func TestDegradeStall(t *testing.T) {
	k := newKey(t)
	var disk jam
	m := newMemFS(disk.fault)
	stalled, resumed := make(chan error, 10), make(chan bool, 10)
	o := k.options()
	o.FS, o.BufferBytes, o.Mode = m, 1000, wal.Degrade
	o.OnStall = func(err error) { stalled <- err }
	o.OnResume = func() { resumed <- true }
	l, err := wal.Create(memDir, o)
	check(t, err)
	ctx := context.Background()
	want, lost := map[int]uint64{}, []uint64{}
	for round := range 3 {
		disk.Store(true)
		waiting := make(chan error, 1)
		for id := 100 * round; id < 100*round+50; id++ {
			seq, err := l.Append(ctx, event(t, id))
			switch {
			case err == nil:
				want[id] = seq
			case errors.Is(err, wal.ErrDropped):
				lost = append(lost, seq)
			default:
				t.Fatal(err)
			}
			if id == 100*round {
				go func() { waiting <- l.Sync(ctx, seq) }()
				<-stalled
			}
		}
		if err := <-waiting; !errors.Is(err, wal.ErrStalled) {
			t.Errorf("sync that waited when the stall began: %v", err)
		}
		disk.Store(false)
		<-resumed
		seq, err := l.Append(ctx, event(t, 100*round+99))
		check(t, err)
		check(t, l.Sync(ctx, seq))
		want[100*round+99] = seq
	}
	for _, seq := range lost {
		if err := l.Sync(ctx, seq); !errors.Is(err, wal.ErrDropped) {
			t.Errorf("sync of the dropped seq %d: %v", seq, err)
		}
	}
	check(t, l.Close(ctx, wal.Sealed))
	dir := runDir(t)
	m.dump(t, dir, nothing)
	holds(t, read(t, dir), want)
	report := verify(t, dir, k)
	if len(report.Gaps) != 3 || report.Losses["wal"].Events != uint64(len(lost)) {
		t.Errorf("%d events lost; declared: %+v", len(lost), report.Gaps)
	}
	for _, g := range report.Gaps {
		if g.Stage != "wal" || g.Count != g.Last-g.First+1 || g.Cause != syscall.ENOSPC.Error() {
			t.Errorf("gap %+v", g)
		}
	}
}

// TestCloseDuringStall: Close returns when its context ends, and the run
// can be recovered.
func TestCloseDuringStall(t *testing.T) {
	k := newKey(t)
	c := crashedRun(t, k)
	records, rec := recovered(t, c.dir, k)
	holds(t, records, c.done.synced)
	if rec.Last != 7 || rec.Unsealed != 3 || rec.Sealed != 1 || rec.CutBytes != 0 {
		t.Errorf("recovery %+v", rec)
	}
}

func TestRefused(t *testing.T) {
	k := newKey(t)
	for name, spoil := range map[string]func(*wal.Options){
		"no run":          func(o *wal.Options) { o.Run = "" },
		"a run with path": func(o *wal.Options) { o.Run = "../x" },
		"no sealer":       func(o *wal.Options) { o.Sealer = nil },
		"unknown mode":    func(o *wal.Options) { o.Mode = "lenient" },
		"huge segments":   func(o *wal.Options) { o.SegmentBytes = 1 << 40 },
	} {
		o := k.options()
		spoil(&o)
		if _, err := wal.Create(runDir(t), o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := wal.Create("/dev/null/x", k.options()); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("create below a file: %v", err)
	}
	l, err := wal.Create(runDir(t), k.options())
	check(t, err)
	ctx := context.Background()
	if _, err := l.Append(ctx, redact.Sealed{}); !errors.Is(err, wal.ErrNotSealed) {
		t.Errorf("append of nothing: %v", err)
	}
	big, err := red.Seal(&audit.Event{Kind: audit.KindOutput, Output: &audit.Output{Text: audit.Text(make([]byte, wal.MaxRecord))}})
	check(t, err)
	if _, err := l.Append(ctx, big); !errors.Is(err, wal.ErrTooLarge) {
		t.Errorf("append of too much: %v", err)
	}
	check(t, l.Close(ctx, wal.Sealed))
}
