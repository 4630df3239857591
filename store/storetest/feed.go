package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/custody-project/custody/store"
)

var feedTests = []namedTest{
	{"order and cursors", testFeedOrder},
	{"while many write", testFeedConcurrent},
}

// testFeedOrder ingests segments one by one and continues from every cursor.
func testFeedOrder(t *testing.T, s store.Store) {
	segs := slices.Concat(owned("a", "h1", Run("r-z", 60, 7)), owned("b", "h2", Run("r-a", 30, 4)))
	rand.New(rand.NewPCG(6, 6)).Shuffle(len(segs), func(i, j int) { segs[i], segs[j] = segs[j], segs[i] })
	Ingest(t, s, segs)
	Ingest(t, s, segs[3:9]) // repeats may be in the feed again, or not
	same(t, s, segs...)
	all := follow(t, s, "", 0)
	if order := places(t, all, segs); !slices.IsSorted(order) {
		t.Fatalf("the feed's order is %v", order)
	}
	for i, ref := range all {
		rest := follow(t, s, ref.Cursor, 1+i%4)
		for _, r := range all[i+1:] {
			if !slices.ContainsFunc(rest, func(o store.Ref) bool { return sameRef(o, r) }) {
				t.Fatalf("behind cursor %d the feed has no run %s segment %d", i, r.Run, r.Index)
			}
		}
	}
	end := all[len(all)-1].Cursor
	more := later("r-m", 1)
	Ingest(t, s, more)
	if order := places(t, follow(t, s, end, 1), more); len(order) != len(more) || !slices.IsSorted(order) {
		t.Fatalf("what came later is fed as %v", order)
	}
}

// places returns the index in segs of each segment, in the order of first occurrence.
func places(t *testing.T, refs []store.Ref, segs []store.Segment) (order []int) {
	t.Helper()
	for _, r := range refs {
		i := slices.IndexFunc(segs, func(s store.Segment) bool { return s.Run == r.Run && s.Index == r.Index })
		if i >= 0 && !slices.Contains(order, i) {
			order = append(order, i)
		}
	}
	return order
}

// testFeedConcurrent reads the feed while writers ingest: a reader that only moves forward misses nothing, and sees each
// writer's segments in order.
func testFeedConcurrent(t *testing.T, s store.Store) {
	const writers, perRun = 4, 15
	var work sync.WaitGroup
	for i := range writers {
		work.Go(func() {
			for _, seg := range Run(fmt.Sprint("r-", i), perRun*4, 4) {
				if err := s.Ingest(t.Context(), seg); err != nil {
					t.Errorf("writer %d: %v", i, err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { work.Wait(); close(done) }()
	var seen []store.Ref
	cursor := ""
	for last := false; !last; {
		select {
		case <-done:
			last = true // the feed is now complete
		default:
		}
		refs := follow(t, s, cursor, 1+len(seen)%5)
		if len(refs) > 0 {
			cursor = refs[len(refs)-1].Cursor
			seen = append(seen, refs...)
		}
	}
	for i := range writers {
		segs := Run(fmt.Sprint("r-", i), perRun*4, 4)
		if order := places(t, seen, segs); len(order) != len(segs) || !slices.IsSorted(order) {
			t.Errorf("of run %d the feed gave %v, want all %d in order", i, order, len(segs))
		}
	}
}
