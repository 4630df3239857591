package proof_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
)

// FuzzManifest checks that every manifest that is parsed is canonical: sealing and parsing
// it again returns the same text.
func FuzzManifest(f *testing.F) {
	k := newKey(f)
	dir := newRun(f, k, "r-one")
	for _, first := range []uint64{1, 6, 11} {
		data, err := os.ReadFile(manifestPath(dir, first))
		check(f, err)
		n, err := note.Open(data, k.trusted)
		check(f, err)
		f.Add(n.Text)
	}
	f.Add("custody manifest v1\n{\"v\":1}\n")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := statement.ParseManifest(text)
		if err != nil {
			return
		}
		signed, err := note.Sign(&note.Note{Text: text}, k.signer)
		if err != nil {
			return // the note format does not allow this text
		}
		s, err := statement.NewSealer(k.signer, statement.Facts{}).Parse(signed)
		check(t, err)
		if s.Run != m.Run || s.First != m.First || s.Closing != m.Closing {
			t.Errorf("parsed %+v, then %+v", m, s)
		}
	})
}

// FuzzSegment gives a signed run another segment: only the true bytes may verify.
func FuzzSegment(f *testing.F) {
	k := newKey(f)
	dir := newRun(f, k, "r-one")
	truth, err := os.ReadFile(segPath(dir, 6))
	check(f, err)
	f.Add(truth)
	f.Add(truth[:100])
	f.Add(append(truth, truth...))
	f.Fuzz(func(t *testing.T, data []byte) {
		check(t, os.WriteFile(segPath(dir, 6), data, 0o600))
		_, err := verifyDir(t, dir, k.trusted)
		switch {
		case string(data) == string(truth):
			check(t, err)
		case !errors.Is(err, verdict.ErrDoesNotHold):
			t.Errorf("altered bytes: %v", err)
		}
	})
}

// FuzzBundle checks that any file is either refused or judged, and never verifies
// with a key that did not sign it.
func FuzzBundle(f *testing.F) {
	k, other := newKey(f), newKey(f)
	f.Add(bundle(f, newRun(f, k, "r-one"), k))
	f.Add(make([]byte, 1024))
	path := filepath.Join(f.TempDir(), "bundle.tar")
	f.Fuzz(func(t *testing.T, data []byte) {
		check(t, os.WriteFile(path, data, 0o600))
		e, err := proof.OpenBundle(path)
		if err != nil {
			return
		}
		defer e.Close()
		var v *verdict.Verdict
		if _, err := proof.Verify(context.Background(), e, proof.Trust{Keys: other.trusted, Unlogged: true}); !errors.As(err, &v) {
			t.Errorf("verdict by a key that did not sign: %v", err)
		}
	})
}

// FuzzWholeBundle changes one file of a valid bundle. The result has the same report as
// the original, or does not hold, or cannot be read.
func FuzzWholeBundle(f *testing.F) {
	w := newWorld(f)
	fuzzFiles(f, w.bundle(f, w.one), w.trust())
}

// FuzzAncestors is FuzzWholeBundle for the bundle of an ancestor, which is in another one with a valid trailer.
func FuzzAncestors(f *testing.F) {
	w := newFamily(f)
	truth := w.bundleOf(f, "r-fork-a", "r-child", "r-root")
	name := wal.FileName(2, ".ancestor")
	ancestor := unpack(f, truth[name])
	pack := func(t testing.TB, changed files) files {
		b := maps.Clone(truth)
		b[name] = changed.pack(t)
		return b.seal(t, w.key)
	}
	fuzzPacked(f, ancestor, w.trust(), pack)
}

// FuzzParent signs a run that states a fuzzed parent: it holds only if that is the parent, or if its record is not there.
func FuzzParent(f *testing.F) {
	w := newFamily(f)
	actual := *w.parent(f, audit.OpFork, "r-child")
	f.Add(actual.Op, actual.Run, actual.Seq, actual.Root, actual.Manifest)
	f.Add("", "", uint64(0), "", "")
	f.Add("resume", "r-fork-a", actual.Seq, actual.Root, actual.Manifest)
	f.Add("fork", "../r-child", actual.Seq, strings.ToUpper(actual.Root), actual.Manifest)
	f.Fuzz(func(t *testing.T, op, run string, seq uint64, root, manifest string) {
		p := audit.Parent{Op: op, Run: run, Seq: seq, Root: root, Manifest: manifest}
		w.run(t, "r-fork-a", &p)
		r, err := w.verifyRun(t, "r-fork-a", nil)
		p.Op = actual.Op
		switch known := w.dirs[run] != ""; {
		case p == actual && err != nil, !known && (err != nil || states(r) != op+" "+run+" missing"):
			t.Errorf("%+v: %v, %q", p, err, states(r))
		case known && p != actual && run == "r-child" && !errors.Is(err, verdict.ErrParent):
			t.Errorf("%+v: %v", p, err)
		}
	})
}

// fuzzFiles changes one file of a valid bundle.
func fuzzFiles(f *testing.F, truth files, trust proof.Trust) {
	fuzzPacked(f, truth, trust, func(_ testing.TB, changed files) files { return changed })
}

// fuzzPacked changes one of the files from which pack makes a valid bundle.
func fuzzPacked(f *testing.F, truth files, trust proof.Trust, pack func(testing.TB, files) files) {
	want, err := pack(f, truth).verify(f, trust)
	check(f, err)
	names := slices.Sorted(maps.Keys(truth))
	for i, n := range names {
		f.Add(uint(i), uint(len(truth[n])/2), []byte{1})
		f.Add(uint(i), uint(0), []byte("x"))
	}
	f.Fuzz(func(t *testing.T, file, at uint, with []byte) {
		n := names[file%uint(len(names))]
		changed := maps.Clone(truth)
		b := bytes.Clone(truth[n])
		changed[n] = append(b[:at%uint(len(b)+1)], with...)
		if i := int(at%uint(len(b)+1)) + len(with); i < len(truth[n]) {
			changed[n] = append(changed[n], truth[n][i:]...)
		}
		r, err := pack(t, changed).verify(t, trust)
		switch same := bytes.Equal(changed[n], truth[n]); {
		case err == nil && !same:
			t.Errorf("%s is changed at %d, and it holds", n, at)
		case err == nil && (r.Head != want.Head || r.Records != want.Records || r.Published.Root != want.Published.Root):
			t.Errorf("%s: it holds and says something else: %+v", n, r)
		case err != nil && same:
			t.Error(err)
		}
	})
}
