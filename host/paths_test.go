package host_test

import (
	"database/sql"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// hostileNames are invalid names of runs that would lead elsewhere as part of a path.
var hostileNames = []string{
	"r-/../../../victim", "r-x/../../../victim", "../victim", "..", ".", "", "/etc", "r-\x00", "r-*", "r-a b", "a-/..", "r-" + strings.Repeat("x", 200),
}

func TestRunDir(t *testing.T) {
	h, err := host.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	runs := filepath.Join(h.Dir, "runs")
	for _, name := range hostileNames {
		if dir := h.RunDir(name); filepath.Dir(dir) != runs {
			t.Errorf("run %.40q is in %.80q", name, dir)
		} else if _, err := os.Lstat(dir); err == nil {
			t.Errorf("run %.40q is in %s, which exists", name, dir)
		}
		if h.RunLogs().Has(name) {
			t.Errorf("there is a log of run %.40q", name)
		}
		if _, err := h.Begin(t.Context(), host.RunOptions{ID: name}); err == nil {
			t.Errorf("a run %.40q was begun", name)
		}
	}
	for _, name := range []string{"r-01m7xwbxhw1c60mxprqjzgrren", "a-1", "r-a_b-c"} {
		if got, want := h.RunDir(name), filepath.Join(runs, name); got != want {
			t.Errorf("run %s is in %s, want %s", name, got, want)
		}
	}
}

// TestStoreNamesNoPath: names of runs in a store, which others may write to, do not lead to other paths of this host.
func TestStoreNamesNoPath(t *testing.T) {
	top := t.TempDir()
	victim := filepath.Join(top, "victim")
	if err := os.Mkdir(victim, 0o700); err != nil {
		t.Fatal(err)
	}
	h, err := host.Open(filepath.Join(top, "home"))
	if err != nil {
		t.Fatal(err)
	}
	id := host.NewRunID(storetest.Start())
	record(t, h, id, storetest.Events(20))
	if err := h.Shipping().Ship(t.Context(), false, func(s string) { t.Log(s) }); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"../../victim/run", "r-/../../../victim/run", "a/b", "a-../../../victim/run"} {
		renameRun(t, h, id, name)
		id = name
		if err := h.Proofs().Bundle(t.Context(), io.Discard, "", name, host.BundleOptions{}); err != nil {
			t.Logf("bundle of %s: %v", name, err)
		}
		_, closeEvidence, err := h.Proofs().OfRun(t.Context(), "", name)
		t.Logf("evidence of %s: %v", name, err)
		if err == nil {
			if err := closeEvidence(); err != nil {
				t.Error(err)
			}
		}
		_, err = h.Proofs().OfRecord(t.Context(), "", name, 3)
		t.Logf("proof of %s: %v", name, err)
		if list, err := os.ReadDir(victim); err != nil || len(list) > 0 {
			t.Errorf("%s: another directory has %d entries, %v", name, len(list), err)
		}
		if left, _ := filepath.Glob(filepath.Join(h.Dir, "rebuilt-*")); len(left) > 0 {
			t.Errorf("%s: left behind: %v", name, left)
		}
	}
}

// renameRun renames a run in the store, as anyone who can write to it could.
func renameRun(t *testing.T, h *host.Host, from, to string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(h.Dir, "custody.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, table := range []string{"records", "manifests", "runs"} {
		if _, err := db.Exec("UPDATE "+table+" SET run = ? WHERE run = ?", to, from); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStoreMode: only the owner can read the store, whether it is new, rebuilt, or was readable to others in an earlier version.
func TestStoreMode(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o022))
	h, err := host.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	record(t, h, host.NewRunID(storetest.Start()), storetest.Events(3))
	modes := func(what string) {
		t.Helper()
		st, err := h.Store(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		if _, err := st.Runs(t.Context(), store.Filter{}); err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(h.Dir, "custody.db*"))
		if err != nil || len(files) < 3 {
			t.Errorf("%s: files %v, %v", what, files, err)
		}
		for _, f := range files {
			if info, err := os.Stat(f); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %s has mode %v, %v", what, filepath.Base(f), info.Mode(), err)
			}
		}
	}
	modes("new")
	if n, err := h.Shipping().Rebuild(t.Context()); err != nil || n == 0 {
		t.Fatalf("%d segments, %v", n, err)
	}
	modes("rebuilt")
	if err := os.Chmod(filepath.Join(h.Dir, "custody.db"), 0o644); err != nil {
		t.Fatal(err)
	}
	modes("of an earlier version")
}
