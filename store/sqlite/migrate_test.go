package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// oldStore makes a database of schema 1 with runs in it, and returns a new one with the same runs.
func oldStore(t *testing.T, path string, segs []store.Segment) *Store {
	t.Helper()
	now := newStore(t)
	storetest.Ingest(t, now, segs)
	schema, err := migrations.ReadFile("migrations/001_records.sql")
	if err != nil {
		t.Fatal(err)
	}
	old, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	old.SetMaxOpenConns(1) // the new database is attached to it
	for _, statement := range []string{
		string(schema), "PRAGMA user_version = 1", "PRAGMA journal_mode = wal", "ATTACH '" + now.path + "' AS now",
		"INSERT INTO records SELECT run, seq, time, kind, step, observer, proc, body, salt FROM now.records",
		"INSERT INTO manifests SELECT run, idx, first, last, root, bytes FROM now.manifests",
		`INSERT INTO runs SELECT run, project, start, first_time, "end", status, result, exit_code, tier, mode, template,
			events, findings, gaps, lost, last_seq FROM now.runs`,
	} {
		if _, err := old.Exec(statement); err != nil {
			t.Fatalf("%v: %s", err, statement)
		}
	}
	return now
}

// TestOldStore: migrating a store of schema 1 has the same result as ingesting everything again.
func TestOldStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	segs := slices.Concat(storetest.Segments("r-a", personal("r-a", 2500), 700), storetest.Run("r-b", 300, 90))
	now := oldStore(t, path, segs)
	if _, err := OpenReader(t.Context(), path); err == nil {
		t.Error("an old store was opened by a reader, which cannot change it")
	}
	s := open1(t, path)
	wantSame(t, s, now)
	// Later segments of the same runs name the host.
	more := store.Segment{Host: "h", Run: "r-b", Index: 9, First: 301, Last: 301, Manifest: []byte("m"),
		Frames: []store.Frame{storetest.Frame("r-b", 301, storetest.Events(5)[3])}}
	storetest.Ingest(t, s, []store.Segment{more})
	if r, err := s.Run(t.Context(), "", "r-b"); err != nil || r.Host != "h" || r.Events != 301 {
		t.Errorf("run is %+v, %v", r, err)
	}
}

// wantSame compares all rows, columns, manifests, summaries, and feeds.
func wantSame(t *testing.T, got, want *Store) {
	t.Helper()
	ctx := t.Context()
	runs, err := want.Runs(ctx, store.Filter{})
	gotRuns, gotErr := got.Runs(ctx, store.Filter{})
	if err != nil || gotErr != nil || !reflect.DeepEqual(gotRuns, runs) || len(runs) == 0 {
		t.Fatalf("runs are %+v, %v, want %+v, %v", gotRuns, gotErr, runs, err)
	}
	for _, r := range runs {
		a, b := storetest.Collect(t, got.Records(ctx, store.Query{Run: r.ID})), storetest.Collect(t, want.Records(ctx, store.Query{Run: r.ID}))
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("records of %s differ", r.ID)
		}
		for _, row := range b[:3] {
			q := store.Search{Path: row.Path, Host: row.Host, Hash: row.Hash, Secret: row.Secret, Rule: row.Rule, From: row.Time}
			if a, b := storetest.Collect(t, got.Search(ctx, q)), storetest.Collect(t, want.Search(ctx, q)); !reflect.DeepEqual(a, b) || len(a) == 0 {
				t.Errorf("%+v finds %d, want %d", q, len(a), len(b))
			}
		}
		chain, err := want.Manifests(ctx, "", r.ID)
		gotChain, gotErr := got.Manifests(ctx, "", r.ID)
		if err != nil || gotErr != nil || !reflect.DeepEqual(gotChain, chain) {
			t.Fatalf("manifests of %s are %+v, want %+v", r.ID, gotChain, chain)
		}
	}
	if a, b := feedOf(t, got), feedOf(t, want); !reflect.DeepEqual(a, b) {
		t.Errorf("feed is %v, want %v", a, b)
	}
}

// feedOf is the feed without cursors and without an order between runs.
func feedOf(t *testing.T, s *Store) []string {
	t.Helper()
	refs, err := s.Feed(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, r := range refs {
		r.Cursor = ""
		all = append(all, fmt.Sprint(r))
	}
	slices.Sort(all)
	return all
}

const migrateEnv = "CUSTODY_TEST_MIGRATE" // path

func childOpen(path string) error {
	s, err := Open(context.Background(), path)
	if err != nil {
		return err
	}
	return s.Close()
}

// TestKilledWhileMigrating kills processes at all moments of a
// migration: the store has always either the old schema or the new one.
func TestKilledWhileMigrating(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	now := oldStore(t, path, storetest.Run("r-k", 8000, 1000))
	for i := range 8 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), migrateEnv+"="+path)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(10+20*i) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
	}
	wantSame(t, open1(t, path), now)
}

// TestMigratedByMany: processes that open an old store concurrently all find it migrated.
func TestMigratedByMany(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	now := oldStore(t, path, storetest.Run("r-k", 3000, 1000))
	var all []*exec.Cmd
	for range 4 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), migrateEnv+"="+path)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, cmd)
	}
	for _, cmd := range all {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	wantSame(t, open1(t, path), now)
}
