package ship

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/sqlite"
	"github.com/custody-project/custody/store/storetest"
)

// faulty is a real store with injected faults.
type faulty struct {
	*sqlite.Store
	mu    sync.Mutex
	fault func(seg store.Segment) error // called under mu
	order []uint64                      // first seqs of the committed segments
	calls int                           // calls that committed something
}

func (f *faulty) Ingest(ctx context.Context, segs ...store.Segment) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fault != nil {
		var errs []error
		for _, seg := range segs {
			errs = append(errs, f.fault(seg))
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	err := f.Store.Ingest(ctx, segs...)
	if err == nil {
		f.calls++
		for _, seg := range segs {
			f.order = append(f.order, seg.First)
		}
	}
	return err
}

func start(t testing.TB, fault func(store.Segment) error) (*Transport, *faulty) {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"))
	if err != nil {
		t.Fatal(err)
	}
	f := &faulty{Store: db, fault: fault}
	tr := Start(t.Context(), f)
	t.Cleanup(func() {
		tr.Close()
		db.Close()
	})
	return tr, f
}

func publish(t testing.TB, tr *Transport, segs ...store.Segment) {
	t.Helper()
	for _, seg := range segs {
		if err := tr.Publish(t.Context(), seg); err != nil {
			t.Fatal(err)
		}
	}
}

func drain(t testing.TB, tr *Transport) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	return tr.Drain(ctx)
}

func count(t testing.TB, f *faulty, run string) (n int) {
	t.Helper()
	for _, err := range f.Records(t.Context(), store.Query{Run: run}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

func TestSegmentsArrive(t *testing.T) {
	tr, f := start(t, nil)
	segs := storetest.Run("r-1", 1000, 100)
	publish(t, tr, segs...)
	publish(t, tr, segs...) // while the first are pending or committed
	if err := drain(t, tr); err != nil {
		t.Fatal(err)
	}
	publish(t, tr, segs[3])
	if err := drain(t, tr); err != nil {
		t.Fatal(err)
	}
	if n := count(t, f, "r-1"); n != 1000 {
		t.Errorf("%d records, want 1000", n)
	}
	if len(f.order) < 10 || !slices.IsSorted(f.order[:10]) || tr.Committed() != uint64(len(segs)) {
		t.Errorf("committed %v, %d in all", f.order, tr.Committed())
	}
	chain, err := f.Manifests(t.Context(), "", "r-1")
	if err != nil || len(chain) != len(segs) {
		t.Errorf("%d manifests, want %d: %v", len(chain), len(segs), err)
	}
}

// TestTogether publishes while the store is busy: waiting segments are ingested by few calls, in order, and one
// segment that the store refuses does not block the others.
func TestTogether(t *testing.T) {
	var busy sync.Mutex
	busy.Lock()
	tr, f := start(t, func(store.Segment) error {
		busy.Lock()
		defer busy.Unlock()
		return nil
	})
	segs := storetest.Run("r-1", 200, 10)
	publish(t, tr, segs[:12]...)
	bad := store.Segment{Run: "r-2", First: 1, Last: 1, Frames: []store.Frame{{Seq: 1, Body: []byte("no json")}}}
	publish(t, tr, bad)
	publish(t, tr, segs[12:]...)
	busy.Unlock()
	if err := drain(t, tr); !errors.Is(err, store.ErrMalformed) {
		t.Errorf("got %v, want the refusal of one segment", err)
	}
	if n := count(t, f, "r-1"); n != 200 {
		t.Errorf("%d records, want 200", n)
	}
	// One, then at most 8 a call; the batch with the refused one is ingested one by one.
	if most := 1 + 2 + 8; f.calls > most || len(f.order) != len(segs) || !slices.IsSorted(f.order[:len(segs)-1]) {
		t.Errorf("%d calls committed %v, want at most %d, in order", f.calls, f.order, most)
	}
	if got := tr.Stats(); got.Stored != uint64(len(segs)) || got.Refused != 1 {
		t.Errorf("stored %d, refused %d", got.Stored, got.Refused)
	}
}

// TestRedelivery fails each segment twice before the commit and once after it.
func TestRedelivery(t *testing.T) {
	tries := map[uint64]int{}
	var f *faulty
	tr, f := start(t, func(seg store.Segment) error {
		tries[seg.First]++
		switch tries[seg.First] {
		case 1, 2:
			return errors.New("injected: store is away")
		case 3: // it commits, and the process gets no answer
			if err := f.Store.Ingest(t.Context(), seg); err != nil {
				return err
			}
			return errors.New("injected: answer lost")
		}
		return nil
	})
	publish(t, tr, storetest.Run("r-1", 50, 10)...)
	if err := drain(t, tr); err != nil {
		t.Fatal(err)
	}
	if n := count(t, f, "r-1"); n != 50 {
		t.Errorf("%d records, want 50", n)
	}
	if want := []uint64{1, 11, 21, 31, 41, 0}; !reflect.DeepEqual(f.order, want) {
		t.Errorf("committed in the order %v, want %v", f.order, want)
	}
	for first, n := range tries {
		if n != 4 {
			t.Errorf("segment at %d was tried %d times, want 4", first, n)
		}
	}
	if r, err := f.Run(t.Context(), "", "r-1"); err != nil || r.Events != 50 {
		t.Errorf("summary counts %d events, %v", r.Events, err)
	}
}

func TestRefusedSegmentsAreReported(t *testing.T) {
	tr, f := start(t, nil)
	segs := storetest.Run("r-1", 100, 10)
	publish(t, tr, segs...)
	forged := storetest.Run("r-1", 100, 10)[4]
	forged.Root[0]++ // another message id
	forged.Frames[0].Salt[3]++
	garbage := store.Segment{Run: "r-2", First: 1, Last: 1, Frames: []store.Frame{{Seq: 1, Body: []byte("no json")}}}
	publish(t, tr, forged, garbage)
	err := drain(t, tr)
	if !errors.Is(err, store.ErrConflict) || !errors.Is(err, store.ErrMalformed) {
		t.Errorf("got %v, want both refusals", err)
	}
	if n := count(t, f, "r-1"); n != 100 {
		t.Errorf("%d records, want 100", n)
	}
}

func TestDrainSaysWhatFails(t *testing.T) {
	away := errors.New("injected: disk is full")
	tr, _ := start(t, func(store.Segment) error { return away })
	publish(t, tr, storetest.Run("r-1", 10, 10)...)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := tr.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, away) {
		t.Errorf("got %v", err)
	}
}

// TestFullStreamHoldsThePublisher publishes more than the stream may hold while the store is stopped.
func TestFullStreamHoldsThePublisher(t *testing.T) {
	var open sync.Mutex
	open.Lock()
	tr, f := start(t, func(store.Segment) error {
		open.Lock()
		defer open.Unlock()
		return nil
	})
	big := make([]byte, 4<<20)
	for i := range big {
		big[i] = 'x'
	}
	segment := func(i int) store.Segment {
		frame := storetest.Frame("r-1", uint64(i+1), storetest.Events(4)[0])
		frame.Body = fmt.Appendf(nil, `%s,"pad":"%s"}`, frame.Body[:len(frame.Body)-1], big)
		return store.Segment{Run: "r-1", First: frame.Seq, Last: frame.Seq, Frames: []store.Frame{frame}}
	}
	fit := maxHeld / (4<<20 + 200)
	for i := range fit {
		publish(t, tr, segment(i))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := tr.Publish(ctx, segment(fit)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("publishing %d times 4 MiB returned %v", fit+1, err)
	}
	open.Unlock()
	publish(t, tr, segment(fit))
	if err := drain(t, tr); err != nil {
		t.Fatal(err)
	}
	if n := count(t, f, "r-1"); n != fit+1 {
		t.Errorf("%d records, want %d", n, fit+1)
	}
}

func TestRunWithDots(t *testing.T) {
	tr, f := start(t, nil)
	publish(t, tr, storetest.Run("r-1.x..", 10, 10)...)
	if err := drain(t, tr); err != nil {
		t.Fatal(err)
	}
	if n := count(t, f, "r-1.x.."); n != 10 {
		t.Errorf("%d records, want 10", n)
	}
}

func TestCloseWithoutDrain(t *testing.T) {
	entered := make(chan struct{}, 100)
	tr, _ := start(t, func(store.Segment) error {
		entered <- struct{}{}
		return errors.New("injected: never")
	})
	publish(t, tr, storetest.Run("r-1", 100, 10)...)
	<-entered
	tr.Close()
	if err := tr.Publish(t.Context(), storetest.Run("r-2", 10, 10)[0]); !errors.Is(err, ErrClosed) {
		t.Errorf("Publish after Close: %v", err)
	}
	if err := tr.Drain(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Drain after Close: %v", err)
	}
	tr.Close() // again is harmless
}

func TestCloseAtOnce(t *testing.T) {
	for range 20 {
		Start(t.Context(), nil).Close()
	}
}

// TestNothingOnDisk checks that the server leaves no directory, and creates none later.
func TestNothingOnDisk(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tr := Start(t.Context(), db)
	defer tr.Close()
	publish(t, tr, storetest.Run("r-1", 100, 10)...)
	if err := drain(t, tr); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the temporary directory holds %v, %v", left, err)
	}
}

func TestStartFails(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "missing"))
	tr := Start(t.Context(), nil)
	defer tr.Close()
	if err := tr.Publish(t.Context(), storetest.Run("r-1", 10, 10)[0]); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Publish: %v", err)
	}
	if err := tr.Drain(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Drain: %v", err)
	}
}

func TestRunNames(t *testing.T) {
	for name, ok := range map[string]bool{"r-01ABC_z": true, "": false, "a.b": true, "a b": false, "*": false, ">": false, "ä": false} {
		if _, err := subjectOf("", "", name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}
