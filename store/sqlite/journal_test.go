package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// TestNoWaitForFiles: SQLite would wait for a writer of a FIFO that replaces a file which it opens.
func TestNoWaitForFiles(t *testing.T) {
	for i := range regular.DatabaseFiles("") {
		path := filepath.Join(t.TempDir(), "custody.db")
		if i > 0 {
			if err := open1(t, path).Close(); err != nil {
				t.Fatal(err)
			}
		}
		file := regular.DatabaseFiles(path)[i]
		if err := errors.Join(os.RemoveAll(file), unix.Mkfifo(file, 0o600)); err != nil {
			t.Fatal(err)
		}
		opened := make(chan error, 1)
		go func() {
			_, err := Open(t.Context(), path)
			_, readErr := OpenReader(t.Context(), path)
			opened <- errors.Join(err, readErr)
		}()
		var other *regular.TypeError
		select {
		case err := <-opened:
			if !errors.As(err, &other) || other.Path != file {
				t.Errorf("%s: %v", filepath.Base(file), err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s: it waits", filepath.Base(file))
		}
	}
}

// TestRebuildTakesJournal: SQLite does not apply the old database's journal to the new one.
func TestRebuildTakesJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "custody.db")
	if err := open1(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	journal := path + "-journal"
	if err := os.WriteFile(journal, []byte("of another database"), 0o600); err != nil {
		t.Fatal(err)
	}
	segments := func(yield func(store.Segment, error) bool) {
		for _, s := range storetest.Segments("r-1", personal("r-1", 9), 4) {
			if !yield(s, nil) {
				return
			}
		}
	}
	if _, err := Rebuild(t.Context(), path, segments); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(path + "*")
	if err != nil || slices.Contains(left, journal) || !slices.Contains(left, path+".damaged-journal") {
		t.Errorf("beside the new database: %s, %v", left, err)
	}
}
