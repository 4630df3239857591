package wal_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
)

const sweepEnv = "CUSTODY_SWEEP"

// sweepChild is the process into which the sweep injects faults. It prints the thread on which it will work, and starts
// on a signal.
func sweepChild(do string) {
	th := newThread()
	fmt.Printf("thread %d\n", th.id)
	bufio.NewReader(os.Stdin).ReadByte()
	dir := os.Getenv("CUSTODY_SWEEP_DIR")
	var err error
	switch do {
	case "strict", "degrade":
		err = sweepWrite(dir, wal.Mode(do), th)
	case "short", "short-killed":
		err = sweepShort(dir, do == "short-killed", th)
	case "recover":
		err = sweepRecover(dir, th)
	case "erase":
		th.do(func() { err = wal.Erase(context.Background(), dir, 6) })
	}
	if err != nil {
		fmt.Printf("failed: %v\n", err)
		return
	}
	fmt.Println("done")
}

func sweepOptions(th *thread) wal.Options {
	signer, err := note.NewSigner(os.Getenv("CUSTODY_SWEEP_KEY"))
	if err != nil {
		panic(err)
	}
	o := key{signer: signer}.options()
	o.Sealer = statement.NewSealer(signer, statement.Facts{Tier: "test"})
	o.SegmentBytes, o.FS = segmentBytes, th
	return o
}

// sweepWrite writes a small run and prints the accepted and the acknowledged events.
func sweepWrite(dir string, mode wal.Mode, th *thread) error {
	o := sweepOptions(th)
	if o.Mode = mode; mode == wal.Degrade {
		o.BufferBytes, o.Retry = 600, 3*time.Millisecond
	}
	l, err := wal.Create(dir, o)
	if err != nil {
		return err
	}
	ctx, id := context.Background(), 0
	for _, n := range []int{1, 1, 3, 0, 1, 6, 1} {
		if n == 0 {
			if err := l.Rotate(ctx); err != nil {
				return err
			}
		}
		if err := sweepBurst(ctx, l, id, n); err != nil {
			return err
		}
		id += n
	}
	return l.Close(ctx, wal.Sealed)
}

func sweepBurst(ctx context.Context, l *wal.Log, first, n int) error {
	seqs := map[int]uint64{}
	for id := first; id < first+n; id++ {
		seq, err := l.Append(ctx, event(&testing.T{}, id))
		switch {
		case errors.Is(err, wal.ErrDropped):
			fmt.Printf("dropped %d %d\n", id, seq)
		case err != nil:
			return err
		default:
			fmt.Printf("accepted %d %d\n", id, seq)
			seqs[id] = seq
		}
	}
	for id, seq := range seqs {
		switch err := l.Sync(ctx, seq); {
		case errors.Is(err, wal.ErrStalled): // in degrade mode: not acknowledged
		case err != nil:
			return err
		default:
			fmt.Printf("acked %d %d\n", id, seq)
		}
	}
	return nil
}

func sweepRecover(dir string, th *thread) error {
	o := sweepOptions(th)
	l, _, err := wal.Recover(context.Background(), dir, o)
	if err != nil {
		return err
	}
	return l.Close(context.Background(), wal.Interrupted)
}

// thread is a Disk that makes all system calls on one thread, so that they
// have an order and strace can count them.
type thread struct {
	disk  wal.Disk
	id    int
	calls chan func()
}

// newThread starts the thread, which lives as long as the process.
func newThread() *thread {
	th := &thread{calls: make(chan func())}
	started := make(chan int)
	go func() {
		runtime.LockOSThread()
		started <- unix.Gettid()
		for f := range th.calls {
			f()
		}
	}()
	th.id = <-started
	return th
}

func (th *thread) do(f func()) {
	done := make(chan bool)
	th.calls <- func() {
		defer close(done)
		f()
	}
	<-done
}

func (th *thread) MkdirAll(dir string) (err error) {
	th.do(func() { err = th.disk.MkdirAll(dir) })
	return err
}

func (th *thread) SyncDir(dir string) (err error) {
	th.do(func() { err = th.disk.SyncDir(dir) })
	return err
}

func (th *thread) ReadDir(dir string) (names []string, err error) {
	th.do(func() { names, err = th.disk.ReadDir(dir) })
	return names, err
}

func (th *thread) ReadFile(path string) (data []byte, err error) {
	th.do(func() { data, err = th.disk.ReadFile(path) })
	return data, err
}

func (th *thread) Create(path string) (f wal.File, err error) {
	th.do(func() { f, err = th.disk.Create(path) })
	return th.file(f, err)
}

func (th *thread) Open(path string) (f wal.File, err error) {
	th.do(func() { f, err = th.disk.Open(path) })
	return th.file(f, err)
}

func (th *thread) file(f wal.File, err error) (wal.File, error) {
	if err != nil {
		return nil, err
	}
	return threadFile{f, th}, nil
}

func (th *thread) Rename(from, to string) (err error) {
	th.do(func() { err = th.disk.Rename(from, to) })
	return err
}

func (th *thread) Remove(path string) (err error) {
	th.do(func() { err = th.disk.Remove(path) })
	return err
}

func (th *thread) Lock(path string) (c io.Closer, err error) {
	th.do(func() { c, err = th.disk.Lock(path) })
	return c, err
}

type threadFile struct {
	f  wal.File
	th *thread
}

func (f threadFile) WriteAt(p []byte, off int64) (n int, err error) {
	f.th.do(func() { n, err = f.f.WriteAt(p, off) })
	return n, err
}

func (f threadFile) Close() (err error) {
	f.th.do(func() { err = f.f.Close() })
	return err
}

func (f threadFile) Sync() (err error) {
	f.th.do(func() { err = f.f.Sync() })
	return err
}

func (f threadFile) Truncate(size int64) (err error) {
	f.th.do(func() { err = f.f.Truncate(size) })
	return err
}
