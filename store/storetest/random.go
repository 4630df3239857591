package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

var randomTests = []namedTest{
	{"against the oracle 1", func(t *testing.T, s store.Store) { against(t, s, rand.New(rand.NewPCG(1, 1))) }},
	{"against the oracle 2", func(t *testing.T, s store.Store) { against(t, s, rand.New(rand.NewPCG(2, 2))) }},
	{"against the oracle 3", func(t *testing.T, s store.Store) { against(t, s, rand.New(rand.NewPCG(3, 3))) }},
}

// against does random operations on s and on an oracle.
func against(t *testing.T, s store.Store, random *rand.Rand) {
	o := &Oracle{}
	var segs []store.Segment
	for i := range 5 {
		segs = append(segs, randomRun(random, fmt.Sprint("r-", i))...)
	}
	for step := range 40 {
		switch random.IntN(10) {
		case 0:
			seg := segs[random.IntN(len(segs))] // once it is stored, a damaged one can never be ingested
			Ingest(t, s, []store.Segment{seg})
			Ingest(t, o, []store.Segment{seg})
			refused(t, s, o, damaged(random, seg))
		case 1:
			if rows := o.where(func(store.Row) bool { return true }); len(rows) > 0 {
				r := rows[random.IntN(len(rows))]
				erase(t, r.Run, r.Seq, s, o)
			}
		default:
			batch := pick(random, segs)
			if err := s.Ingest(t.Context(), batch...); err != nil {
				t.Fatal(err)
			}
			Ingest(t, o, batch)
		}
		if step%8 == 7 {
			wantLike(t, s, o)
			askAtRandom(t, s, o, random)
		}
	}
}

// pick returns a batch in any order, with repeats.
func pick(random *rand.Rand, segs []store.Segment) []store.Segment {
	var batch []store.Segment
	for range 1 + random.IntN(4) {
		batch = append(batch, segs[random.IntN(len(segs))])
	}
	return batch
}

// refused checks that s accepts or refuses a segment like the oracle.
func refused(t *testing.T, s store.Store, o *Oracle, seg store.Segment) {
	t.Helper()
	want, got := o.Ingest(t.Context(), seg), s.Ingest(t.Context(), seg)
	if want == nil {
		t.Fatalf("run %s segment %d is not damaged", seg.Run, seg.Index)
	}
	for _, kind := range []error{store.ErrConflict, store.ErrMalformed} {
		if errors.Is(want, kind) != errors.Is(got, kind) || got == nil {
			t.Fatalf("run %s segment %d: got %v, want %v", seg.Run, seg.Index, got, want)
		}
	}
}

// damaged returns a segment with one alteration.
func damaged(random *rand.Rand, seg store.Segment) store.Segment {
	seg.Frames = slices.Clone(seg.Frames)
	switch i := random.IntN(max(1, len(seg.Frames))); {
	case random.IntN(4) == 0:
		seg.Tenant += "x"
	case len(seg.Frames) == 0 || random.IntN(3) == 0:
		seg.Manifest = append(slices.Clone(seg.Manifest), 'x')
	case random.IntN(2) == 0:
		seg.Frames[i].Salt[5]++
	default:
		seg.Frames[i] = Frame(seg.Run, seg.Frames[i].Seq, Events(5)[2])
	}
	return seg
}

// randomRun returns a run of some tenant, with gaps in its seqs and a few erased records.
func randomRun(random *rand.Rand, id string) []store.Segment {
	var frames []store.Frame
	seq := uint64(random.IntN(3))
	events := Events(4)
	events = slices.Insert(events, 2, randomEvents(random, 10+random.IntN(60))...)
	for _, e := range events {
		seq += 1 + uint64(random.IntN(2)*random.IntN(2))
		f := Frame(id, seq, e)
		if random.IntN(25) == 0 {
			f = erased(f)
		}
		frames = append(frames, f)
	}
	return owned([]string{"", "a", "b"}[random.IntN(3)], []string{"", "h1", "h2"}[random.IntN(3)], Segments(id, frames, 1+random.IntN(20)))
}

func randomEvents(random *rand.Rand, n int) []audit.Event {
	pool := searchable()
	texts := AnyText()
	events := make([]audit.Event, n)
	for i := range events {
		e := pool[random.IntN(len(pool))]
		if random.IntN(4) == 0 {
			e = audit.Event{Kind: audit.KindFile, File: &audit.File{Path: texts[random.IntN(len(texts))], SHA256: fmt.Sprintf("%064x", random.IntN(4))}}
		}
		if random.IntN(15) == 0 {
			e = audit.Event{Kind: audit.KindGap, Gap: &audit.Gap{Count: uint64(random.IntN(100))}}
		}
		e.Observer = []audit.Observer{audit.Host, audit.Guest}[random.IntN(2)]
		e.Time = start.Add(time.Duration(random.IntN(50)) * 1000000007) // many have one time
		events[i] = e
	}
	return events
}

func askAtRandom(t *testing.T, s store.Store, o *Oracle, random *rand.Rand) {
	t.Helper()
	all := searches()
	for range 10 {
		q := all[random.IntN(len(all))]
		q.Limit = random.IntN(3) * random.IntN(20)
		wantFound(t, s, o, q)
		p := store.Query{Run: fmt.Sprint("r-", random.IntN(6)), AfterSeq: uint64(random.IntN(80)), Limit: random.IntN(3) * random.IntN(20)}
		p.From = start.Add(time.Duration(random.IntN(30)) * time.Second)
		wantRows(t, Collect(t, s.Records(t.Context(), p)), Collect(t, o.Records(t.Context(), p)))
	}
}
