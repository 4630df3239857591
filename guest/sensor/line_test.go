package sensor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/custody-project/custody/audit"
)

// outlet collects what a line emits.
type outlet struct {
	mu    sync.Mutex
	paths []string
	stuck chan struct{} // emit waits for it when set
}

func (o *outlet) emit(ctx context.Context, e *audit.Event) error {
	if o.stuck != nil {
		<-o.stuck
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.paths = append(o.paths, string(e.File.Path)+e.File.SHA256+e.File.Unhashed)
	return nil
}

func (o *outlet) got() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return fmt.Sprint(o.paths)
}

// runLine starts a line; end closes it and waits.
func runLine(l *line, o *outlet) (end func()) {
	var wg sync.WaitGroup
	wg.Go(func() { l.emit(context.Background(), o.emit) })
	return func() {
		l.close()
		wg.Wait()
	}
}

func fileItem(path string, ready bool) *item {
	return &item{event: &audit.Event{File: &audit.File{Path: audit.Text(path)}}, ready: ready}
}

func TestLineKeepsOrder(t *testing.T) {
	l, o := newLine(), &outlet{}
	defer runLine(l, o)()
	a := fileItem("a", false)
	l.push(a)
	l.push(fileItem("b", true))
	go l.done(a, "#", "")
	if err := l.flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := o.got(); got != "[a# b]" {
		t.Errorf("%s, want a with its digest before b", got)
	}
}

func TestLineOvertakesAfterPatience(t *testing.T) {
	l, o := newLine(), &outlet{}
	defer runLine(l, o)()
	slow := fileItem("slow", false)
	l.push(slow)
	l.push(fileItem("b", true))
	for o.got() != "[b]" {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := l.flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("flush did not wait for the late event: %v", err)
	}
	l.done(slow, "#", "")
	if err := l.flush(context.Background()); err != nil || o.got() != "[b slow#]" {
		t.Errorf("%s, %v", o.got(), err)
	}
}

// TestLineBoundsLateEvents: when too many files wait, the next goes without its digest.
func TestLineBoundsLateEvents(t *testing.T) {
	l, o := newLine(), &outlet{}
	end := runLine(l, o)
	var items []*item
	for i := range maxLate + 1 {
		it := fileItem(fmt.Sprint(i), false)
		items = append(items, it)
		l.push(it)
	}
	for o.got() == "[]" {
		time.Sleep(time.Millisecond)
	}
	if got, want := o.got(), fmt.Sprintf("[%dtoo many files were waiting to be hashed]", maxLate); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, it := range items {
		l.done(it, "#", "")
	}
	end()
	if len(o.paths) != maxLate+1 {
		t.Errorf("%d events of %d", len(o.paths), maxLate+1)
	}
}

func TestLinePushesBack(t *testing.T) {
	l, o := newLine(), &outlet{stuck: make(chan struct{})}
	l.limit = 2048
	end := runLine(l, o)
	pushed := make(chan int, 100)
	go func() {
		for i := range 20 {
			l.push(fileItem("x", true))
			pushed <- i
		}
		close(pushed)
	}()
	time.Sleep(20 * time.Millisecond)
	if n := len(pushed); n == 0 || n > 8 {
		t.Errorf("%d events were taken while the outlet was stuck", n)
	}
	close(o.stuck)
	for range pushed {
	}
	end()
	if len(o.paths) != 20 {
		t.Errorf("%d events of 20", len(o.paths))
	}
}

func TestLineFails(t *testing.T) {
	l := newLine()
	var wg sync.WaitGroup
	wg.Go(func() {
		l.emit(context.Background(), func(context.Context, *audit.Event) error { return os.ErrClosed })
	})
	l.push(fileItem("a", true))
	if err := l.flush(context.Background()); !errors.Is(err, os.ErrClosed) {
		t.Errorf("flush: %v", err)
	}
	wg.Wait()
	late := fileItem("b", false)
	l.push(late) // must not block
	l.done(late, "#", "")
}

func TestHasher(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	info, _ := os.Stat(file)
	mtime := stamp{info.ModTime().Unix(), int64(info.ModTime().Nanosecond())}
	const closed = 100
	for _, test := range []struct {
		name    string
		c       closing
		touched uint64
		open    error
		want    string
	}{
		{"as closed", closing{size: 7, mtime: mtime}, 50, nil, "f" + sumOf("content")},
		{"opened for writing since", closing{size: 7, mtime: mtime}, 101, nil, "f" + unhashedChanged},
		{"other size", closing{size: 8, mtime: mtime}, 50, nil, "f" + unhashedChanged},
		{"mtime set, no other writer", closing{size: 7}, 50, nil, "f" + sumOf("content")},
		{"mtime moved, another writer", closing{size: 7, shared: true}, 50, nil, "f" + unhashedChanged},
		{"mtime moved, opens forgotten", closing{size: 7}, 0, nil, "f" + unhashedChanged},
		{"opens forgotten", closing{size: 7, mtime: mtime}, 0, nil, "f" + sumOf("content")},
		{"mapping", closing{size: 1, loose: true}, 50, nil, "f" + sumOf("content")},
		{"gone", closing{size: 7, mtime: mtime}, 50, os.ErrNotExist, "f" + unhashedGone},
	} {
		l, o := newLine(), &outlet{}
		h := newHasher(l, func(*closing) (*os.File, error) {
			if test.open != nil {
				return nil, test.open
			}
			return os.Open(file)
		}, func(uint64) uint64 { return test.touched })
		h.start()
		end := runLine(l, o)
		c := test.c
		c.item, c.at = fileItem("f", false), closed
		l.push(c.item)
		h.add(job{wants: []*closing{&c}})
		if err := l.flush(context.Background()); err != nil || o.got() != "["+test.want+"]" {
			t.Errorf("%s: %s, %v; want %s", test.name, o.got(), err, test.want)
		}
		end()
		h.close()
	}
}

func TestCache(t *testing.T) {
	c := newCache(2)
	v := func(ino uint64) version { return version{ino: ino} }
	c.put(v(1), "one")
	c.put(v(2), "two")
	c.put(v(2), "two again")
	c.put(v(3), "three")
	for ino, want := range map[uint64]string{1: "", 2: "two again", 3: "three"} {
		if got, _ := c.get(v(ino)); got != want {
			t.Errorf("%d: %q, want %q", ino, got, want)
		}
	}
	if len(c.sums) != 2 {
		t.Errorf("%d digests are kept, bound is 2", len(c.sums))
	}
}

func TestLossesAreReportedOnce(t *testing.T) {
	reported := map[audit.Kind]uint64{}
	var counts []uint64
	for _, total := range []uint64{0, 3, 3, 10} {
		for _, g := range since(nil, reported, audit.KindExec, total, "kernel_ring", causeRing) {
			counts = append(counts, g.Count)
		}
	}
	if fmt.Sprint(counts) != "[3 7]" {
		t.Errorf("gaps of %v, want [3 7]", counts)
	}
}

// TestEachProgramHasItsLoss: a program that is skipped is counted as a kind of event.
func TestEachProgramHasItsLoss(t *testing.T) {
	spec, err := loadPrograms()
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[audit.Kind]int{}
	var rings uint32
	for name := range spec.Programs {
		kinds[lossOf(name)]++
	}
	for _, m := range spec.Maps {
		if m.Type == ebpf.RingBuf {
			rings += m.MaxEntries
		}
	}
	if kinds[audit.KindExec] != 2 || kinds[audit.KindExit] != 1 || kinds[audit.KindFlow] != 3 {
		t.Errorf("programs by kind: %v", kinds)
	}
	if rings > 8<<20 {
		t.Errorf("rings take %d bytes, budget is 8 MiB", rings)
	}
}
