package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/custody-project/custody/store"
)

var repairTests = []namedTest{
	{"what is right", testRepairNothing},
	{"what is not there", testRepairMissing},
	{"rows that differ", testRepairRows},
	{"erased stays erased", testRepairErased},
	{"refused", testRepairRefused},
	{"concurrent", testRepairConcurrent},
	{"at random", testRepairRandom},
}

// Repair repairs segments one by one.
func Repair(t testing.TB, s store.Store, segs ...store.Segment) {
	t.Helper()
	for _, seg := range segs {
		if err := s.Repair(t.Context(), seg); err != nil {
			t.Fatalf("repair run %s segment %d: %v", seg.Run, seg.Index, err)
		}
	}
}

// untrue is seg as in a store with altered, removed and added rows. Stores accept it, because they do not check
// roots.
func untrue(random *rand.Rand, seg store.Segment) store.Segment {
	var frames []store.Frame
	for i, f := range seg.Frames {
		inner := 0 < i && i+1 < len(seg.Frames) // the bounds must stay
		switch n := random.IntN(6); {
		case n == 0 && inner:
			continue
		case n == 1:
			f = Frame(seg.Run, f.Seq, Events(30)[random.IntN(30)])
		case n == 2 && f.Erased == nil:
			f.Salt[3]++
		case n == 3 && f.Erased == nil:
			f = erased(f)
		}
		frames = append(frames, f)
		if next := f.Seq + 1; random.IntN(4) == 0 && next < seg.Last && next < seg.Frames[min(i+1, len(seg.Frames)-1)].Seq {
			frames = append(frames, Frame(seg.Run, next, Events(30)[random.IntN(30)]))
		}
	}
	seg.Frames = frames
	return seg
}

// lies returns the segments of Run, with the second one made untrue in each way; its seqs have holes.
func lies(run string) (segs []store.Segment, lie store.Segment) {
	frames := Frames(run, Events(60))
	var some []store.Frame
	for _, f := range frames {
		if f.Seq%10 != 7 {
			some = append(some, f)
		}
	}
	segs = owned("a", "h", Segments(run, some, 20))
	lie = segs[1]
	lie.Frames = slices.Clone(lie.Frames)
	lie.Frames[2] = Frame(run, lie.Frames[2].Seq, Events(9)[8]) // an end of the run
	lie.Frames[5].Salt[0]++
	lie.Frames[0].Body = append(slices.Clone(lie.Frames[0].Body), ' ')
	lie.Frames = slices.Delete(lie.Frames, 10, 13)
	at := slices.IndexFunc(lie.Frames, func(f store.Frame) bool { return f.Seq > 37 })
	lie.Frames = slices.Insert(lie.Frames, at, Frame(run, 37, Events(9)[5]))
	return segs, lie
}

func testRepairNothing(t *testing.T, s store.Store) {
	segs := owned("a", "h", Run("r-1", 60, 25))
	Ingest(t, s, segs)
	o := same(t, s, segs...)
	told := len(follow(t, s, "", 0))
	for range 2 {
		Repair(t, s, segs...)
		Repair(t, o, segs...)
	}
	wantLike(t, s, o)
	if n := len(follow(t, s, "", 0)); n != told {
		t.Errorf("the feed reported %d segments, and of %d after repairs of nothing", told, n)
	}
}

// testRepairMissing: if there is no manifest, Repair is Ingest.
func testRepairMissing(t *testing.T, s store.Store) {
	segs := owned("a", "h", Run("r-1", 60, 25))
	Repair(t, s, segs[1])
	same(t, s, segs[1])
	Ingest(t, s, recut("r-2", 40, 9))
	Repair(t, s, segs...)
	Repair(t, s, Run("r-2", 40, 20)...)
	o := same(t, s, slices.Concat(recut("r-2", 40, 9), segs, Run("r-2", 40, 20))...)
	other := Run("r-2", 60, 30)[1]
	other.Index, other.Manifest = 1, Run("r-2", 60, 30)[1].Manifest
	if err := s.Repair(t.Context(), other); !errors.Is(err, store.ErrConflict) {
		t.Errorf("another manifest than the one there: got %v, want ErrConflict", err)
	}
	wantLike(t, s, o)
}

func testRepairRows(t *testing.T, s store.Store) {
	segs, lie := lies("r-1")
	o := &Oracle{}
	for _, seg := range []store.Segment{segs[0], lie, segs[2], segs[3]} {
		Ingest(t, s, []store.Segment{seg})
		Ingest(t, o, []store.Segment{seg})
	}
	wantLike(t, s, o)
	told := follow(t, s, "", 0)
	for range 2 {
		Repair(t, s, segs[1])
		Repair(t, o, segs[1])
		WantRecords(t, s, "r-1", segs)
		wantLike(t, s, o)
	}
	if after := follow(t, s, told[len(told)-1].Cursor, 0); len(after) == 0 || after[0].Index != 1 {
		t.Errorf("after the repair the feed reports %v, want segment 1", after)
	}
	Ingest(t, s, segs) // as if it had been ingested correctly
	Repair(t, s, segs...)
	wantLike(t, s, o)
	r, err := s.Run(t.Context(), "", "r-1")
	if err != nil || r.Events != 54 || r.Status != store.Sealed || *r.ExitCode != 7 {
		t.Errorf("summary is %+v, %v", r, err)
	}
	for _, q := range searches() {
		wantFound(t, s, o, q)
	}
}

func testRepairErased(t *testing.T, s store.Store) {
	segs, lie := lies("r-1")
	for _, i := range []int{1, 7} { // unchanged, the second with the wrong leaf
		lie.Frames[i] = erased(lie.Frames[i])
	}
	lie.Frames[7].Erased[0]++
	o := &Oracle{}
	Ingest(t, s, []store.Segment{segs[0], lie, segs[2], segs[3]})
	Ingest(t, o, []store.Segment{segs[0], lie, segs[2], segs[3]})
	for _, f := range []store.Frame{lie.Frames[2], lie.Frames[9]} { // one that is altered, one that is correct
		erase(t, "r-1", f.Seq, s, o)
	}
	erase(t, "r-1", 1, s, o)
	late := segs[1]
	late.Frames = slices.Clone(late.Frames)
	for _, i := range []int{3, 5, 7, 11} { // correct, altered, erased too, missing in the store
		late.Frames[i] = erased(late.Frames[i])
	}
	for _, seg := range []store.Segment{late, segs[0], segs[1], late} {
		Repair(t, s, seg)
		Repair(t, o, seg)
		wantLike(t, s, o)
	}
	gone := 0
	for _, r := range Collect(t, s.Records(t.Context(), store.Query{Run: "r-1"})) {
		if r.Erased != nil {
			gone++
		}
	}
	if gone != 7 {
		t.Errorf("%d records are erased, want 7", gone)
	}
	erase(t, "r-1", late.Frames[15].Seq, s, o)
	wantLike(t, s, o)
}

// testRepairRefused checks that nothing but the original segment changes anything.
func testRepairRefused(t *testing.T, s store.Store) {
	segs, lie := lies("r-1")
	Ingest(t, s, []store.Segment{segs[0], lie, segs[2], segs[3]})
	o := same(t, s, segs[0], lie, segs[2], segs[3])
	forged := owned("a", "h", Segments("r-1", Frames("r-1", Events(40)), 20))[1]
	for name, tc := range map[string]struct {
		change func(*store.Segment)
		want   error
	}{
		"another manifest":    {func(g *store.Segment) { *g = forged }, store.ErrConflict},
		"more manifest":       {func(g *store.Segment) { g.Manifest = append(slices.Clone(g.Manifest), 'x') }, store.ErrConflict},
		"another tenant":      {func(g *store.Segment) { g.Tenant = "b" }, store.ErrConflict},
		"another host":        {func(g *store.Segment) { g.Host = "" }, store.ErrConflict},
		"the untrue rows":     {func(g *store.Segment) { *g = lie }, store.ErrMalformed},
		"another root":        {func(g *store.Segment) { g.Root[0]++ }, store.ErrMalformed},
		"another index":       {func(g *store.Segment) { g.Index = 2 }, store.ErrMalformed},
		"a record less":       {func(g *store.Segment) { g.Frames = slices.Delete(slices.Clone(g.Frames), 4, 5) }, store.ErrMalformed},
		"no records":          {func(g *store.Segment) { g.Frames = nil }, store.ErrMalformed},
		"no manifest":         {func(g *store.Segment) { g.Manifest = nil }, store.ErrMalformed},
		"seqs that are moved": {func(g *store.Segment) { g.Frames = slices.Clone(g.Frames); g.Frames[3].Seq-- }, store.ErrMalformed},
	} {
		bad := segs[1]
		tc.change(&bad)
		if err := s.Repair(t.Context(), bad); !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %v", name, err, tc.want)
		}
	}
	wantLike(t, s, o)
}

func testRepairConcurrent(t *testing.T, s store.Store) {
	segs, lie := lies("r-1")
	Ingest(t, s, []store.Segment{segs[0], lie, segs[2], segs[3]})
	var writers sync.WaitGroup
	for range 3 {
		writers.Go(func() {
			if err := s.Repair(t.Context(), segs[1]); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	o := &Oracle{}
	Ingest(t, o, []store.Segment{segs[0], lie, segs[2], segs[3]})
	Repair(t, o, segs[1])
	wantLike(t, s, o)
}

func testRepairRandom(t *testing.T, s store.Store) {
	random := rand.New(rand.NewPCG(4, 4))
	o := &Oracle{}
	for i, done := 0, 0; done < 3; i++ {
		segs := randomRun(random, fmt.Sprint("r-", i))
		if len(segs) > 8 { // each repair is a mutation for some stores
			continue
		}
		done++
		for _, seg := range segs {
			bad := untrue(random, seg)
			Ingest(t, s, []store.Segment{bad})
			Ingest(t, o, []store.Segment{bad})
		}
		if i%2 == 0 {
			rows := o.where(func(r store.Row) bool { return r.Run == segs[0].Run })
			erase(t, segs[0].Run, rows[random.IntN(len(rows))].Seq, s, o)
		}
		random.Shuffle(len(segs), func(i, j int) { segs[i], segs[j] = segs[j], segs[i] })
		for _, seg := range segs {
			Repair(t, s, seg)
			Repair(t, o, seg)
		}
	}
	wantLike(t, s, o)
}

// WantLike checks that s has the same contents as o: summaries, rows, manifests, feed.
func WantLike(t *testing.T, s store.Store, o *Oracle) {
	t.Helper()
	wantLike(t, s, o)
}
