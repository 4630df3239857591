package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// TestFeedOfReplacedStore: after a database was rebuilt, or restored from a copy and then written to, an old cursor starts
// at the beginning and skips nothing.
func TestFeedOfReplacedStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open1(t, path)
	segs := storetest.Run("r-1", 50, 10)
	storetest.Ingest(t, s, segs)
	refs, err := s.Feed(t.Context(), "", 3)
	if err != nil || len(refs) != 3 {
		t.Fatalf("feed %v, %v", refs, err)
	}
	s.Close()
	if _, err := Rebuild(t.Context(), path, func(yield func(store.Segment, error) bool) {
		for _, seg := range append(storetest.Run("r-0", 30, 10), segs...) {
			if !yield(seg, nil) {
				return
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	s = open1(t, path)
	again, err := s.Feed(t.Context(), refs[2].Cursor, 0)
	if err != nil || len(again) != 10 || again[0].Run != "r-0" {
		t.Fatalf("behind an old cursor are %v, %v, want all", again, err)
	}
	rest, err := s.Feed(t.Context(), again[6].Cursor, 0)
	if err != nil || len(rest) != 3 {
		t.Errorf("behind a new cursor are %v, %v, want 3", rest, err)
	}
	if _, err := s.Feed(t.Context(), "nonsense", 0); err == nil {
		t.Error("a cursor of another store was accepted")
	}
}

// TestFeedWithoutManifest: a segment of a truncated log is in the feed, and again when it is ingested with its
// manifest.
func TestFeedWithoutManifest(t *testing.T) {
	s := newStore(t)
	seg := storetest.Run("r-1", 10, 10)[0]
	bare := seg
	bare.Manifest = nil
	storetest.Ingest(t, s, []store.Segment{bare, bare, seg, seg})
	if refs := feedOf(t, s); len(refs) != 2 {
		t.Errorf("feed is %v, want two", refs)
	}
}
