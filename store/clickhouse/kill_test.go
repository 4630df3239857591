package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/clickhouse/clickhousetest"
	"github.com/custody-project/custody/store/storetest"
)

// TestKilledBetweenSteps kills an ingest and the server at each of its steps with SIGKILL, and repeats the ingest: every
// record is stored once, counted once, and in the feed.
func TestKilledBetweenSteps(t *testing.T) {
	server := clickhousetest.Start(t)
	for i, stop := range []struct {
		name string
		run  func(ctx context.Context, s *Store, batch []*segment) error
	}{
		{"after half of the rows", func(ctx context.Context, s *Store, batch []*segment) error {
			return s.ingestUpTo(ctx, batch[:1], 1)
		}},
		{"after the rows", func(ctx context.Context, s *Store, batch []*segment) error { return s.ingestUpTo(ctx, batch, 1) }},
		{"after the feed", func(ctx context.Context, s *Store, batch []*segment) error { return s.ingestUpTo(ctx, batch, 2) }},
		{"after the marker", func(ctx context.Context, s *Store, batch []*segment) error { return s.ingester.ingest(ctx, batch) }},
	} {
		t.Run(stop.name, func(t *testing.T) {
			run := fmt.Sprint("r-", i)
			segs := storetest.Run(run, 90, 30)
			dsn := server.DSN("killed")
			s := open(t, dsn, quick)
			var batch []*segment
			for _, seg := range segs[:2] {
				in, err := prepare(seg)
				if err != nil {
					t.Fatal(err)
				}
				batch = append(batch, in)
			}
			if err := stop.run(t.Context(), s, batch); err != nil {
				t.Fatal(err)
			}
			server.Kill()
			server.Restart()
			s = open(t, dsn, quick)
			for range 2 {
				storetest.Ingest(t, s, segs)
			}
			wantOnce(t, s, run, segs)
		})
	}
}

// ingestUpTo is ingest that ends after step 1, the rows, or 2, the feed.
func (s *Store) ingestUpTo(ctx context.Context, batch []*segment, step int) error {
	k, err := s.lookup.look(ctx, batch)
	if err != nil {
		return err
	}
	_, b, err := k.sort(batch)
	if err != nil {
		return err
	}
	if err := s.ingester.insert.records(ctx, b, b.token()); err != nil || step == 1 {
		return err
	}
	return s.feed.add(ctx, batch)
}

// wantOnce checks rows, summary, manifests and feed of a run, and that readers see each row once.
func wantOnce(t *testing.T, s *Store, run string, segs []store.Segment) {
	t.Helper()
	storetest.WantRecords(t, s, run, segs)
	var n uint64
	for _, seg := range segs {
		n += uint64(len(seg.Frames))
	}
	r, err := s.Run(t.Context(), "", run)
	if err != nil || r.Events != n || r.LastSeq != n || r.Status != store.Sealed {
		t.Errorf("summary of %d events: %+v, %v", n, r, err)
	}
	if chain, err := s.Manifests(t.Context(), "", run); err != nil || len(chain) != len(segs) {
		t.Errorf("%d manifests, want %d: %v", len(chain), len(segs), err)
	}
	told := map[uint64]bool{}
	for after := ""; ; {
		refs, err := s.Feed(t.Context(), after, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(refs) == 0 {
			break
		}
		for _, ref := range refs {
			after = ref.Cursor
			told[ref.Index] = told[ref.Index] || ref.Run == run
		}
	}
	for i := range uint64(len(segs)) {
		if !told[i] {
			t.Errorf("the feed lacks segment %d", i)
		}
	}
}

// TestKilledAtRandom kills the server repeatedly while two ingesters insert the same segments in different groups,
// and retry until they are acknowledged. What was acknowledged exists after each restart, and at the end everything
// exists once.
func TestKilledAtRandom(t *testing.T) {
	const run, rounds = "r-k", 6
	server := clickhousetest.Start(t)
	segs := storetest.Run(run, 3000, 60)
	o := Options{Settle: 3 * time.Second}
	open(t, server.DSN("random"), o) // the schema exists before the first kill
	var acknowledged atomic.Uint64   // all below this seq were acknowledged, by the faster ingester
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var ingesters sync.WaitGroup
	for i := range 2 {
		ingesters.Go(func() {
			bring(ctx, t, server.DSN("random"), o, segs, rand.New(rand.NewPCG(uint64(i), 1)), &acknowledged)
		})
	}
	random := rand.New(rand.NewPCG(7, 7))
	for range rounds {
		time.Sleep(time.Duration(100+random.IntN(700)) * time.Millisecond)
		server.Kill()
		said := acknowledged.Load()
		server.Restart()
		s := open(t, server.DSN("random"), o)
		n := uint64(len(storetest.Collect(t, s.Records(t.Context(), store.Query{Run: run}))))
		if n < said {
			t.Fatalf("%d records after kill -9, %d were acknowledged", n, said)
		}
	}
	ingesters.Wait()
	wantOnce(t, open(t, server.DSN("random"), o), run, segs)
}

// bring ingests segs in order, several at a time, each until it succeeds.
func bring(ctx context.Context, t *testing.T, dsn string, o Options, segs []store.Segment, random *rand.Rand, acknowledged *atomic.Uint64) {
	for len(segs) > 0 && ctx.Err() == nil {
		n := min(1+random.IntN(4), len(segs))
		err := once(ctx, dsn, o, segs[:n])
		if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrMalformed) {
			t.Errorf("refused: %v", err)
			return
		}
		if err != nil {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		for last := segs[n-1].Last; ; {
			have := acknowledged.Load()
			if last <= have || acknowledged.CompareAndSwap(have, last) {
				break
			}
		}
		segs = segs[n:]
	}
}

// once is an ingester that starts, ingests and ends.
func once(ctx context.Context, dsn string, o Options, segs []store.Segment) error {
	s, err := Open(ctx, dsn, o)
	if err != nil {
		return err
	}
	return errors.Join(s.Ingest(ctx, segs...), s.Close())
}

// TestForkAtOnce makes two segments with other bytes at the same seqs pass each
// other's first lookup. Both are refused, and readers get one row for each seq.
func TestForkAtOnce(t *testing.T) {
	server := clickhousetest.Start(t)
	s := open(t, server.Fresh(), quick)
	ours, theirs := storetest.Run("r-f", 40, 40)[0], storetest.Run("r-f", 40, 40)[0]
	theirs.Frames = storetest.Frames("r-f", storetest.Events(40))
	for i := range theirs.Frames {
		theirs.Frames[i].Salt[0] = 9
	}
	theirs.Root[0]++
	a, err := prepare(ours)
	if err != nil {
		t.Fatal(err)
	}
	b, err := prepare(theirs)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.ingestUpTo(t.Context(), []*segment{b}, 1); err != nil { // it found nothing, and is not finished
		t.Fatal(err)
	}
	k := &known{leaves: map[place][32]byte{}, markers: map[runKey][]marker{}} // this ingester found nothing either
	_, rows, err := k.sort([]*segment{a})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.ingester.insert.records(t.Context(), rows, rows.token()); err != nil {
		t.Fatal(err)
	}
	for _, in := range []*segment{a, b} {
		if err := s.ingester.verify(t.Context(), []*segment{in}, k, rows); !errors.Is(err, store.ErrConflict) {
			t.Errorf("after the rows: %v, want ErrConflict", err)
		}
	}
	if err := s.ingester.insert.markers(t.Context(), []*segment{a}, []store.Run{store.NewRun("r-f")}); err != nil { // as if it had been acknowledged before
		t.Fatal(err)
	}
	storetest.WantRecords(t, s, "r-f", []store.Segment{ours})
	found := storetest.Collect(t, s.Search(t.Context(), store.Search{Path: "/usr/bin/git", From: storetest.Start()}))
	if len(found) != 9 {
		t.Errorf("a search finds %d records of the fork, want 9", len(found))
	}
	for _, r := range found {
		if r.Salt[0] == 9 {
			t.Errorf("record %d is the one that was not acknowledged", r.Seq)
		}
	}
	if err := s.Ingest(t.Context(), ours); err != nil {
		t.Errorf("what was acknowledged, again: %v", err)
	}
	if err := s.Ingest(t.Context(), theirs); !errors.Is(err, store.ErrConflict) {
		t.Errorf("the other fork again: %v, want ErrConflict", err)
	}
}

// TestTokenOutlivesRows: an insert token that the server remembers does not prevent that deleted rows are inserted again.
func TestTokenOutlivesRows(t *testing.T) {
	s := open(t, clickhousetest.Start(t).Fresh(), quick)
	segs := storetest.Run("r-1", 50, 25)
	storetest.Ingest(t, s, segs)
	if err := s.db.exec(synchronous(t.Context()), "ALTER TABLE records DELETE WHERE seq > 10"); err != nil {
		t.Fatal(err)
	}
	storetest.Ingest(t, s, segs)
	storetest.WantRecords(t, s, "r-1", segs)
}
