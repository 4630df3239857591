package ship

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// seen collects what a watcher received, in order.
type seen struct {
	seqs   []uint64
	missed []Missed
	err    error
}

// watching watches until the run ends or stop is called.
func watching(t *testing.T, c Config, run string) (wait func() seen, stop func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	done := make(chan seen, 1)
	go func() {
		var s seen
		for f, err := range Watch(ctx, c, "acme", run) {
			var m *Missed
			switch {
			case errors.As(err, &m):
				s.missed = append(s.missed, *m)
			case err != nil:
				s.err = err
			default:
				s.seqs = append(s.seqs, f.Seq)
			}
		}
		done <- s
	}()
	return func() seen { defer cancel(); return <-done }, cancel
}

// interested waits until the run has a watcher: until then the server reports no subscriber.
func interested(t *testing.T, s *natsServer, run string) {
	t.Helper()
	c := s.conn()
	if err := waitFor(t, func() error {
		_, err := c.Request(tailRoot+"acme."+run, encodeTail(0, nil, false), 50*time.Millisecond)
		if errors.Is(err, nats.ErrTimeout) {
			return nil
		}
		return fmt.Errorf("no watcher: %v", err)
	}); err != nil {
		t.Fatal(err)
	}
}

func TestTail(t *testing.T) {
	s := startNATS(t, alwaysSync, "")
	r := dial(t, s.config())
	frames := storetest.Frames("r-1", storetest.Events(1000))
	erased := frames[7].Leaf()
	frames[7] = store.Frame{Seq: 8, Erased: &erased}
	tail := r.Tail(s.config().Tenant, "r-1")
	tail.Publish(t.Context(), frames[:10]) // without a watcher
	if err := r.conn.Flush(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	wait, _ := watching(t, s.config(), "r-1")
	interested(t, s, "r-1")
	for i := 10; i < 900; i += 10 {
		tail.Publish(t.Context(), frames[i:i+10])
	}
	tail.Publish(t.Context(), frames[950:])
	tail.Close()
	tail.Publish(t.Context(), frames) // too late, and harmless
	tail.Close()
	got := wait()
	if got.err != nil || len(got.missed) == 0 || got.missed[0] != (Missed{0, 11}) {
		t.Errorf("missed %v, %v", got.missed, got.err)
	}
	if !slices.IsSorted(got.seqs) || len(got.seqs) != 890+50 {
		t.Errorf("%d records, in order: %v", len(got.seqs), slices.IsSorted(got.seqs))
	}
	if last := got.missed[len(got.missed)-1]; last != (Missed{900, 951}) {
		t.Errorf("missed %v", got.missed)
	}
}

// TestTailThroughServerDeath: records that were sent without a server are reported missed, with the next
// record or, without one, with the beat.
func TestTailThroughServerDeath(t *testing.T) {
	s := startNATS(t, alwaysSync, "")
	r := dial(t, s.config())
	tail := r.Tail(s.config().Tenant, "r-1")
	wait, _ := watching(t, s.config(), "r-1")
	interested(t, s, "r-1")
	frames := storetest.Frames("r-1", storetest.Events(40))
	tail.Publish(t.Context(), frames[:10])
	if err := r.conn.FlushTimeout(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	s.kill()
	if err := waitFor(t, func() error {
		if r.conn.IsConnected() {
			return errors.New("still connected")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	tail.Publish(t.Context(), frames[10:20])
	if took := time.Since(start); took > 30*time.Second { // far more than a call that does not block needs
		t.Errorf("Publish without a server took %v", took)
	}
	time.Sleep(50 * time.Millisecond)
	s.start()
	interested(t, s, "r-1")
	if err := waitFor(t, func() error {
		if !r.conn.IsConnected() {
			return errors.New("not connected")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	tail.Publish(t.Context(), frames[20:30])
	tail.Close()
	got := wait()
	if got.err != nil || len(got.seqs) != 20 || !slices.Equal(got.missed, []Missed{{10, 21}}) {
		t.Errorf("%d records, missed %v, %v", len(got.seqs), got.missed, got.err)
	}
}

// TestTailIsBounded: records beyond the bound are dropped, counted, and shown by the seq of the next one.
func TestTailIsBounded(t *testing.T) {
	counted := uint64(0)
	tail := &Tail{wake: make(chan struct{}, 1), count: func(n uint64) { counted += n }} // no goroutine empties it
	big := make([]byte, maxTailQueue/4)
	var frames []store.Frame
	for i := range 10 {
		frames = append(frames, store.Frame{Seq: uint64(i + 1), Body: big})
	}
	tail.Publish(t.Context(), frames)
	if len(tail.queue) != 3 || counted != 7 {
		t.Errorf("%d wait and %d were left out", len(tail.queue), counted)
	}
}

// TestWatcherOracle compares the watcher with a list of all sent records.
func TestWatcherOracle(t *testing.T) {
	for _, sent := range [][]uint64{{1, 2, 3}, {3, 4}, {1, 3, 3, 2, 9}, {5, 1, 6, 6, 8}, {}} {
		covered := map[uint64]string{}
		w := watcher{yield: func(f store.Frame, err error) bool {
			var m *Missed
			if errors.As(err, &m) {
				for seq := m.After + 1; seq < m.Before; seq++ {
					covered[seq] += "m"
				}
			} else {
				covered[f.Seq] += "r"
			}
			return true
		}}
		newest := uint64(0)
		for _, seq := range sent {
			newest = max(newest, seq)
			w.take(newest, []store.Frame{{Seq: seq, Body: []byte("x")}})
		}
		for seq := uint64(1); seq <= newest; seq++ {
			if c := covered[seq]; c != "r" && c != "m" {
				t.Errorf("%v: seq %d was reported as %q", sent, seq, c)
			}
		}
		if len(covered) != int(newest) {
			t.Errorf("%v: %v", sent, covered)
		}
	}
}

func FuzzDecodeTail(f *testing.F) {
	frames := storetest.Frames("r-1", storetest.Events(6))
	leaf := frames[3].Leaf()
	frames[3] = store.Frame{Seq: 4, Erased: &leaf}
	f.Add(encodeTail(6, frames, false))
	f.Add(encodeTail(9, nil, true))
	f.Add([]byte(tailMagic + "\x01\x80\x00"))
	f.Fuzz(func(t *testing.T, message []byte) {
		last, frames, end, err := decodeTail(message)
		if err != nil {
			if !errors.Is(err, store.ErrMalformed) {
				t.Fatalf("not a typed error: %v", err)
			}
			return
		}
		if again := encodeTail(last, frames, end); !bytes.Equal(again, message) {
			t.Fatalf("decoded %x, encoded again %x", message, again)
		}
	})
}
