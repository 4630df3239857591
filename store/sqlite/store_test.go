package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	lib "modernc.org/sqlite/lib"

	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

func open1(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func newStore(t testing.TB) *Store { return open1(t, filepath.Join(t.TempDir(), "odd name?#%.db")) }

func TestReaderWhileWriting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	if _, err := OpenReader(t.Context(), path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("got %v, want ErrNotExist", err)
	}
	w := open1(t, path)
	segs := storetest.Run("r-1", 1000, 10)
	storetest.Ingest(t, w, segs[:1])
	r, err := OpenReader(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Ingest(t.Context(), segs[1]); err == nil {
		t.Fatal("a reader could write")
	}
	seen := 0
	for range r.Records(t.Context(), store.Query{Run: "r-1"}) { // an open read does not block the writer
		if seen++; seen == 1 {
			storetest.Ingest(t, w, segs[1:])
		}
	}
	if seen != 10 {
		t.Errorf("an open read saw %d records, want the 10 that were there when it began", seen)
	}
	storetest.WantRecords(t, r, "r-1", segs)
}

func TestOpenAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			s, err := Open(t.Context(), path)
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
	storetest.Ingest(t, s, segs)
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
	storetest.WantRecords(t, s, "r-1", segs[:6])
	if _, err := os.Stat(path + ".damaged"); err != nil {
		t.Error("the damaged file was not kept")
	}
}

func TestRebuildThatFailsLeavesTheOld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open1(t, path)
	segs := storetest.Run("r-1", 50, 100)
	storetest.Ingest(t, s, segs)
	s.Close()
	broken := errors.New("unreadable")
	_, err := Rebuild(t.Context(), path, func(yield func(store.Segment, error) bool) { yield(store.Segment{}, broken) })
	if !errors.Is(err, broken) {
		t.Fatalf("got %v", err)
	}
	storetest.WantRecords(t, open1(t, path), "r-1", segs)
	if left, _ := filepath.Glob(path + ".rebuild*"); len(left) > 0 {
		t.Errorf("%v was left behind", left)
	}
}

// damage overwrites all pages after the first.
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
	s, err := Open(t.Context(), path)
	if err == nil {
		_, err = s.Runs(t.Context(), store.Filter{})
		s.Close()
	}
	var corrupt *CorruptError
	if !errors.As(err, &corrupt) || corrupt.Hint() == "" {
		t.Fatalf("got %v, want a CorruptError", err)
	}
}

// TestFullStore prevents the file from growing: the segment is refused as a whole with a transient error, and is ingested
// when there is space.
func TestFullStore(t *testing.T) {
	s := newStore(t)
	s.db.SetMaxOpenConns(1) // the limit is per connection
	segs := storetest.Run("r-1", 4000, 1000)
	storetest.Ingest(t, s, segs[:1])
	limit := func(pages int) {
		if _, err := s.db.Exec(fmt.Sprint("PRAGMA max_page_count = ", pages)); err != nil {
			t.Fatal(err)
		}
	}
	limit(1) // fewer than exist means as many as exist
	err := s.Ingest(t.Context(), segs[1])
	if !isCode(err, lib.SQLITE_FULL) || errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrMalformed) {
		t.Fatalf("got %v, want SQLITE_FULL", err)
	}
	storetest.WantRecords(t, s, "r-1", segs[:1])
	limit(1 << 30)
	storetest.Ingest(t, s, segs)
	storetest.WantRecords(t, s, "r-1", segs)
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
	if _, err := Open(t.Context(), path); !errors.As(err, &newer) {
		t.Errorf("Open: %v", err)
	}
	if _, err := OpenReader(t.Context(), path); !errors.As(err, &newer) {
		t.Errorf("OpenReader: %v", err)
	}
}

func TestNoDirectory(t *testing.T) {
	if _, err := Open(t.Context(), filepath.Join(t.TempDir(), "no", "store.db")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want ErrNotExist", err)
	}
}
