package storetest

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"testing"

	"github.com/custody-project/custody/store"
)

// Suite runs the tests that every store passes. open returns a new, empty store
// and closes it when its test ends; Suite never closes one.
//
// The requirements on a store in addition to those of store.Store:
//
//   - A run has one tenant and one host, those of its first ingested
//     segment. A segment that names others is a conflict: no run can write to another's
//     run. Only if the store does not know the host, as in what an older Custody
//     wrote, the next segment sets it.
//   - An erased frame does not erase what the store has: a compromised host
//     cannot remove what it sent. Erase does. An original that is ingested after
//     an erasure restores nothing. If the leaves are equal, neither is a conflict.
//   - A summary is the result of folding the rows; erased ones are only counted.
//   - The head of an erased frame that is ingested first is that of Segment.Heads.
//   - Search without Kinds finds erased records by their time. A search without conditions is an error.
//   - Limits of 0 mean none, also for Feed.
func Suite(t *testing.T, open func(t *testing.T) store.Store) {
	t.Helper()
	for _, group := range []struct {
		name  string
		tests []namedTest
	}{
		{"Ingest", ingestTests}, {"Refuse", refuseTests}, {"Read", readTests}, {"Runs", runTests},
		{"Pages", pageTests}, {"Tenants", tenantTests}, {"Feed", feedTests}, {"Erase", eraseTests}, {"Repair", repairTests}, {"Random", randomTests},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, test := range group.tests {
				t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
			}
		})
	}
}

// namedTest is a test of an empty store.
type namedTest struct {
	name string
	run  func(*testing.T, store.Store)
}

// Ingest ingests segments one by one.
func Ingest(t testing.TB, s store.Store, segs []store.Segment) {
	t.Helper()
	for _, seg := range segs {
		if err := s.Ingest(t.Context(), seg); err != nil {
			t.Fatalf("ingest run %s segment %d: %v", seg.Run, seg.Index, err)
		}
	}
}

// Collect reads rows to their end.
func Collect(t testing.TB, rows iter.Seq2[store.Row, error]) []store.Row {
	t.Helper()
	var all []store.Row
	for row, err := range rows {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, row)
	}
	return all
}

// WantRecords checks that the store has exactly the frames of segs for the run.
func WantRecords(t testing.TB, s store.Store, run string, segs []store.Segment) {
	t.Helper()
	var want, got []store.Frame
	for _, seg := range segs {
		if seg.Run == run {
			want = append(want, seg.Frames...)
		}
	}
	for _, r := range Collect(t, s.Records(t.Context(), store.Query{Run: run})) {
		got = append(got, r.Frame())
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("store holds %d records of run %s, want exactly the %d ingested", len(got), run, len(want))
	}
}

// wantLike checks that s has the same contents as o: summaries, rows, manifests, feed.
func wantLike(t *testing.T, s store.Store, o *Oracle) {
	t.Helper()
	ctx := t.Context()
	want, _ := o.Runs(ctx, store.Filter{})
	got, err := s.Runs(ctx, store.Filter{})
	if err != nil || len(got) != len(want) {
		t.Fatalf("%d runs, %v, want %d", len(got), err, len(want))
	}
	for i, w := range want {
		wantRun(t, got[i], w)
		wantRows(t, Collect(t, s.Records(ctx, store.Query{Run: w.ID})), Collect(t, o.Records(ctx, store.Query{Run: w.ID})))
		wantChain, _ := o.Manifests(ctx, "", w.ID)
		gotChain, err := s.Manifests(ctx, "", w.ID)
		if err != nil || !reflect.DeepEqual(gotChain, wantChain) {
			t.Fatalf("run %s: %v, manifests\n%v, want\n%v", w.ID, err, gotChain, wantChain)
		}
	}
	wantRefs(t, follow(t, s, "", 7), follow(t, o, "", 0))
}

func wantRun(t *testing.T, got, want store.Run) {
	t.Helper()
	if field := got.Differs(want); field != "" || got.Tenant != want.Tenant || got.Host != want.Host || got.DurationNS != want.DurationNS {
		t.Fatalf("summary differs in %q, tenant, host or duration:\n%+v, want\n%+v", field, got, want)
	}
}

func wantRows(t *testing.T, got, want []store.Row) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d rows, want %d", len(got), len(want))
	}
	for i := range got {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Fatalf("row %d is\n%s, want\n%s", i, show(got[i]), show(want[i]))
		}
	}
}

func show(r store.Row) string {
	if len(r.Body) > 500 {
		r.Body = r.Body[:500]
	}
	return fmt.Sprintf("%+v tenant %q erased %x salt %x body %q", r.Head, r.Tenant, r.Erased, r.Salt, r.Body)
}

// follow reads the feed to its end.
func follow(t testing.TB, s store.Store, after string, limit int) []store.Ref {
	t.Helper()
	var all []store.Ref
	for {
		refs, err := s.Feed(context.WithoutCancel(t.Context()), after, limit)
		if err != nil {
			t.Fatalf("feed behind %q: %v", after, err)
		}
		if limit > 0 && len(refs) > limit {
			t.Fatalf("feed gave %d segments, the limit is %d", len(refs), limit)
		}
		if len(refs) == 0 {
			return all
		}
		all = append(all, refs...)
		after = refs[len(refs)-1].Cursor
	}
}

// wantRefs checks that every segment of want that has a manifest is in got.
// Each may occur twice.
func wantRefs(t *testing.T, got, want []store.Ref) {
	t.Helper()
	for _, w := range want {
		if !slices.ContainsFunc(got, func(g store.Ref) bool { return sameRef(g, w) }) {
			t.Fatalf("the feed has not run %s segment %d, seq %d to %d", w.Run, w.Index, w.First, w.Last)
		}
	}
	for _, g := range got {
		if !slices.ContainsFunc(want, func(w store.Ref) bool { return sameRef(g, w) }) {
			t.Fatalf("the feed has what was never ingested: %+v", g)
		}
	}
}

// sameRef compares all fields except cursors; the bounds of a segment without frames have no meaning.
func sameRef(a, b store.Ref) bool {
	a.Cursor, b.Cursor = "", ""
	if a.Count == 0 && b.Count == 0 {
		a.First, a.Last, b.First, b.Last = 0, 0, 0, 0
	}
	return a == b
}
