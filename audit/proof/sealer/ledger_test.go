package sealer

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
)

// newLedger returns a ledger, and the names of runs by the age with which they begin.
func newLedger(t *testing.T, dir string) (*Ledger, func(age time.Duration) string) {
	t.Helper()
	l, err := OpenLedger(dir, "r-")
	must(t, err)
	return l, func(age time.Duration) string {
		id, err := ulid.New(ulid.Timestamp(time.Now().Add(-age)), rand.Reader)
		must(t, err)
		return "r-" + strings.ToLower(id.String())
	}
}

// TestLedger: after both processes died, a run continues after the manifest that was signed last, also if one of them hides that.
func TestLedger(t *testing.T) {
	key, trusted := newKey(t)
	dir := t.TempDir()
	l, name := newLedger(t, dir)
	run := name(0)
	s, err := l.Begin(key, run, facts)
	must(t, err)
	signed, err := s.Sign(first)
	must(t, err)
	if _, err := l.Reopen(key, run, trusted); !errors.Is(err, ErrLive) {
		t.Errorf("a live run was reopened: %v", err)
	}

	l, _ = newLedger(t, dir) // the process was killed
	if _, err := l.Begin(key, run, facts); !errors.Is(err, errBegun) {
		t.Errorf("a run began twice: %v", err)
	}
	s, err = l.Reopen(key, run, trusted)
	must(t, err)
	if again, err := s.Sign(first); err != nil || string(again) != string(signed) {
		t.Errorf("the last segment is another one: %v", err)
	}
	other := first
	other.Root = root(9)
	if _, err := s.Sign(other); !errors.Is(err, errOrder) {
		t.Errorf("the run has a second history: %v", err)
	}
	if _, err := s.Sign(second); err != nil {
		t.Error(err)
	}
	l.Release(run)
	if s, err = l.Reopen(key, run, trusted); err != nil || s.Last() == nil {
		t.Errorf("a run that was released is not reopened: %v", err)
	}
}

// TestLedgerFull: a manifest that cannot be stored is not returned, and nothing is signed in its place.
func TestLedgerFull(t *testing.T) {
	key, trusted := newKey(t)
	dir := filepath.Join(t.TempDir(), "ledger")
	l, name := newLedger(t, dir)
	run := name(0)
	s, err := l.Begin(key, run, facts)
	must(t, err)
	must(t, os.Rename(dir, dir+"-away"))
	if m, err := s.Sign(first); err == nil || m != nil {
		t.Errorf("a manifest that was not stored: %q, %v", m, err)
	}
	must(t, os.Rename(dir+"-away", dir))
	signed, err := s.Sign(first)
	must(t, err)
	l.Release(run)
	s, err = l.Reopen(key, run, trusted)
	must(t, err)
	if string(s.Last()) != string(signed) {
		t.Error("the manifest was not stored later")
	}
}

// TestLedgerNames: only runs that begin now begin.
func TestLedgerNames(t *testing.T) {
	key, trusted := newKey(t)
	l, name := newLedger(t, t.TempDir())
	for _, run := range []string{"", "r-", "../r-01m7xwjm28tv7cnff0wa831wp1", "a" + name(0)[1:], name(0) + ".facts", name(2 * runAge), name(-2 * runAge), "R-01M7XWJM28TV7CNFF0WA831WP1"} {
		if _, err := l.Begin(key, run, facts); !errors.Is(err, errName) {
			t.Errorf("%q began: %v", run, err)
		}
		if _, err := l.Reopen(key, run, trusted); err == nil {
			t.Errorf("%q was reopened", run)
		}
	}
	if _, err := l.Reopen(key, name(0), trusted); err == nil {
		t.Error("a run that never began was reopened")
	}
}

// TestLedgerPrune: what is kept of a run is removed when it was closed, and not before it can no longer begin again.
func TestLedgerPrune(t *testing.T) {
	key, _ := newKey(t)
	dir := t.TempDir()
	l, name := newLedger(t, dir)
	closed, open := name(0), name(0)
	for run, last := range map[string]Segment{closed: ending, open: {Index: 2, First: 10, Last: 12, Count: 3, Root: root(3)}} {
		s, err := l.Begin(key, run, facts)
		must(t, err)
		signs(t, s, first, second, last)
	}
	kept := func() int {
		files, err := os.ReadDir(dir)
		must(t, err)
		return len(files)
	}
	must(t, l.prune())
	if n := kept(); n != 4 {
		t.Errorf("%d files are left of runs that have just begun", n)
	}
	l.now = func() time.Time { return time.Now().Add(2 * runAge) }
	must(t, l.prune())
	if n := kept(); n != 2 {
		t.Errorf("%d files are left", n)
	}
	if _, err := l.Begin(key, closed, facts); !errors.Is(err, errName) {
		t.Errorf("a run that was closed began again: %v", err)
	}

	l.now = time.Now
	unsigned := name(0)
	_, err := l.Begin(key, unsigned, facts)
	must(t, err)
	l.Release(unsigned)
	l.now = func() time.Time { return time.Now().Add(2 * runAge) }
	must(t, l.prune())
	if n := kept(); n != 3 {
		t.Errorf("%d files are left: a run that was never signed can still have a log", n)
	}
	l.now = func() time.Time { return time.Now().Add(2 * leftAge) }
	must(t, l.prune())
	if n := kept(); n != 2 {
		t.Errorf("%d files are left of runs, one of which was never signed", n)
	}
}
