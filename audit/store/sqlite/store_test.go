package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	lib "modernc.org/sqlite/lib"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/store"
	"github.com/custody-project/custody/audit/store/storetest"
)

func open1(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func newStore(t testing.TB) *Store { return open1(t, filepath.Join(t.TempDir(), "odd name?#%.db")) }

func ingestAll(t testing.TB, s *Store, segs []store.Segment) {
	t.Helper()
	for _, seg := range segs {
		if err := s.Ingest(t.Context(), seg); err != nil {
			t.Fatal(err)
		}
	}
}

func collect(t testing.TB, rows iter.Seq2[store.Row, error]) []store.Row {
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

// wantRecords checks that the store holds exactly the frames of segs for the run.
func wantRecords(t testing.TB, s *Store, run string, segs []store.Segment) {
	t.Helper()
	var want []store.Frame
	for _, seg := range segs {
		want = append(want, seg.Frames...)
	}
	var got []store.Frame
	for _, r := range collect(t, s.Records(t.Context(), store.Query{Run: run})) {
		got = append(got, store.Frame{Seq: r.Seq, Salt: r.Salt, Body: r.Body})
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("store holds %d records, want exactly the %d ingested", len(got), len(want))
	}
}

func TestIngestAndRead(t *testing.T) {
	s := newStore(t)
	segs := storetest.Run("r-1", 1000, 300)
	ingestAll(t, s, segs)
	wantRecords(t, s, "r-1", segs)
	chain, err := s.Manifests(t.Context(), "", "r-1")
	if err != nil || len(chain) != len(segs) {
		t.Fatalf("%d manifests, want %d: %v", len(chain), len(segs), err)
	}
	for i, m := range chain {
		if string(m.Bytes) != string(segs[i].Manifest) || m.Root != segs[i].Root || m.First != segs[i].First {
			t.Errorf("manifest %d differs from what was ingested", i)
		}
	}
	checkSummary(t, s)
}

func checkSummary(t *testing.T, s *Store) {
	t.Helper()
	r, err := s.Run(t.Context(), "", "r-1")
	if err != nil {
		t.Fatal(err)
	}
	if r.Status != store.Sealed || r.ExitCode == nil || *r.ExitCode != 7 || r.Events != 1000 || r.LastSeq != 1000 ||
		r.Project != "shop" || r.Tier != "qemu-tcg" || r.Template != "base" || r.DurationNS != 999e6 || !r.Start.Equal(storetest.Start()) {
		got, _ := json.Marshal(r)
		t.Errorf("summary is %s", got)
	}
}

func TestIngestOutOfOrderAndRepeated(t *testing.T) {
	s := newStore(t)
	segs := storetest.Run("r-1", 1000, 100)
	backwards := slices.Clone(segs)
	slices.Reverse(backwards)
	ingestAll(t, s, backwards)
	ingestAll(t, s, segs)
	for _, seg := range storetest.Run("r-1", 1000, 170) { // other cuts of the same log
		seg.Manifest = nil
		ingestAll(t, s, []store.Segment{seg})
	}
	wantRecords(t, s, "r-1", segs)
	checkSummary(t, s)
}

func TestConflictIsRefusedWhole(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*store.Segment)
	}{
		{"body", func(s *store.Segment) {
			s.Frames[2] = storetest.Frame("r-1", s.Frames[2].Seq, storetest.Events(40)[30])
		}},
		{"salt", func(s *store.Segment) { s.Frames[2].Salt[0]++ }},
		{"manifest", func(s *store.Segment) { s.Manifest = []byte("another") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStore(t)
			segs := storetest.Run("r-1", 20, 10)
			ingestAll(t, s, segs[:1])
			bad := storetest.Run("r-1", 20, 15)[0] // seq 1 to 10 are there, 11 to 15 are new
			bad.Manifest = segs[0].Manifest
			tc.change(&bad)
			if err := s.Ingest(t.Context(), bad); !errors.Is(err, store.ErrConflict) {
				t.Fatalf("got %v, want ErrConflict", err)
			}
			wantRecords(t, s, "r-1", segs[:1])
			ingestAll(t, s, segs)
			wantRecords(t, s, "r-1", segs)
		})
	}
}

func TestMalformedIsRefused(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*store.Segment)
	}{
		{"other run", func(s *store.Segment) { s.Run = "r-2" }},
		{"no run", func(s *store.Segment) { s.Run = "" }},
		{"swapped", func(s *store.Segment) { s.Frames[1], s.Frames[2] = s.Frames[2], s.Frames[1] }},
		{"doubled", func(s *store.Segment) { s.Frames[2] = s.Frames[1] }},
		{"not json", func(s *store.Segment) { s.Frames[1].Body = []byte("{") }},
		{"no time", func(s *store.Segment) { s.Frames[1].Body = []byte(`{"run":"r-1","seq":2,"kind":"exec"}`) }},
		{"empty", func(s *store.Segment) { s.Frames[1].Body = nil }},
		{"bounds", func(s *store.Segment) { s.Last++ }},
		{"other seq", func(s *store.Segment) { s.Frames[1].Body = s.Frames[0].Body }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStore(t)
			seg := storetest.Run("r-1", 10, 10)[0]
			tc.change(&seg)
			if err := s.Ingest(t.Context(), seg); !errors.Is(err, store.ErrMalformed) {
				t.Fatalf("got %v, want ErrMalformed", err)
			}
			if n := len(collect(t, s.Records(t.Context(), store.Query{Run: "r-1"}))); n != 0 {
				t.Errorf("%d records were stored", n)
			}
		})
	}
}

// TestQueries compares every combination with a filter over all rows in Go.
func TestQueries(t *testing.T) {
	s := newStore(t)
	ingestAll(t, s, storetest.Run("r-1", 200, 64))
	ingestAll(t, s, storetest.Run("r-2", 50, 64))
	all := collect(t, s.Records(t.Context(), store.Query{Run: "r-1"}))
	at := func(i int) time.Time { return storetest.Start().Add(time.Duration(i) * time.Millisecond) }
	for _, kinds := range [][]audit.Kind{nil, {audit.KindExec}, {audit.KindExec, audit.KindOutput}} {
		for _, span := range [][2]time.Time{{}, {at(20), {}}, {{}, at(100)}, {at(20), at(100)}} {
			for _, after := range []uint64{0, 1, 77, 5000} {
				for _, limit := range []int{0, 1, 10} {
					q := store.Query{Run: "r-1", Kinds: kinds, From: span[0], To: span[1], AfterSeq: after, Limit: limit}
					if got, want := collect(t, s.Records(t.Context(), q)), filtered(all, q); !reflect.DeepEqual(got, want) {
						t.Errorf("%+v: %d records, want %d", q, len(got), len(want))
					}
				}
			}
		}
	}
}

func filtered(all []store.Row, q store.Query) (rows []store.Row) {
	for _, r := range all {
		if (len(q.Kinds) > 0 && !slices.Contains(q.Kinds, r.Kind)) || r.Seq <= q.AfterSeq ||
			r.Time.Before(q.From) || (!q.To.IsZero() && !r.Time.Before(q.To)) || (q.Limit > 0 && len(rows) == q.Limit) {
			continue
		}
		rows = append(rows, r)
	}
	return rows
}

func TestFindRun(t *testing.T) {
	s := newStore(t)
	for i, id := range []string{"r-abc", "r-abd", "r-ab", "r-x%_"} {
		events := storetest.Events(10)
		for j := range events {
			events[j].Time = events[j].Time.Add(time.Duration(i) * time.Hour)
		}
		ingestAll(t, s, storetest.Segments(id, storetest.Frames(id, events), 10))
	}
	for _, tc := range []struct {
		name, want string
		err        error
	}{
		{"r-abc", "r-abc", nil}, {"r-ab", "r-ab", nil}, {"r-x", "r-x%_", nil}, {"last", "r-x%_", nil},
		{"r-a", "", store.ErrAmbiguous}, {"", "", store.ErrNotFound}, {"R-ABC", "", store.ErrNotFound},
		{"r-_", "", store.ErrNotFound}, {"%", "", store.ErrNotFound}, {"r-abcd", "", store.ErrNotFound},
	} {
		r, err := s.Run(t.Context(), "", tc.name)
		if r.ID != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("%q: got %q, %v; want %q, %v", tc.name, r.ID, err, tc.want, tc.err)
		}
	}
	runs, err := s.Runs(t.Context(), store.Filter{Limit: 3, Project: "shop", Status: store.Sealed})
	if err != nil || len(runs) != 3 || runs[0].ID != "r-x%_" || runs[1].ID != "r-ab" {
		t.Errorf("runs are %+v, %v", runs, err)
	}
	if runs, err := s.Runs(t.Context(), store.Filter{Status: store.Running}); err != nil || len(runs) != 0 {
		t.Errorf("running: %v, %v", runs, err)
	}
}

func TestRunningAndInterrupted(t *testing.T) {
	s := newStore(t)
	events := storetest.Events(20)
	frames := storetest.Frames("r-1", events[:19])
	ingestAll(t, s, storetest.Segments("r-1", frames[5:], 20)) // the start event comes late
	r, err := s.Run(t.Context(), "", "r-1")
	if err != nil || r.Status != store.Running || r.End != nil || r.ExitCode != nil || r.Start.IsZero() || r.Project != "" {
		t.Fatalf("got %+v, %v", r, err)
	}
	if err := s.Ingest(t.Context(), store.Segment{Run: "r-1", First: 1, Last: 5, Frames: frames[:5]}); err != nil {
		t.Fatal(err)
	}
	end := audit.Event{Time: events[19].Time, Observer: audit.Host, Kind: audit.KindRun,
		Lifecycle: &audit.Lifecycle{Phase: audit.PhaseEnd, Status: audit.StatusInterrupted}}
	gap := audit.Event{Time: end.Time, Observer: audit.Host, Kind: audit.KindGap, Gap: &audit.Gap{Stage: "wal", Count: 12, Cause: "killed"}}
	last := []store.Frame{storetest.Frame("r-1", 20, gap), storetest.Frame("r-1", 21, end)}
	if err := s.Ingest(t.Context(), store.Segment{Run: "r-1", First: 20, Last: 21, Frames: last}); err != nil {
		t.Fatal(err)
	}
	r, err = s.Run(t.Context(), "", "r-1")
	if err != nil || r.Status != store.Interrupted || r.End == nil || r.ExitCode != nil || r.Gaps != 1 || r.Lost != 12 || r.Project != "shop" {
		t.Fatalf("got %+v, %v", r, err)
	}
}

func TestReaderWhileWriting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	if _, err := OpenReader(path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("got %v, want ErrNotExist", err)
	}
	w := open1(t, path)
	segs := storetest.Run("r-1", 1000, 10)
	ingestAll(t, w, segs[:1])
	r, err := OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Ingest(t.Context(), segs[1]); err == nil {
		t.Fatal("a reader could write")
	}
	seen := 0
	for range r.Records(t.Context(), store.Query{Run: "r-1"}) { // a read that stays open does not hold up the writer
		if seen++; seen == 1 {
			ingestAll(t, w, segs[1:])
		}
	}
	if seen != 10 {
		t.Errorf("an open read saw %d records, want the 10 that were there when it began", seen)
	}
	wantRecords(t, r, "r-1", segs)
}

func TestOpenAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			s, err := Open(path)
			if err != nil {
				t.Errorf("open %d: %v", i, err)
				return
			}
			defer s.Close()
			for _, seg := range storetest.Run(fmt.Sprint("r-", i), 40, 10) {
				if err := s.Ingest(context.Background(), seg); err != nil {
					t.Errorf("ingest %d: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
	runs, err := open1(t, path).Runs(t.Context(), store.Filter{})
	if err != nil || len(runs) != 12 {
		t.Fatalf("%d runs, %v", len(runs), err)
	}
}

func TestDamagedAndRebuilt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open1(t, path)
	segs := append(storetest.Run("r-1", 500, 100), storetest.Run("r-2", 500, 100)...)
	ingestAll(t, s, segs)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	damage(t, path)
	wantCorrupt(t, path)

	refused := store.Segment{Run: "r-3", First: 1, Last: 1, Frames: []store.Frame{{Seq: 1, Body: []byte("x")}}}
	all := append(slices.Clone(segs), refused)
	n, err := Rebuild(t.Context(), path, func(yield func(store.Segment, error) bool) {
		for _, seg := range all {
			if !yield(seg, nil) {
				return
			}
		}
	})
	if n != len(segs) || !errors.Is(err, store.ErrMalformed) {
		t.Fatalf("rebuilt from %d segments, %v", n, err)
	}
	s = open1(t, path)
	wantRecords(t, s, "r-1", segs[:6])
	if _, err := os.Stat(path + ".damaged"); err != nil {
		t.Error("the damaged file was not kept")
	}
}

func TestRebuildThatFailsLeavesTheOld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open1(t, path)
	segs := storetest.Run("r-1", 50, 100)
	ingestAll(t, s, segs)
	s.Close()
	broken := errors.New("unreadable")
	_, err := Rebuild(t.Context(), path, func(yield func(store.Segment, error) bool) { yield(store.Segment{}, broken) })
	if !errors.Is(err, broken) {
		t.Fatalf("got %v", err)
	}
	wantRecords(t, open1(t, path), "r-1", segs)
	if left, _ := filepath.Glob(path + ".rebuild*"); len(left) > 0 {
		t.Errorf("%v was left behind", left)
	}
}

// damage overwrites all pages behind the first.
func damage(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	junk := make([]byte, info.Size()-4096)
	for i := range junk {
		junk[i] = byte(i*7 + 3)
	}
	if _, err := f.WriteAt(junk, 4096); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func wantCorrupt(t *testing.T, path string) {
	t.Helper()
	s, err := Open(path)
	if err == nil {
		_, err = s.Runs(t.Context(), store.Filter{})
		s.Close()
	}
	var corrupt *CorruptError
	if !errors.As(err, &corrupt) || corrupt.Hint() == "" {
		t.Fatalf("got %v, want a CorruptError", err)
	}
}

// TestFullStore lets the file grow no further: the segment is refused whole, not
// for good, and goes in once there is room.
func TestFullStore(t *testing.T) {
	s := newStore(t)
	s.db.SetMaxOpenConns(1) // the limit is one of the connection
	segs := storetest.Run("r-1", 4000, 1000)
	ingestAll(t, s, segs[:1])
	limit := func(pages int) {
		if _, err := s.db.Exec(fmt.Sprint("PRAGMA max_page_count = ", pages)); err != nil {
			t.Fatal(err)
		}
	}
	limit(1) // less than there are means as many as there are
	err := s.Ingest(t.Context(), segs[1])
	if !isCode(err, lib.SQLITE_FULL) || errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrMalformed) {
		t.Fatalf("got %v, want SQLITE_FULL", err)
	}
	wantRecords(t, s, "r-1", segs[:1])
	limit(1 << 30)
	ingestAll(t, s, segs)
	wantRecords(t, s, "r-1", segs)
}

func TestNotADatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	if err := os.WriteFile(path, []byte("this is a text file, and longer than a header of a hundred bytes: "+path+path), 0o600); err != nil {
		t.Fatal(err)
	}
	wantCorrupt(t, path)
}

func TestNewerSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open1(t, path)
	if _, err := s.db.Exec("PRAGMA user_version = 99"); err != nil {
		t.Fatal(err)
	}
	s.Close()
	var newer *TooNewError
	if _, err := Open(path); !errors.As(err, &newer) {
		t.Errorf("Open: %v", err)
	}
	if _, err := OpenReader(path); !errors.As(err, &newer) {
		t.Errorf("OpenReader: %v", err)
	}
}

func TestNoDirectory(t *testing.T) {
	if _, err := Open(filepath.Join(t.TempDir(), "no", "store.db")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want ErrNotExist", err)
	}
}
