package proof_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
)

// keyIn is the key in a directory.
func keyIn(t testing.TB, dir string) key {
	t.Helper()
	k, err := hostkey.LoadOrCreate(dir)
	check(t, err)
	return keyOf(t, k)
}

func keyOf(t testing.TB, k hostkey.Key) key {
	t.Helper()
	v, err := k.Verifier()
	check(t, err)
	return key{k, k.Public, note.VerifierList(v)}
}

// rotatedWorld has a run from before a rotation of the key and one from after two more rotations.
func rotatedWorld(t *testing.T) (w *world, keys []key, dir string) {
	dir = filepath.Join(t.TempDir(), "keys")
	first := keyIn(t, dir)
	w = &world{key: first, witness: newWitness(t, "witness.example")}
	keys = append(keys, first)
	w.log = &treeLog{signer: first.signer}
	w.log.add(t, []byte("an entry of another time\n"))
	w.before = w.log.publish(t)
	w.one = newRun(t, first, "r-one")
	for range 3 {
		stated, err := hostkey.Rotate(dir)
		check(t, err)
		keys = append(keys, keyIn(t, dir))
		w.log.add(t, statement.RotationLeaf(statement.Digest(stated)))
	}
	w.log.signer = keys[3].signer
	w.two = newRun(t, keys[3], "r-two")
	w.log.log(t, w.one)
	w.log.log(t, w.two)
	w.log.publish(t, w.witness)
	return w, keys, dir
}

func TestRotation(t *testing.T) {
	w, keys, dir := rotatedWorld(t)
	rotations, err := hostkey.ReadRotations(dir)
	check(t, err)
	pack := func(run string, by key) files {
		o := w.options()
		o.HostKey, o.Signer, o.Rotations = by.public, keys[3].signer, rotations
		var b bytes.Buffer
		check(t, proof.WriteBundle(t.Context(), &b, run, o))
		return unpack(t, b.Bytes())
	}
	one, two := pack(w.one, keys[0]), pack(w.two, keys[3])
	wrong := w.options()
	wrong.HostKey, wrong.Signer, wrong.Rotations = keys[3].public, keys[3].signer, rotations
	if err := proof.WriteBundle(t.Context(), &bytes.Buffer{}, w.one, wrong); err == nil {
		t.Error("a bundle names a host key that has not signed the run")
	}
	trust := func(i int) proof.Trust {
		return proof.Trust{Keys: keys[i].trusted, Quorum: 1, Witnesses: w.trust().Witnesses}
	}
	for i := range 4 { // every pinned key leads to the last one
		r, err := two.verify(t, trust(i))
		check(t, err)
		if len(r.Rotations) != 3-i {
			t.Errorf("key %d: %d rotations were of use", i, len(r.Rotations))
		}
	}
	_, err = one.verify(t, trust(0))
	check(t, err)
	_, err = one.verify(t, trust(3)) // the new key does not attest for the old one
	wants(t, err, verdict.ErrCannotBeJudged, verdict.ErrUnknownKey, 0)
	v, err := note.NewVerifier(keys[0].public)
	check(t, err)
	last, err := note.NewVerifier(keys[3].public)
	check(t, err)
	_, err = one.verify(t, proof.Trust{Keys: note.VerifierList(v, last)})
	check(t, err)

	sign := func(old key, next string) []byte {
		r, err := statement.NewRotation(old.public, next, time.Now())
		check(t, err)
		signed, err := r.Sign(old.signer)
		check(t, err)
		return signed
	}
	thief := newKeyNamed(t, keys[0].signer.Name())
	for title, c := range map[string]struct {
		change  func(f files)
		finding *verdict.Finding
	}{
		"dropped":       {func(f files) { delete(f, name(2, ".rotation")); delete(f, name(2, ".rotation.tlog-proof")) }, verdict.ErrUnknownKey},
		"proof dropped": {func(f files) { delete(f, name(2, ".rotation.tlog-proof")) }, verdict.ErrNoProof},
		"changed": {func(f files) {
			f[name(1, ".rotation")] = bytes.Replace(f[name(1, ".rotation")], []byte(`"time":"2`), []byte(`"time":"1`), 1)
		}, verdict.ErrRotationForged},
		"by a thief":            {func(f files) { f[name(1, ".rotation")] = sign(thief, keys[1].public) }, verdict.ErrUnknownKey},
		"signed by another":     {func(f files) { f[name(1, ".rotation")] = resignAs(t, f[name(1, ".rotation")], thief) }, verdict.ErrRotationForged},
		"a second successor":    {func(f files) { f[name(4, ".rotation")] = sign(keys[0], thief.public) }, verdict.ErrRotationForked},
		"one that is not in it": {func(f files) { f[name(4, ".rotation")] = sign(keys[3], thief.public) }, verdict.ErrNoProof},
		"comes twice": {func(f files) {
			f[name(4, ".rotation")], f[name(4, ".rotation.tlog-proof")] = f[name(3, ".rotation")], f[name(3, ".rotation.tlog-proof")]
		}, verdict.ErrStray},
		"renumbered": {func(f files) { f[name(7, ".rotation")] = f[name(1, ".rotation")]; delete(f, name(1, ".rotation")) }, verdict.ErrStray},
	} {
		t.Run(title, func(t *testing.T) {
			f := maps.Clone(two)
			c.change(f)
			_, err := f.verify(t, trust(0))
			var v *verdict.Verdict
			if !errors.As(err, &v) || v.Finding != c.finding {
				t.Errorf("got %v, want %q", err, c.finding)
			}
		})
	}
	t.Run("the thief has a whole run", func(t *testing.T) {
		l := &treeLog{signer: thief.signer}
		run := newRun(t, thief, "r-three")
		l.log(t, run)
		l.publish(t)
		var b bytes.Buffer
		check(t, proof.WriteBundle(t.Context(), &b, run, proof.BundleOptions{HostKey: thief.public, Signer: thief.signer, Log: l}))
		_, err := verifyBytes(t, b.Bytes(), proof.Trust{Keys: keys[0].trusted})
		wants(t, err, verdict.ErrCannotBeJudged, verdict.ErrUnknownKey, 0)
	})
}

// TestRetired: a retired key signs a run that began long after its retirement.
func TestRetired(t *testing.T) {
	old, next := newKey(t), newKey(t)
	l := &treeLog{signer: old.signer}
	for _, c := range []struct {
		age     time.Duration
		finding *verdict.Finding
	}{{time.Minute, nil}, {-time.Hour, nil}, {time.Hour, verdict.ErrRetired}} {
		r, err := statement.NewRotation(old.public, next.public, time.Now().Add(-c.age))
		check(t, err)
		stated, err := r.Sign(old.signer)
		check(t, err)
		l.add(t, statement.RotationLeaf(statement.Digest(stated)))
		run := newRun(t, old, "r-one")
		l.log(t, run)
		l.publish(t)
		var b bytes.Buffer
		o := proof.BundleOptions{HostKey: old.public, Signer: old.signer, Log: l, Rotations: [][]byte{stated}}
		check(t, proof.WriteBundle(context.Background(), &b, run, o))
		_, err = verifyBytes(t, b.Bytes(), proof.Trust{Keys: old.trusted})
		if c.finding == nil {
			check(t, err)
			continue
		}
		wants(t, err, verdict.ErrDoesNotHold, c.finding, 0)
	}
}

// TestTwoKeysOneRun: a run whose process died is closed after a rotation.
func TestTwoKeysOneRun(t *testing.T) {
	w, keys, _ := rotatedWorld(t)
	dir := clone(t, w.one)
	resign(t, manifestPath(dir, 11), keys[1], func(s string) string { return s })
	_, err := verifyDir(t, dir, keys[0].trusted)
	wants(t, err, verdict.ErrDoesNotHold, verdict.ErrForged, 0)
	e, err := proof.OpenDir(dir)
	check(t, err)
	defer e.Close()
	r, err := statement.NewRotation(keys[0].public, keys[1].public, time.Now())
	check(t, err)
	stated, err := r.Sign(keys[0].signer)
	check(t, err)
	e.Rotations = [][]byte{stated}
	_, err = proof.Verify(t.Context(), e, proof.Trust{Keys: keys[0].trusted})
	check(t, err)
}

// resignAs replaces the signature of a signed note by another key's.
func resignAs(t testing.TB, signed []byte, k key) []byte {
	t.Helper()
	out, err := note.Sign(&note.Note{Text: textOf(signed)}, k.signer)
	check(t, err)
	return out
}
