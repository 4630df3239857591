package proof_test

import (
	"bytes"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
)

func TestPublished(t *testing.T) {
	w := newWorld(t)
	f := w.bundle(t, w.one)
	r, err := f.verify(t, w.trust())
	check(t, err)
	p := r.Published
	if p == nil || p.Origin != "custody-test" || p.Size != 11 || p.Covered != 15 || p.Tail != 0 || p.Since != 5 ||
		!slices.Equal(p.Witnesses, []string{"witness.example"}) {
		t.Errorf("published: %+v", p)
	}
	var again bytes.Buffer
	check(t, proof.WriteBundle(t.Context(), &again, clone(t, w.one), w.options()))
	if !bytes.Equal(again.Bytes(), func() []byte {
		var b bytes.Buffer
		check(t, proof.WriteBundle(t.Context(), &b, w.one, w.options()))
		return b.Bytes()
	}()) {
		t.Error("the same record and checkpoint give different bundles")
	}

	t.Run("an older checkpoint than the run", func(t *testing.T) {
		o := w.options()
		o.Checkpoint, o.Since = w.before, nil
		if err := proof.WriteBundle(t.Context(), &bytes.Buffer{}, w.one, o); !errors.Is(err, verdict.ErrPending) {
			t.Errorf("got %v", err)
		}
	})
}

// TestPublishedDir verifies a directory with the log itself.
func TestPublishedDir(t *testing.T) {
	w := newWorld(t)
	judge := func(dir string, l proof.Log, trust proof.Trust) (proof.Report, error) {
		e, err := proof.OpenDir(dir)
		check(t, err)
		defer e.Close()
		e.Log = l
		return proof.Verify(t.Context(), e, trust)
	}
	r, err := judge(w.one, w.log, w.trust())
	check(t, err)
	if r.Published.Covered != 15 || r.Published.Since != 5 {
		t.Errorf("%+v", r.Published)
	}
	three := newRun(t, w.key, "r-three")
	r, err = judge(three, w.log, w.trust())
	wants(t, err, verdict.ErrCannotBeJudged, verdict.ErrPending, 0)
	if r.Published.Tail != 15 || r.HoldsTo != 15 {
		t.Errorf("tail %+v, holds to %d", r.Published, r.HoldsTo)
	}
	_, err = judge(three, &treeLog{signer: w.signer}, proof.Trust{Keys: w.trusted})
	wants(t, err, verdict.ErrCannotBeJudged, verdict.ErrPending, 0)

	truncated := &treeLog{signer: w.signer}
	for _, entry := range w.log.entries[:7] {
		truncated.add(t, entry)
	}
	truncated.publish(t, w.witness)
	_, err = judge(w.two, truncated, w.trust())
	wants(t, err, verdict.ErrCannotBeJudged, verdict.ErrPending, 0)
	kept := w.trust()
	kept.Since = w.log.last
	_, err = judge(w.two, truncated, kept)
	wants(t, err, verdict.ErrDoesNotHold, verdict.ErrRolledBack, 0)

	holed := &treeLog{signer: w.signer}
	for i, entry := range w.log.entries {
		if i != 6 { // the second manifest of r-one
			holed.add(t, entry)
		}
	}
	holed.publish(t)
	_, err = judge(w.one, holed, proof.Trust{Keys: w.trusted})
	wants(t, err, verdict.ErrDoesNotHold, verdict.ErrUnlogged, 0)

	t.Run("live", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "r-live")
		l, err := wal.Create(dir, wal.Options{Run: "r-live", Sealer: statement.NewSealer(w.signer, facts), SegmentAge: time.Hour})
		check(t, err)
		for range 2 {
			_, err := l.Append(t.Context(), output(t, "line"))
			check(t, err)
			check(t, l.Rotate(t.Context()))
		}
		w.log.log(t, dir)
		w.log.publish(t, w.witness)
		_, err = l.Append(t.Context(), output(t, "line"))
		check(t, err)
		check(t, l.Rotate(t.Context()))
		r, err := judge(dir, w.log, w.trust())
		wants(t, err, verdict.ErrCannotBeJudged, verdict.ErrLive, 0)
		if r.Published.Covered != 2 || r.Published.Tail != 1 {
			t.Errorf("%+v", r.Published)
		}
		check(t, l.Close(t.Context(), wal.Sealed))
	})
}

func name(first uint64, suffix string) string { return wal.FileName(first, suffix) }

// TestMutations changes a whole bundle in every way. Each change is detected by its finding.
func TestMutations(t *testing.T) {
	w := newWorld(t)
	truth, other := w.bundle(t, w.one), w.bundle(t, w.two)
	_, err := truth.verify(t, w.trust())
	check(t, err)

	fork := &treeLog{signer: w.signer}
	for i := range w.log.entries {
		fork.add(t, statement.ManifestLeaf("r-fork", uint64(i), merkle.Hash{}))
	}
	longer := &treeLog{signer: w.signer}
	for i := range 20 {
		longer.add(t, statement.ManifestLeaf("r-fork", uint64(i), merkle.Hash{}))
	}
	thief := newKey(t)
	stranger := newWitness(t, "stranger.example")
	replace := func(f files, old, new []byte) { // in every file that has it
		for n := range f {
			f[n] = bytes.ReplaceAll(f[n], old, new)
		}
	}
	cp := string(truth["checkpoint"])
	forkLog := func(f files, l *treeLog, witnesses ...note.Signer) {
		replace(f, truth["checkpoint"], l.publish(t, witnesses...))
	}
	for title, c := range map[string]struct {
		change  func(f files)
		finding *verdict.Finding
	}{
		"checkpoint dropped": {func(f files) { delete(f, "checkpoint") }, verdict.ErrNoCheckpoint},
		"proof dropped":      {func(f files) { delete(f, name(6, ".tlog-proof")) }, verdict.ErrNoProof},
		"last proof dropped": {func(f files) { delete(f, name(11, ".tlog-proof")) }, verdict.ErrNoProof},
		"all proofs dropped": {func(f files) {
			maps.DeleteFunc(f, func(n string, _ []byte) bool { return strings.HasSuffix(n, ".tlog-proof") })
		}, verdict.ErrNoProof},
		"consistency dropped":        {func(f files) { delete(f, "consistency") }, verdict.ErrBundle},
		"since and consistency gone": {func(f files) { delete(f, "consistency"); delete(f, "since") }, verdict.ErrNoConsistency},
		"proofs swapped": {func(f files) {
			f[name(1, ".tlog-proof")], f[name(6, ".tlog-proof")] = f[name(6, ".tlog-proof")], f[name(1, ".tlog-proof")]
		}, verdict.ErrOtherEntry},
		"proof of another run": {func(f files) { f[name(6, ".tlog-proof")] = other[name(6, ".tlog-proof")] }, verdict.ErrOtherEntry},
		"path of another run": {func(f files) {
			f[name(6, ".tlog-proof")] = splice(f[name(6, ".tlog-proof")], other[name(6, ".tlog-proof")])
		}, verdict.ErrNotIncluded},
		"entry of the proof changed": {func(f files) {
			f[name(6, ".tlog-proof")] = bytes.Replace(f[name(6, ".tlog-proof")], []byte("extra Y3"), []byte("extra Y2"), 1)
		}, verdict.ErrOtherEntry},
		"proof truncated": {func(f files) { f[name(6, ".tlog-proof")] = f[name(6, ".tlog-proof")][:40] }, verdict.ErrProofMalformed},
		"index of the proof changed": {func(f files) {
			f[name(6, ".tlog-proof")] = bytes.Replace(f[name(6, ".tlog-proof")], []byte("index 6\n"), []byte("index 5\n"), 1)
		}, verdict.ErrNotIncluded},
		"a hash of the path dropped":  {func(f files) { f[name(6, ".tlog-proof")] = dropLine(f[name(6, ".tlog-proof")], 3) }, verdict.ErrNotIncluded},
		"a hash of the path doubled":  {func(f files) { f[name(6, ".tlog-proof")] = doubleLine(f[name(6, ".tlog-proof")], 3) }, verdict.ErrNotIncluded},
		"hashes of the path swapped":  {func(f files) { f[name(6, ".tlog-proof")] = swapLines(f[name(6, ".tlog-proof")], 3, 4) }, verdict.ErrNotIncluded},
		"consistency's hash dropped":  {func(f files) { f["consistency"] = dropLine(f["consistency"], 1) }, verdict.ErrForked},
		"consistency of another size": {func(f files) { f["consistency"] = bytes.Replace(f["consistency"], []byte("old 5"), []byte("old 4"), 1) }, verdict.ErrNoConsistency},
		"proof under another one": {func(f files) {
			f[name(6, ".tlog-proof")] = bytes.Replace(f[name(6, ".tlog-proof")], []byte("\n11\n"), []byte("\n12\n"), 1)
		}, verdict.ErrOtherCheckpoint},
		"checkpoint's size changed":   {func(f files) { replace(f, []byte("custody-test\n11\n"), []byte("custody-test\n12\n")) }, verdict.ErrCheckpoint},
		"checkpoint's signature gone": {func(f files) { replace(f, []byte(cp), []byte(dropSignature(cp, "custody-test"))) }, verdict.ErrCheckpoint},
		"checkpoint by another key":   {func(f files) { forkLog(f, &treeLog{thief.signer, w.log.entries, w.log.hashes, nil}, w.witness) }, verdict.ErrCheckpoint},
		"checkpoint of another log":   {func(f files) { forkLog(f, &treeLog{renamed{w.signer}, w.log.entries, w.log.hashes, nil}, w.witness) }, verdict.ErrOtherLog},
		"fork of the same size":       {func(f files) { forkLog(f, fork, w.witness) }, verdict.ErrForked},
		"longer fork":                 {func(f files) { forkLog(f, longer, w.witness) }, verdict.ErrForked},
		"older checkpoint replayed":   {func(f files) { replace(f, []byte(cp), w.log.cut(t, 3, w.witness)) }, verdict.ErrRolledBack},
		"checkpoint before the run": {func(f files) {
			replace(f, []byte(cp), w.log.cut(t, 6, w.witness))
			f["consistency"] = w.log.continuation(t, 5, 6, f["checkpoint"])
		}, verdict.ErrNotIncluded},
		"witness gone":               {func(f files) { replace(f, []byte(cp), []byte(dropSignature(cp, "witness.example"))) }, verdict.ErrQuorum},
		"unknown witness":            {func(f files) { replace(f, []byte(cp), w.log.publish(t, stranger)) }, verdict.ErrUnknownWitness},
		"cosignature of another one": {func(f files) { replace(f, []byte(cp), []byte(moveSignature(t, w, cp))) }, verdict.ErrCosignature},
		"since changed":              {func(f files) { f["since"] = bytes.Replace(f["since"], []byte("\n5\n"), []byte("\n4\n"), 1) }, verdict.ErrCheckpoint},
		"since of a longer log":      {func(f files) { f["since"] = longer.publish(t) }, verdict.ErrRolledBack},
		"host key of another":        {func(f files) { f["host.pub"] = []byte(thief.public + "\n") }, verdict.ErrHostKey},
		"host key cut":               {func(f files) { f["host.pub"] = append(f["host.pub"][:20:20], 10) }, verdict.ErrHostKey},
		"host key dropped":           {func(f files) { delete(f, "host.pub") }, verdict.ErrBundle},
		"stray proof":                {func(f files) { f[name(3, ".tlog-proof")] = f[name(1, ".tlog-proof")] }, verdict.ErrStray},
		"stray leaves":               {func(f files) { f[name(3, ".leaves")] = f[name(1, ".leaves")] }, verdict.ErrStray},
		"foreign file":               {func(f files) { f["notes.txt"] = nil }, verdict.ErrBundle},
		"segment dropped":            {func(f files) { delete(f, name(6, ".seg")) }, verdict.ErrSegmentMissing},
		"manifest dropped":           {func(f files) { delete(f, name(6, ".manifest")) }, verdict.ErrManifestMissing},
		"closing manifest dropped":   {func(f files) { delete(f, name(11, ".manifest")) }, verdict.ErrTailCut},
		"the end dropped, with proofs": {func(f files) {
			maps.DeleteFunc(f, func(n string, _ []byte) bool { return strings.HasPrefix(n, "00000000000000000011") })
		}, verdict.ErrTailCut},
		"leaves dropped":          {func(f files) { delete(f, name(6, ".leaves")) }, verdict.ErrLeaves},
		"manifest of another run": {func(f files) { f[name(6, ".manifest")] = other[name(6, ".manifest")] }, verdict.ErrRunMismatch},
		"segment of another run":  {func(f files) { f[name(6, ".seg")] = other[name(6, ".seg")] }, verdict.ErrRunMismatch},
		"everything emptied": {func(f files) {
			maps.DeleteFunc(f, func(n string, _ []byte) bool { return n != "host.pub" && n != "README.txt" && n != "trailer" })
		}, verdict.ErrNoEvidence},
	} {
		t.Run(title, func(t *testing.T) {
			f := maps.Clone(truth)
			c.change(f)
			_, err := f.verify(t, w.trust())
			var v *verdict.Verdict
			if !errors.As(err, &v) || v.Finding != c.finding {
				t.Errorf("got %v, want %q", err, c.finding)
			}
		})
	}
}

// TestFlipPublished flips every third byte of each file that belongs to the host's log.
func TestFlipPublished(t *testing.T) {
	w := newWorld(t)
	truth := w.bundle(t, w.one)
	for _, n := range []string{"checkpoint", "since", "consistency", name(6, ".tlog-proof"), "host.pub", name(6, ".manifest")} {
		for at := 0; at < len(truth[n]); at += 3 {
			f := maps.Clone(truth)
			f[n] = bytes.Clone(f[n])
			f[n][at] ^= 0x11
			if _, err := f.verify(t, w.trust()); !errors.Is(err, verdict.ErrDoesNotHold) {
				t.Fatalf("%s, byte %d: %v\n%s", n, at, err, f[n])
			}
		}
	}
}

func lines(b []byte) []string { return strings.SplitAfter(string(b), "\n") }

func dropLine(b []byte, i int) []byte {
	return []byte(strings.Join(slices.Delete(lines(b), i, i+1), ""))
}

func doubleLine(b []byte, i int) []byte {
	all := lines(b)
	return []byte(strings.Join(slices.Insert(all, i, all[i]), ""))
}

func swapLines(b []byte, i, j int) []byte {
	all := lines(b)
	all[i], all[j] = all[j], all[i]
	return []byte(strings.Join(all, ""))
}

// splice combines the index and path of one proof with the entry of another.
func splice(entry, path []byte) []byte {
	return []byte(strings.Join(append(lines(entry)[:2], lines(path)[2:]...), ""))
}

func dropSignature(signed, name string) string {
	all := lines([]byte(signed))
	return strings.Join(slices.DeleteFunc(all, func(l string) bool { return strings.HasPrefix(l, "— "+name+" ") }), "")
}

// moveSignature puts the witness's signature on another checkpoint in place of its own.
func moveSignature(t *testing.T, w *world, signed string) string {
	other := string(w.log.cut(t, 9, w.witness))
	return dropSignature(signed, "witness.example") + other[strings.LastIndex(other, "— "):]
}

// renamed is a signer under another name.
type renamed struct{ note.Signer }

func (renamed) Name() string { return "custody-other" }

// cut signs the log as it was with n entries.
func (l *treeLog) cut(t testing.TB, n int, witnesses ...note.Signer) []byte {
	t.Helper()
	c := &treeLog{signer: l.signer}
	for _, e := range l.entries[:n] {
		c.add(t, e)
	}
	return c.publish(t, witnesses...)
}

// continuation writes the file that proves that the log continues a checkpoint.
func (l *treeLog) continuation(t testing.TB, from, to uint64, checkpoint []byte) []byte {
	t.Helper()
	path, err := l.Consistency(t.Context(), from, to)
	check(t, err)
	var b bytes.Buffer
	b.WriteString("old " + string('0'+rune(from)) + "\n")
	for _, h := range path {
		b.WriteString(base64Of(h) + "\n")
	}
	return append(append(b.Bytes(), '\n'), checkpoint...)
}
