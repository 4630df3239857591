package wal_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/redact"
)

// counting is a Disk that counts the bytes and writes to segments, so that
// the bare loop can repeat the same work.
type counting struct {
	wal.Disk
	bytes, writes atomic.Int64
}

func (c *counting) Create(path string) (wal.File, error) {
	f, err := c.Disk.Create(path)
	if err != nil || filepath.Ext(path) != wal.SegmentSuffix {
		return f, err
	}
	return countingFile{f, c}, nil
}

type countingFile struct {
	wal.File
	c *counting
}

func (f countingFile) WriteAt(p []byte, off int64) (int, error) {
	f.c.bytes.Add(int64(len(p)))
	f.c.writes.Add(1)
	return f.File.WriteAt(p, off)
}

// BenchmarkRecorder measures an event from Record to the disk:
// check, redact against 20 values, encode, frame, hash, write, fsync, seal, sign. Each
// event is the exec of a compiler. In "record", that many goroutines wait for each of
// their events to be durable; "post" is one goroutine with one Sync at the
// end. bare/s is the rate, in events, of a loop that writes and fsyncs the same bytes in as many writes,
// measured right after; share is the recorder's rate divided by it.
// cpu-ns/event is CPU time: one core provides 1e9 ns per second.
// To measure one core: GOMAXPROCS=1.
func BenchmarkRecorder(b *testing.B) {
	for _, c := range []struct{ callers, events int }{{1, 500}, {16, 5_000}, {256, 50_000}, {2048, 100_000}} {
		b.Run(fmt.Sprintf("record/callers=%d", c.callers), func(b *testing.B) {
			bench(b, c.events, func(rec *audit.Recorder, _ *wal.Log) error { return recordAll(rec, c.callers, c.events) })
		})
	}
	b.Run("post", func(b *testing.B) {
		bench(b, 100_000, func(rec *audit.Recorder, l *wal.Log) error { return postAll(rec, l, 100_000) })
	})
}

func bench(b *testing.B, events int, run func(*audit.Recorder, *wal.Log) error) {
	r := redact.New(make([]byte, 32))
	for i := range 20 {
		check(b, r.Add(fmt.Sprintf("secret-%d", i), fmt.Appendf(nil, "a-credential-of-some-length-%08d", i)))
	}
	fs := &counting{}
	o := wal.Options{Run: testRun, Sealer: statement.NewSealer(newKey(b).signer, statement.Facts{}), FS: fs}
	l, err := wal.Create(runDir(b), o)
	check(b, err)
	rec := audit.NewRecorder(l, r)
	cpu := cpuTime(b)
	for b.Loop() {
		check(b, run(rec, l))
	}
	took := b.Elapsed()
	cpu = cpuTime(b) - cpu
	check(b, l.Close(b.Context(), wal.Sealed))
	bare := bareLoop(b, fs.bytes.Load(), fs.writes.Load())
	total := float64(events * b.N)
	b.ReportMetric(total/took.Seconds(), "events/s")
	b.ReportMetric(float64(cpu.Nanoseconds())/total, "cpu-ns/event")
	b.ReportMetric(total/bare.Seconds(), "bare/s")
	b.ReportMetric(bare.Seconds()/took.Seconds(), "share")
	b.ReportMetric(total/float64(fs.writes.Load()), "events/fsync")
	b.ReportMetric(float64(fs.bytes.Load())/total, "B/event")
}

func recordAll(rec *audit.Recorder, callers, events int) error {
	var wg sync.WaitGroup
	failed := make(chan error, callers)
	for range callers {
		wg.Go(func() {
			for range events / callers {
				if _, err := rec.Record(context.Background(), compile()); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(failed)
	return <-failed
}

func postAll(rec *audit.Recorder, l *wal.Log, events int) error {
	var last uint64
	for range events {
		seq, err := rec.Post(context.Background(), compile())
		if err != nil {
			return err
		}
		last = seq
	}
	return l.Sync(context.Background(), last)
}

func compile() audit.Event {
	return audit.Event{
		Time: time.Now(), Observer: audit.Guest, Kind: audit.KindExec, Step: "build",
		Exec: &audit.Exec{
			Proc: "7f3a1c9e-5d2b-r-01-4242-118273645", Parent: "7f3a1c9e-5d2b-r-01-4200-118273000", PID: 4242, PPID: 4200,
			Exe: "/usr/bin/gcc", Argv: []audit.Text{"gcc", "-O2", "-Wall", "-c", "src/main.c", "-o", "build/main.o"}, Cwd: "/workspace",
		},
	}
}

// cpuTime returns the CPU time of the process on all cores, in user and kernel mode. Unlike
// the clock it does not depend on the machine's other load.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	check(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// bareLoop writes and fsyncs that many bytes in that many equal writes.
func bareLoop(b *testing.B, bytes, writes int64) time.Duration {
	b.Helper()
	f, err := os.Create(filepath.Join(b.TempDir(), "bare"))
	check(b, err)
	defer f.Close()
	piece := make([]byte, bytes/writes)
	began := time.Now()
	for range writes {
		_, err := f.Write(piece)
		check(b, err)
		check(b, f.Sync())
	}
	return time.Since(began)
}
