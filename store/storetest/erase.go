package storetest

import (
	"errors"
	"sync"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

var eraseTests = []namedTest{
	{"a record", testErase},
	{"nothing there", testEraseNothing},
	{"summary", testEraseSummary},
	{"nothing comes back", testEraseStays},
	{"erased before it came", testErasedFirst},
	{"a segment erased before it came", testErasedSegment},
	{"while it is ingested again", testEraseConcurrent},
}

func erase(t *testing.T, run string, seq uint64, stores ...store.Store) {
	t.Helper()
	for _, s := range stores {
		if err := s.Erase(t.Context(), "", run, seq); err != nil {
			t.Fatalf("erase seq %d: %v", seq, err)
		}
	}
}

// erased is the erased form of a frame.
func erased(f store.Frame) store.Frame {
	leaf := f.Leaf()
	return store.Frame{Seq: f.Seq, Erased: &leaf}
}

func testErase(t *testing.T, s store.Store) {
	segs := owned("a", "h", Segments("r-1", Frames("r-1", searchable()), 20))
	Ingest(t, s, segs)
	o := same(t, s, segs...)
	for seq := uint64(1); seq <= 14; seq++ { // one of each kind
		erase(t, "r-1", seq, s, o)
	}
	wantLike(t, s, o)
	row := Collect(t, s.Records(t.Context(), store.Query{Run: "r-1", Limit: 1}))[0]
	if row.Frame().Leaf() != segs[0].Frames[0].Leaf() || row.Erased == nil || len(row.Body) > 0 || row.Salt != [16]byte{} ||
		row.Path != "" || row.Kind != "" || !row.Time.Equal(start) {
		t.Fatalf("what is left is %s", show(row))
	}
	for _, q := range searches() {
		wantFound(t, s, o, q)
	}
	q := store.Query{Run: "r-1", Kinds: []audit.Kind{audit.KindFile}}
	wantRows(t, Collect(t, s.Records(t.Context(), q)), Collect(t, o.Records(t.Context(), q)))
	for range 2 { // repeats
		erase(t, "r-1", 3, s, o)
	}
	wantLike(t, s, o)
}

func testEraseNothing(t *testing.T, s store.Store) {
	segs := owned("a", "h", Run("r-1", 10, 10))
	Ingest(t, s, segs)
	for _, tc := range []struct {
		tenant, run string
		seq         uint64
		want        error
	}{
		{"", "r-2", 1, store.ErrNotFound}, {"b", "r-1", 1, store.ErrNotFound}, {"", "r-", 1, store.ErrNotFound}, {"", store.Last, 1, store.ErrNotFound},
		{"a", "r-1", 11, store.ErrNoRecord}, {"", "r-1", 0, store.ErrNoRecord}, {"", "r-1", 1<<64 - 1, store.ErrNoRecord},
	} {
		if err := s.Erase(t.Context(), tc.tenant, tc.run, tc.seq); !errors.Is(err, tc.want) {
			t.Errorf("tenant %q run %q seq %d: got %v, want %v", tc.tenant, tc.run, tc.seq, err, tc.want)
		}
	}
	same(t, s, segs...)
}

// testEraseSummary erases records that summaries are computed from.
func testEraseSummary(t *testing.T, s store.Store) {
	events := Events(12)
	events[4] = audit.Event{Time: events[4].Time, Observer: audit.Host, Kind: audit.KindFinding, Finding: &audit.Finding{Rule: "x", Detail: "of a person"}}
	events[5] = audit.Event{Time: events[5].Time, Observer: audit.Host, Kind: audit.KindGap, Gap: &audit.Gap{Count: 9}}
	segs := Segments("r-1", Frames("r-1", events), 5)
	Ingest(t, s, segs)
	o := same(t, s, segs...)
	for _, seq := range []uint64{5, 6, 1, 12} { // finding, gap, the run's start, its end
		erase(t, "r-1", seq, s, o)
		wantLike(t, s, o)
	}
	Ingest(t, s, segs)
	wantLike(t, s, o)
}

func testEraseStays(t *testing.T, s store.Store) {
	segs := Run("r-1", 40, 10)
	Ingest(t, s, segs)
	o := same(t, s, segs...)
	erase(t, "r-1", 12, s, o)
	Ingest(t, s, segs)
	Ingest(t, s, recut("r-1", 40, 17))
	wantLike(t, s, o)

	again := Run("r-1", 40, 10)[1]
	again.Frames[1] = erased(again.Frames[1]) // as in the log now
	again.Frames[5] = erased(again.Frames[5]) // erased in the log only: the store keeps its record
	Ingest(t, s, []store.Segment{again})
	wantLike(t, s, o)

	for name, change := range map[string]func(*store.Frame){
		"body": func(f *store.Frame) { *f = Frame("r-1", 12, Events(40)[3]) },
		"salt": func(f *store.Frame) { f.Salt[1]++ },
		"leaf": func(f *store.Frame) { *f = store.Frame{Seq: 12, Erased: &[32]byte{9}} },
	} {
		bad := Run("r-1", 40, 10)[1]
		change(&bad.Frames[1])
		if err := s.Ingest(t.Context(), bad); !errors.Is(err, store.ErrConflict) {
			t.Errorf("another %s in the place of an erased record: got %v, want ErrConflict", name, err)
		}
	}
	wantLike(t, s, o)
}

// testErasedFirst is a store that is built from a log with erased records.
func testErasedFirst(t *testing.T, s store.Store) {
	segs, full := Run("r-1", 40, 10), Run("r-1", 40, 10)
	for _, i := range []int{0, 3, 4, 9} {
		for j := range 2 {
			segs[j].Frames[i] = erased(segs[j].Frames[i])
		}
	}
	Ingest(t, s, segs)
	o := same(t, s, segs...)
	Ingest(t, s, full) // the complete segment from elsewhere: nothing is restored
	wantLike(t, s, o)
	erase(t, "r-1", 4, s, o)
	erase(t, "r-1", 35, s, o)
	wantLike(t, s, o)
}

// testErasedSegment has no record with a time.
func testErasedSegment(t *testing.T, s store.Store) {
	segs := Run("r-1", 30, 10)
	for i := range segs[2].Frames {
		segs[2].Frames[i] = erased(segs[2].Frames[i])
	}
	Ingest(t, s, segs)
	o := same(t, s, segs...)
	row := Collect(t, s.Records(t.Context(), store.Query{Run: "r-1", AfterSeq: 20, Limit: 1}))[0]
	if !row.Time.Equal(sealed(2)) {
		t.Errorf("time is %v, want that of the manifest", row.Time)
	}
	wantFound(t, s, o, store.Search{From: sealed(0)})
}

func testEraseConcurrent(t *testing.T, s store.Store) {
	segs := Run("r-1", 60, 10)
	Ingest(t, s, segs)
	o := same(t, s, segs...)
	var writers sync.WaitGroup
	for range 3 {
		writers.Go(func() {
			for _, seg := range segs {
				if err := s.Ingest(t.Context(), seg); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, seq := range []uint64{2, 33, 60} {
		erase(t, "r-1", seq, s, o)
	}
	writers.Wait()
	wantLike(t, s, o)
}
