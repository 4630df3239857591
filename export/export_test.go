package export_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/exporttest"
)

// receiver is a sink that keeps what it was given, and fails on demand.
type receiver struct {
	mu   sync.Mutex // guards the fields below
	got  []export.Item
	fail func(items []export.Item) error // nil: takes all
}

func (r *receiver) Send(ctx context.Context, items []export.Item) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var err error
	if r.fail != nil {
		err = r.fail(items)
	}
	var each export.Outcomes
	for i, item := range items {
		if err == nil || errors.As(err, &each) && i < len(each) && each[i] == nil {
			r.got = append(r.got, item)
		}
	}
	return err
}

func (r *receiver) Close() error { return nil }

func (r *receiver) ids() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := map[string]int{}
	for _, i := range r.got {
		ids[i.ID]++
	}
	return ids
}

func options(t testing.TB, src export.Source, sink export.Sink) export.Options {
	return export.Options{Name: "siem", Dir: t.TempDir(), Source: src, Format: export.JSON{}, Sink: sink,
		Batch: export.Batch{Items: 37}, Poll: 5 * time.Millisecond,
		Retry: export.Retry{First: time.Millisecond, Max: 5 * time.Millisecond}}
}

func catchUp(t testing.TB, o export.Options) export.Stats {
	t.Helper()
	x, err := export.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := x.Stats()
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	return s
}

// want checks that each record came at least once, and nothing else.
func want(t *testing.T, src *exporttest.Source, got map[string]int, but ...string) {
	t.Helper()
	ids := src.IDs()
	for id := range ids {
		if got[id] == 0 != slices.Contains(but, id) {
			t.Errorf("event %s came %d times", id, got[id])
		}
	}
	for id := range got {
		if !ids[id] {
			t.Errorf("event %s is of no record", id)
		}
	}
}

// wantOrder checks that the first sight of each event of a run is in order of seq.
func wantOrder(t *testing.T, got []export.Item) {
	t.Helper()
	seen, last := map[string]bool{}, map[string]uint64{}
	for _, i := range got {
		if !seen[i.ID] && i.Seq < last[i.Run] {
			t.Fatalf("event %s came first behind seq %d", i.ID, last[i.Run])
		}
		seen[i.ID], last[i.Run] = true, max(last[i.Run], i.Seq)
	}
}

func TestCatchUpAndGoOn(t *testing.T) {
	src, sink := &exporttest.Source{}, &receiver{}
	src.Add(exporttest.Run("acme", "r-1", 500, 60)...)
	src.Add(exporttest.Run("acme", "r-2", 90, 7)...)
	o := options(t, src, sink)
	catchUp(t, o)
	want(t, src, sink.ids())
	src.Add(exporttest.Run("acme", "r-3", 50, 50)...)
	s := catchUp(t, o)
	want(t, src, sink.ids())
	wantOrder(t, sink.got)
	if len(sink.got) != 640 || s.Sent != 640 || s.Missing != 0 {
		t.Errorf("%d events, %+v", len(sink.got), s)
	}
}

// TestRandomFaults: whatever the sink does, and the store, all events arrive.
func TestRandomFaults(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 1))
			poison := map[string]bool{}
			src := &exporttest.Source{}
			for r := range 3 {
				src.Add(exporttest.Run("acme", fmt.Sprint("r-", r), 4+random.IntN(300), 1+random.IntN(50))...)
			}
			var bad []string
			for id := range src.IDs() {
				if random.IntN(100) == 0 {
					poison[id] = true
					bad = append(bad, id)
				}
			}
			var mu sync.Mutex // guards random, in the source's goroutine and the sink's
			dice := func(n int) int { mu.Lock(); defer mu.Unlock(); return random.IntN(n) }
			src.Fail = func() error {
				if dice(10) == 0 {
					return errors.New("the store is away")
				}
				return nil
			}
			sink := &receiver{}
			sink.fail = func(items []export.Item) error { return fault(items, poison, dice) }
			s := catchUp(t, options(t, src, sink))
			want(t, src, sink.ids(), bad...)
			if int(s.Dead) != len(bad) || int(s.DeadKept) != len(bad) {
				t.Errorf("%d poisoned, %+v", len(bad), s)
			}
		})
	}
}

// fault is what a sink may do: refuse all for one, one for itself, or fail.
func fault(items []export.Item, poison map[string]bool, dice func(int) int) error {
	whole := dice(2) == 0
	each := make(export.Outcomes, len(items))
	bad := false
	for i, item := range items {
		if poison[item.ID] {
			each[i], bad = &export.Refused{Reason: "poisoned"}, true
		} else if !whole && dice(5) == 0 {
			each[i] = errors.New("busy")
		}
	}
	switch n := dice(6); {
	case n == 0:
		return errors.New("reset")
	case n == 1:
		return &export.Later{After: time.Millisecond, Err: errors.New("429")}
	case n == 2:
		return export.Outcomes{errors.New("busy")} // wrong, unless there is one event
	case bad && whole:
		return &export.Refused{Reason: "one of them"}
	}
	for _, err := range each {
		if err != nil {
			return each
		}
	}
	return nil
}

// TestRetryAfterIsHonoured: what the other side asks for is waited.
func TestRetryAfterIsHonoured(t *testing.T) {
	src, sink := &exporttest.Source{}, &receiver{}
	src.Add(exporttest.Run("acme", "r-1", 5, 5)...)
	var asked time.Time
	sink.fail = func([]export.Item) error {
		if asked.IsZero() {
			asked = time.Now()
			return &export.Later{After: 150 * time.Millisecond, Err: errors.New("HTTP 429")}
		}
		if waited := time.Since(asked); waited < 150*time.Millisecond {
			t.Errorf("it was asked again after %v", waited)
		}
		return nil
	}
	if s := catchUp(t, options(t, src, sink)); s.Sent != 5 || s.Retried != 1 {
		t.Errorf("%+v", s)
	}
}
