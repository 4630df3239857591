package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// personal are frames that name a person in all columns of the store.
// Their bodies have many sizes, so that pages split and overflow.
func personal(run string, n int) []store.Frame {
	frames := make([]store.Frame, n)
	for i := range frames {
		mark := fmt.Sprintf("%s-alice%d", run, i)
		at := storetest.Start().Add(time.Duration(i) * time.Second)
		e := audit.Event{Time: at, Observer: audit.Guest, Kind: audit.KindFile, Step: "step-" + mark,
			File: &audit.File{Proc: "proc-" + mark, Path: audit.Text("/home/" + mark), SHA256: "hash-" + mark}}
		switch i % 3 {
		case 1:
			e.Kind, e.File, e.HTTP = audit.KindHTTP, nil, &audit.HTTP{Host: audit.Text(mark + ".example"), Credential: "key-" + mark}
		case 2:
			long := audit.Text(strings.Repeat(mark+" ", i*40%1500))
			e.Kind, e.File, e.Output = audit.KindOutput, nil, &audit.Output{Stream: "tty", Text: long + audit.Text(mark)}
		}
		frames[i] = storetest.Frame(run, uint64(i+1), e)
		copy(frames[i].Salt[:], mark+"-salt-is-long") // to be searched for
	}
	return frames
}

// holds reports whether mark occurs in any of the store's files.
func holds(t *testing.T, path, mark string) (in []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(content, []byte(mark)) {
			in = append(in, filepath.Base(file))
		}
	}
	return in
}

// crowded is a store with two runs, ingested alternately and backwards, so that
// pages were split everywhere.
func crowded(t *testing.T) (path string, s *Store) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "store.db")
	s = open1(t, path)
	a, b := storetest.Segments("r-a", personal("r-a", 300), 7), storetest.Segments("r-b", personal("r-b", 300), 7)
	for i := len(a) - 1; i >= 0; i-- {
		storetest.Ingest(t, s, []store.Segment{a[i], b[i]})
	}
	return path, s
}

// TestEraseLeavesNoByte searches the files for erased contents while
// the store is open. The segments are ingested in such an order that pages split and
// leave copies in their slack, which secure_delete alone does not overwrite.
func TestEraseLeavesNoByte(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open1(t, path)
	random := rand.New(rand.NewPCG(1, 1))
	segs := append(storetest.Segments("r-a", personal("r-a", 2000), 3), storetest.Segments("r-b", personal("r-b", 2000), 3)...)
	random.Shuffle(len(segs), func(i, j int) { segs[i], segs[j] = segs[j], segs[i] })
	if err := s.Ingest(t.Context(), segs...); err != nil {
		t.Fatal(err)
	}
	gone := map[string]bool{}
	var seqs []uint64
	for i := range 2000 {
		if random.IntN(3) == 0 {
			gone[fmt.Sprint(i)] = true
			seqs = append(seqs, uint64(i+1))
		}
	}
	left := func() (n int) {
		for _, file := range []string{path, path + "-wal"} {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			// The byte after a name distinguishes it from one that a page's end has truncated.
			for _, m := range regexp.MustCompile(`r-a-alice(\d+)[" ./-]`).FindAllSubmatch(content, -1) {
				if gone[string(m[1])] {
					n++
				}
			}
		}
		return n
	}
	if n := left(); n < 10000 {
		t.Fatalf("%d places before: this test looks in the wrong ones", n)
	}
	if err := s.EraseAll(t.Context(), "", "r-a", seqs...); err != nil {
		t.Fatal(err)
	}
	if n := left(); n > 0 {
		t.Errorf("what was erased still stands at %d places", n)
	}
	if rows := storetest.Collect(t, s.Records(t.Context(), store.Query{Run: "r-a"})); len(rows) != 2000 {
		t.Errorf("%d rows are left, want 2000", len(rows))
	}
}

// TestEraseAfterKill: the process died after emptying the rows. Repeating completes the erasure.
func TestEraseAfterKill(t *testing.T) {
	path, s := crowded(t)
	err := s.inTx(t.Context(), func(tx *sql.Tx) error { return eraseRows(t.Context(), tx, "", "r-a", []uint64{17}) })
	if err != nil {
		t.Fatal(err)
	}
	if holds(t, path, "r-a-alice16.example") == nil {
		t.Fatal("this test is about bytes that are left, and none are")
	}
	again := open1(t, path)
	if err := again.Erase(t.Context(), "", "r-a", 17); err != nil {
		t.Fatal(err)
	}
	if in := holds(t, path, "r-a-alice16.example"); in != nil {
		t.Errorf("still in %v", in)
	}
}

const eraseEnv = "CUSTODY_TEST_ERASE" // path

func childErase(path string) error {
	s, err := Open(context.Background(), path)
	if err != nil {
		return err
	}
	return s.Erase(context.Background(), "", "r-a", 17)
}

// TestKilledWhileErasing kills processes at all moments of an erasure: the record
// exists or is erased, nothing else changes, and repeating completes the erasure.
func TestKilledWhileErasing(t *testing.T) {
	path, s := crowded(t)
	before := storetest.Collect(t, s.Records(t.Context(), store.Query{Run: "r-a"}))
	erased := 0
	for i := range 12 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), eraseEnv+"="+path)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(8+5*i) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		after := storetest.Collect(t, s.Records(t.Context(), store.Query{Run: "r-a"}))
		leaf := before[16].Frame().Leaf()
		if row := after[16]; row.Erased != nil && *row.Erased == leaf {
			erased++
			after[16] = before[16]
		}
		if !reflect.DeepEqual(after, before) {
			t.Fatalf("kill %d left other records changed", i)
		}
	}
	t.Logf("%d of 12 kills came after the row was emptied", erased)
	if err := s.Erase(t.Context(), "", "r-a", 17); err != nil {
		t.Fatal(err)
	}
	if in := holds(t, path, "r-a-alice16.example"); in != nil {
		t.Errorf("still in %v", in)
	}
}

// TestEraseWaitsForReaders: a reader of the previous state prevents the removal of its bytes.
func TestEraseWaitsForReaders(t *testing.T) {
	path, s := crowded(t)
	r, err := OpenReader(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for range r.Records(t.Context(), store.Query{Run: "r-a"}) {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		err := s.Erase(ctx, "", "r-a", 17)
		cancel()
		if err == nil {
			t.Fatal("erased under a reader's eyes")
		}
		break
	}
	if err := s.Erase(t.Context(), "", "r-a", 17); err != nil {
		t.Fatal(err)
	}
	if in := holds(t, path, "r-a-alice16.example"); in != nil {
		t.Errorf("still in %v", in)
	}
}

// TestEraseInDamagedCopy: the file that a rebuild kept also has the record.
func TestEraseInDamagedCopy(t *testing.T) {
	path, s := crowded(t)
	s.Close()
	_, err := Rebuild(t.Context(), path, func(yield func(store.Segment, error) bool) {
		for _, seg := range storetest.Segments("r-a", personal("r-a", 300), 50) {
			if !yield(seg, nil) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := open1(t, path).Erase(t.Context(), "", "r-a", 17); err != nil {
		t.Fatal(err)
	}
	if in := holds(t, path, "r-a-alice16.example"); in != nil {
		t.Errorf("still in %v", in)
	}
}

// TestEraseByAReader: a user with read permission only cannot erase.
func TestEraseByAReader(t *testing.T) {
	path, _ := crowded(t)
	r, err := OpenReader(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Erase(t.Context(), "", "r-a", 17); err == nil || errors.Is(err, store.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}
