package sensor

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	if err := l.flush(context.Background(), l.mark()); err != nil {
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
	if err := l.flush(ctx, l.mark()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("flush did not wait for the late event: %v", err)
	}
	l.done(slow, "#", "")
	if err := l.flush(context.Background(), l.mark()); err != nil || o.got() != "[b slow#]" {
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

// TestLineGivesUp: the events up to a mark go out with the reason, those behind it still wait.
func TestLineGivesUp(t *testing.T) {
	l, o := newLine(), &outlet{}
	end := runLine(l, o)
	late, waiting, behind := fileItem("late", false), fileItem("waiting", false), fileItem("behind", false)
	l.push(late)
	time.Sleep(2 * maxWait) // it is overtaken
	l.push(waiting)
	mark := l.mark()
	l.push(behind)
	l.giveUp(mark, " why")
	if err := l.flush(context.Background(), mark); err != nil || o.got() != "[late why waiting why]" {
		t.Errorf("%s, %v", o.got(), err)
	}
	for _, it := range []*item{late, waiting, behind} {
		l.done(it, "#", "")
	}
	end()
	if o.got() != "[late why waiting why behind#]" {
		t.Error(o.got())
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
	if err := l.flush(context.Background(), l.mark()); !errors.Is(err, os.ErrClosed) {
		t.Errorf("flush: %v", err)
	}
	wg.Wait()
	late := fileItem("b", false)
	l.push(late) // must not block
	l.done(late, "#", "")
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
