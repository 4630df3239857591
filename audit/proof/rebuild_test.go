package proof_test

import (
	"bytes"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/store"
)

// stored returns a store's copy of a run.
func stored(t testing.TB, dir string) (manifests [][]byte, rows []proof.Row) {
	t.Helper()
	for _, path := range glob(t, dir, wal.ManifestSuffix) {
		_, signed := manifestOf(t, path)
		manifests = append(manifests, signed)
	}
	segments, err := wal.Segments(dir)
	check(t, err)
	for _, path := range segments {
		for f, err := range wal.ReadSegment(path) {
			check(t, err)
			row := store.Frame{Seq: f.Seq, Salt: f.Salt, Body: f.Bytes}
			if f.Erased {
				leaf := f.Leaf()
				row = store.Frame{Seq: f.Seq, Erased: &leaf}
			}
			rows = append(rows, proof.Row(row))
		}
	}
	return manifests, rows
}

func each(rows []proof.Row) iter.Seq2[proof.Row, error] {
	return func(yield func(proof.Row, error) bool) {
		for _, r := range rows {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func TestRebuild(t *testing.T) {
	w := newWorld(t)
	manifests, rows := stored(t, w.one)
	dir := filepath.Join(t.TempDir(), "new", "r-one")
	check(t, proof.Rebuild(t.Context(), dir, manifests, each(rows)))
	for _, entry := range must(os.ReadDir(dir)) {
		want, err := os.ReadFile(filepath.Join(w.one, entry.Name()))
		check(t, err)
		if got := must(os.ReadFile(filepath.Join(dir, entry.Name()))); !bytes.Equal(got, want) {
			t.Errorf("%s is another", entry.Name())
		}
	}
	_, err := w.bundle(t, dir).verify(t, w.trust())
	check(t, err)
	if err := proof.Rebuild(t.Context(), dir, manifests, each(rows)); err == nil {
		t.Error("a run is overwritten")
	}

	for title, bad := range map[string]struct {
		manifests [][]byte
		rows      []proof.Row
	}{
		"a row missing":      {manifests, slices.Delete(slices.Clone(rows), 7, 8)},
		"the last missing":   {manifests, rows[:14]},
		"a row too many":     {manifests, append(slices.Clone(rows), proof.Row{Seq: 16, Body: []byte("x")})},
		"a manifest missing": {manifests[:2], rows},
		"longer":             {manifests, func() []proof.Row { r := slices.Clone(rows); r[3].Body = append(bytes.Clone(r[3].Body), ' '); return r }()},
		"no manifest":        {[][]byte{[]byte("x")}, rows},
	} {
		dir := filepath.Join(t.TempDir(), "r-one")
		if err := proof.Rebuild(t.Context(), dir, bad.manifests, each(bad.rows)); err == nil {
			t.Errorf("%s: it is made", title)
		}
		if left := must(os.ReadDir(filepath.Dir(dir))); len(left) > 0 {
			t.Errorf("%s: left behind: %v", title, left)
		}
	}
	swapped := slices.Clone(rows)
	swapped[1].Body = bytes.Replace(swapped[1].Body, []byte("line 2"), []byte("line X"), 1)
	dir = filepath.Join(t.TempDir(), "r-one")
	check(t, proof.Rebuild(t.Context(), dir, manifests, each(swapped)))
	_, err = verifyDir(t, dir, w.trusted)
	wants(t, err, verdict.ErrDoesNotHold, verdict.ErrAltered, 0) // the leaves are computed from the row, too
}

// TestRebuildErased rebuilds a run of which a store has only the leaves of some records.
func TestRebuildErased(t *testing.T) {
	w := newWorld(t)
	for _, seq := range []uint64{2, 7, 8, 9} {
		state(t, w.key, w.one, seq)
		check(t, wal.Erase(t.Context(), w.one, seq))
	}
	w.log.log(t, w.one)
	w.log.publish(t, w.witness)
	manifests, rows := stored(t, w.one)
	dir := filepath.Join(t.TempDir(), "r-one")
	check(t, proof.Rebuild(t.Context(), dir, manifests, each(rows)))
	_, err := verifyDir(t, dir, w.trusted)
	wants(t, err, verdict.ErrDoesNotHold, verdict.ErrErasureUndeclared, 2)
	for _, path := range glob(t, w.one, statement.ErasureSuffix) {
		copyFile(t, path, filepath.Join(dir, filepath.Base(path)))
	}
	r, err := w.bundle(t, dir).verify(t, w.trust())
	check(t, err)
	if len(r.Erasures) != 4 {
		t.Errorf("%d erasures", len(r.Erasures))
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestAbsent deletes a whole run, which the host's log still names.
func TestAbsent(t *testing.T) {
	w := newWorld(t)
	entries := func(yield func([]byte, error) bool) {
		for _, e := range append(slices.Clone(w.log.entries), []byte("of a newer version\n"), statement.RotationLeaf(merkle.Hash{9})) {
			if !yield(e, nil) {
				return
			}
		}
	}
	here := map[string]string{"r-one": w.one, "r-two": w.two}
	has := func(run string, segment uint64, digest merkle.Hash) bool {
		paths := glob(t, here[run], wal.ManifestSuffix)
		if run == "r-old" {
			return true
		}
		if segment >= uint64(len(paths)) {
			return false
		}
		_, signed := manifestOf(t, paths[segment])
		return statement.Digest(signed) == digest
	}
	all, err := proof.Absent(entries, has)
	check(t, err)
	if len(all) != 0 {
		t.Errorf("absent: %v", all)
	}
	check(t, os.RemoveAll(w.two))
	all, err = proof.Absent(entries, has)
	check(t, err)
	if len(all) != 1 || all[0].Name() != "run-missing" || !errors.Is(all[0], verdict.ErrDoesNotHold) || !bytes.Contains([]byte(all[0].Error()), []byte("r-two")) {
		t.Errorf("absent: %v", all)
	}
}
