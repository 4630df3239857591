package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/redact"
)

// knownValues is how many values the redactor looks for.
const knownValues = 20

func newRedactor() (*redact.Redactor, error) {
	r := redact.New(make([]byte, 32))
	for i := range knownValues {
		if err := r.Add(fmt.Sprintf("secret-%d", i), fmt.Appendf(nil, "a-credential-of-some-length-%08d", i)); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// newSealer signs with a key that no one keeps; trusted is the list of who checks it.
func newSealer() (s *statement.Sealer, public string, err error) {
	private, public, err := note.GenerateKey(nil, "custody-loadtest")
	if err != nil {
		return nil, "", err
	}
	signer, err := note.NewSigner(private)
	if err != nil {
		return nil, "", err
	}
	return statement.NewSealer(signer, statement.Facts{Tier: "none"}), public, nil
}

// durable measures the way of an event from Record to the disk on one core,
// against a loop that writes and fsyncs the same bytes in as many writes.
func (r *report) durable(ctx context.Context, dir string) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	red, err := newRedactor()
	if err != nil {
		return err
	}
	sealer, _, err := newSealer()
	if err != nil {
		return err
	}
	var commits, bytes int
	l, err := wal.Create(filepath.Join(dir, "r-loadtest"), wal.Options{Run: "r-loadtest", Sealer: sealer,
		OnCommit: func(_, b int, _ time.Duration) { commits, bytes = commits+1, bytes+b }})
	if err != nil {
		return err
	}
	rec := audit.NewRecorder(l, red)
	cpu, began := cpuTime(), time.Now()
	if err := post(ctx, rec, r.events); err != nil {
		return err
	}
	took, used := time.Since(began), cpuTime()-cpu
	if err := l.Close(ctx, wal.Sealed); err != nil {
		return err
	}
	bare, err := bareWrites(filepath.Join(dir, "bare"), bytes, commits)
	if err != nil {
		return err
	}
	r.add("event to durable, one core, one caller that waits at the end", perSecond(r.events, took, "events"),
		"write and fsync of the same bytes: "+perSecond(r.events, bare, "events"), ratio(took, bare))
	r.add("processor time an event", fmt.Sprintf("%.1f us", float64(used.Microseconds())/float64(r.events)),
		fmt.Sprintf("%d events a commit", r.events/commits), "")
	size, err := sizeOf(filepath.Join(dir, "r-loadtest"))
	if err != nil {
		return err
	}
	r.add("log, bytes an event", fmt.Sprint(size/int64(r.events)), fmt.Sprintf("of which the frame %d", bytes/r.events), "")
	return nil
}

// post records events and returns when all of them are durable.
func post(ctx context.Context, rec *audit.Recorder, events int) error {
	for n := range events - 1 {
		if _, err := rec.Post(ctx, made(n, time.Now())); err != nil {
			return err
		}
	}
	_, err := rec.Record(ctx, made(events-1, time.Now()))
	return err
}

// bareWrites writes and fsyncs that many bytes in that many equal pieces.
func bareWrites(path string, bytes, writes int) (time.Duration, error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	piece := make([]byte, bytes/writes)
	began := time.Now()
	for range writes {
		if _, err := f.Write(piece); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

// cpuTime is what the process has used, in user and kernel.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// sizeOf sums up the files below dir.
func sizeOf(dir string) (size int64, err error) {
	err = filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			size += info.Size()
		}
		return err
	})
	return size, err
}
