package hostlog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit/entries"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
)

// twiceOf opens a log and collects its warnings.
func twiceOf(t *testing.T, dir string, k key) (*Log, *[]string) {
	t.Helper()
	var warned []string
	l, err := Open(t.Context(), Options{Dir: dir, Signer: k.Signer, Verifier: k.v, Warn: func(err error) { warned = append(warned, err.Error()) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return l, &warned
}

func wantIndex(t *testing.T, l *Log, entry []byte, want uint64) {
	t.Helper()
	if got, err := l.Add(t.Context(), entry); err != nil || got != want {
		t.Errorf("index %d, %v; want %d", got, err, want)
	}
}

func wantTwice(t *testing.T, l *Log, entry []byte) {
	t.Helper()
	if got, err := l.Add(t.Context(), entry); !errors.Is(err, ErrTwice) {
		t.Errorf("index %d, %v; want %v", got, err, ErrTwice)
	}
}

// TestTwice: the log accepts one manifest for each segment of a run, and one erasure for each record, whatever happens
// to its index.
func TestTwice(t *testing.T) {
	dir, k := tempDir(t)+"/log", newKey(t, "custody-test")
	l, warned := twiceOf(t, dir, k)
	one, other := merkle.Hash{1}, merkle.Hash{2}
	for i := range uint64(300) { // more than a tile
		wantIndex(t, l, statement.ManifestLeaf("r-a", i, one), i)
	}
	wantIndex(t, l, statement.ErasureLeaf("r-a", 7, one), 300)
	wantIndex(t, l, statement.ManifestLeaf("r-b", 0, one), 301)
	wantIndex(t, l, statement.RotationLeaf(one), 302)
	wantIndex(t, l, statement.RotationLeaf(other), 303)
	if _, err := l.Publish(t.Context(), 303); err != nil {
		t.Fatal(err)
	}
	refuses := func(t *testing.T, l *Log) {
		t.Helper()
		for _, i := range []uint64{0, 255, 256, 299} {
			wantTwice(t, l, statement.ManifestLeaf("r-a", i, other))
			wantIndex(t, l, statement.ManifestLeaf("r-a", i, one), i) // what a process that died may try again
		}
		wantTwice(t, l, statement.ErasureLeaf("r-a", 7, other))
		wantIndex(t, l, statement.ErasureLeaf("r-a", 7, one), 300)
	}
	t.Run("same process", func(t *testing.T) { refuses(t, l) })
	t.Run("second writer", func(t *testing.T) {
		second, _ := twiceOf(t, dir, k)
		refuses(t, second)
		wantIndex(t, second, statement.ManifestLeaf("r-b", 1, one), 304)
		wantTwice(t, l, statement.ManifestLeaf("r-b", 1, other))
	})
	path := indexPath(dir)
	for title, change := range map[string]func() error{
		"index lost":    func() error { return os.Remove(path) },
		"index damaged": func() error { return os.WriteFile(path, []byte(strings.Repeat("no index", 4096)), 0o600) },
		"index empty":   func() error { return os.Truncate(path, 0) },
		"index of another log": func() error {
			x, err := entries.Open(path)
			if err != nil {
				return err
			}
			return errors.Join(x.Do(t.Context(), func(tx *entries.Tx) error {
				return errors.Join(tx.Clear(), tx.Keep(reached, marshalReached(300, merkle.Hash{9})))
			}), x.Close())
		},
		"index ahead of the log": func() error {
			x, err := entries.Open(path)
			if err != nil {
				return err
			}
			return errors.Join(x.Do(t.Context(), func(tx *entries.Tx) error {
				_, err := tx.Take(999, statement.ManifestLeaf("r-c", 0, other))
				return errors.Join(err, tx.Keep(reached, marshalReached(1000, merkle.Hash{9})))
			}), x.Close())
		},
	} {
		t.Run(title, func(t *testing.T) {
			if err := l.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := change(); err != nil {
				t.Fatal(err)
			}
			l, warned = twiceOf(t, dir, k)
			refuses(t, l)
			if len(*warned) > 0 {
				t.Errorf("warned: %s", *warned)
			}
		})
	}
}

// TestTwiceIsThere: if another program wrote two histories of a run into a log, each full read of the log reports
// them, and the log remains usable.
func TestTwiceIsThere(t *testing.T) {
	dir, k := tempDir(t)+"/log", newKey(t, "custody-test")
	l, _ := twiceOf(t, dir, k)
	wantIndex(t, l, statement.ManifestLeaf("r-a", 0, merkle.Hash{1}), 0)
	// An attacker who controls the host does not need this program.
	if err := l.append.lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.integrate(t.Context(), statement.ManifestLeaf("r-a", 0, merkle.Hash{2})); err != nil {
		t.Fatal(err)
	}
	l.append.unlock()
	if _, err := l.Publish(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := OpenReader(dir, k.v)
	if err != nil {
		t.Fatal(err)
	}
	twice, err := r.Twice(t.Context())
	if err != nil || len(twice) != 1 || twice[0].Index != 1 || twice[0].First != 0 || !errors.Is(twice[0], ErrTwice) {
		t.Errorf("%v, %v", twice, err)
	}
	if err := os.Remove(indexPath(dir)); err != nil {
		t.Fatal(err)
	}
	second, warned := twiceOf(t, dir, k)
	wantIndex(t, second, statement.ManifestLeaf("r-a", 1, merkle.Hash{1}), 2)
	if fmt.Sprint(*warned) == "[]" || !strings.Contains((*warned)[0], "r-a 0") {
		t.Errorf("warned: %s", *warned)
	}
}

// TestPrepare: Prepare opens the index and adds what it lacks; and while the index is held, closing the log does not move SQLite's
// write-ahead log into it.
func TestPrepare(t *testing.T) {
	dir, k := tempDir(t)+"/log", newKey(t, "custody-test")
	entry := statement.ManifestLeaf("r-a", 0, merkle.Hash{1})
	l := mustOpen(t, dir, k)
	mustAdd(t, l, entry)
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(indexPath(dir)); err != nil {
		t.Fatal(err)
	}
	held, err := HoldIndex(dir)
	if err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, dir, k)
	if err := l.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantIndex(t, l, entry, 0)
	for _, c := range []struct {
		close func() error
		left  bool
	}{{func() error { return l.Close(t.Context()) }, true}, {held.Close, false}} {
		if err := c.close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(indexPath(dir) + "-wal"); (err == nil) != c.left {
			t.Errorf("SQLite's write-ahead log: %v, want it to be there: %v", err, c.left)
		}
	}
}
