package remote

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/privsep/privseptest"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/sqlite"
	"github.com/custody-project/custody/store/storetest"
)

// connected is a Process in this process.
type connected struct{ conn *privsep.Conn }

func (c connected) Conn(context.Context) (*privsep.Conn, error) { return c.conn, nil }
func (c connected) Close() error                                { return nil }

func open(t *testing.T) store.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"))
	if err != nil {
		t.Fatal(err)
	}
	conn := privseptest.ConnectKinds(t, NewServer(s).Handlers(), Kinds)
	t.Cleanup(func() { s.Close() })
	return New(connected{conn})
}

// TestSuite: a store in another process is one like any other.
func TestSuite(t *testing.T) {
	t.Parallel()
	storetest.Suite(t, open)
}

// TestPages: what does not fit into a page comes in several.
func TestPages(t *testing.T) {
	t.Parallel()
	s := open(t)
	var want []store.Segment
	for _, run := range []string{"r-1", "r-2", "r-3"} {
		want = append(want, storetest.Run(run, pageCount/2, 500)...)
	}
	want = append(want, storetest.Run("r-4", pageCount*2+1, 5000)...)
	if err := s.Ingest(t.Context(), want...); err != nil {
		t.Fatal(err)
	}
	storetest.WantRecords(t, s, "r-4", want)
	for _, limit := range []int{1, pageCount - 1, pageCount, pageCount + 1, 2*pageCount + 5} {
		n := 0
		for _, err := range s.Search(t.Context(), store.Search{From: time.Unix(1, 0), Limit: limit}) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != limit {
			t.Errorf("a search for %d returns %d", limit, n)
		}
	}
}

// liar is a Server's end that returns the same page again and again.
func liar(t *testing.T) *Store {
	same := rowOf(store.Row{Head: store.Head{Run: "r-1", Seq: 7, Time: time.Unix(5, 0).UTC()}, Body: []byte("{}")})
	handlers := map[string]privsep.Handler{
		callRecords: handle(func(context.Context, query) (page[row], error) {
			return page[row]{All: []row{same}, More: true}, nil
		}),
		callSearch: handle(func(context.Context, search) (page[row], error) {
			return page[row]{All: []row{same}, More: true}, nil
		}),
		callRuns: handle(func(context.Context, filter) (page[summary], error) {
			return page[summary]{All: []summary{{Run: store.Run{ID: "r-1"}}}, More: true}, nil
		}),
		callManifests: handle(func(context.Context, chain) (page[store.Manifest], error) {
			return page[store.Manifest]{All: []store.Manifest{{Index: 3}}, More: true}, nil
		}),
		callFeed: handle(func(context.Context, position) (page[store.Ref], error) {
			return page[store.Ref]{All: []store.Ref{{Cursor: "x"}}, More: true}, nil
		}),
	}
	return New(connected{privseptest.ConnectKinds(t, handlers, Kinds)})
}

// TestEndless: a process that was taken over cannot have its answers go on without an end.
func TestEndless(t *testing.T) {
	t.Parallel()
	s := liar(t)
	rows := func(all func(func(store.Row, error) bool)) (failed error) {
		for _, err := range all {
			failed = errors.Join(failed, err)
		}
		return failed
	}
	for what, do := range map[string]func() error{
		"records":   func() error { return rows(s.Records(t.Context(), store.Query{Run: "r-1"})) },
		"search":    func() error { return rows(s.Search(t.Context(), store.Search{Text: "x"})) },
		"runs":      func() error { _, err := s.Runs(t.Context(), store.Filter{}); return err },
		"manifests": func() error { _, err := s.Manifests(t.Context(), "", "r-1"); return err },
		"feed":      func() error { _, err := s.Feed(t.Context(), "", 0); return err },
	} {
		if err := do(); !errors.Is(err, errOrder) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestTooLarge: a segment that is too large for a call is refused, and never retried.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	seg := store.Segment{Run: "r-1", Frames: []store.Frame{{Seq: 1, Body: []byte(strings.Repeat("x", maxSegment))}}}
	s := open(t)
	for _, err := range []error{s.Ingest(t.Context(), seg), s.Repair(t.Context(), seg)} {
		if !errors.Is(err, store.ErrMalformed) {
			t.Error(err)
		}
	}
}
