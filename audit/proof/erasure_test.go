package proof_test

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
)

var at = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

func frameOf(t testing.TB, dir string, seq uint64) wal.Frame {
	t.Helper()
	segments, err := wal.Segments(dir)
	check(t, err)
	for _, path := range segments {
		for f, err := range wal.ReadSegment(path) {
			check(t, err)
			if f.Seq == seq {
				return f
			}
		}
	}
	t.Fatal("no seq ", seq)
	return wal.Frame{}
}

// state writes the statement about a record's erasure.
func state(t testing.TB, k key, dir string, seq uint64) statement.Erasure {
	t.Helper()
	e, err := statement.NewErasure(frameOf(t, dir, seq), "request 17 of a data subject", "dpo@example.com", at)
	check(t, err)
	_, err = proof.StateErasure(dir, e, k.signer)
	check(t, err)
	return e
}

func TestErasure(t *testing.T) {
	w := newWorld(t)
	e := state(t, w.key, w.one, 8)
	state(t, w.key, w.one, 9)
	pending := state(t, w.key, w.one, 14)
	check(t, wal.Erase(t.Context(), w.one, 8))
	check(t, wal.Erase(t.Context(), w.one, 9))

	_, err := verifyDir(t, w.one, w.trusted) // whether it is in the log is unknown
	wants(t, err, verdict.ErrCannotBeJudged, verdict.ErrPending, 0)
	if err := proof.WriteBundle(t.Context(), &bytes.Buffer{}, w.one, w.options()); !errors.Is(err, verdict.ErrPending) {
		t.Errorf("a bundle whose erasures are not in the log: %v", err)
	}
	dir, err := proof.OpenDir(w.one)
	check(t, err)
	defer dir.Close()
	dir.Log = w.log
	_, err = proof.Verify(t.Context(), dir, w.trust())
	wants(t, err, verdict.ErrDoesNotHold, verdict.ErrErasureUnlogged, 8)

	w.log.log(t, w.one)
	w.log.publish(t, w.witness)
	truth := w.bundle(t, w.one)
	r, err := truth.verify(t, w.trust())
	check(t, err)
	if len(r.Erasures) != 2 || r.Erasures[0] != e || len(r.Asked) != 1 || r.Asked[0] != pending || r.Records != 15 {
		t.Errorf("erased %+v, asked %+v", r.Erasures, r.Asked)
	}
	for n, data := range truth {
		if bytes.Contains(data, []byte("line 8")) {
			t.Errorf("%s still holds the record", n)
		}
	}

	signed := func(e statement.Erasure, k key) []byte {
		b, err := e.Sign(k.signer)
		check(t, err)
		return b
	}
	file, proofFile := name(8, ".erasure"), name(8, ".erasure.tlog-proof")
	for title, c := range map[string]struct {
		change  func(f files)
		finding *verdict.Finding
	}{
		"no statement":           {func(f files) { delete(f, file); delete(f, proofFile) }, verdict.ErrErasureUndeclared},
		"no proof":               {func(f files) { delete(f, proofFile) }, verdict.ErrNoProof},
		"statement of another":   {func(f files) { f[file] = f[name(9, ".erasure")] }, verdict.ErrErasureMismatch},
		"statements swapped":     {func(f files) { f[file], f[name(9, ".erasure")] = f[name(9, ".erasure")], f[file] }, verdict.ErrErasureMismatch},
		"statement of no record": {func(f files) { x := e; x.Seq = 99; f[name(99, ".erasure")] = signed(x, w.key) }, verdict.ErrErasureMismatch},
		"another leaf":           {func(f files) { x := e; x.Leaf[0]++; f[file] = signed(x, w.key) }, verdict.ErrErasureMismatch},
		"another run":            {func(f files) { x := e; x.Run = "r-two"; f[file] = signed(x, w.key) }, verdict.ErrErasureMismatch},
		"another reason":         {func(f files) { x := e; x.Reason = "none"; f[file] = signed(x, w.key) }, verdict.ErrOtherEntry},
		"a kind that stays":      {func(f files) { x := e; x.Kind = audit.KindGap; f[file] = signed(x, w.key) }, verdict.ErrErasureForbidden},
		"a kind of its own":      {func(f files) { x := pending; x.Kind = audit.KindExec; f[name(14, ".erasure")] = signed(x, w.key) }, verdict.ErrErasureMismatch},
		"another key":            {func(f files) { f[file] = signed(e, newKey(t)) }, verdict.ErrErasureForged},
		"changed":                {func(f files) { f[file] = bytes.Replace(f[file], []byte("17"), []byte("18"), 1) }, verdict.ErrErasureForged},
		"not canonical":          {func(f files) { f[file] = append(f[file], '\n') }, verdict.ErrErasureForged},
		"frame's leaf":           {erasedFrame(t, func(body []byte) { body[0]++ }), verdict.ErrAltered},
		"frame's seq":            {erasedFrame(t, func(body []byte) { body[32] = 9 }), verdict.ErrContradiction},
		"frame's run":            {erasedFrame(t, func(body []byte) { body[41]++ }), verdict.ErrRunMismatch},
		"frame's padding":        {erasedFrame(t, func(body []byte) { body[len(body)-1] = 'x' }), verdict.ErrAltered},
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
	t.Run("an erased record without a statement, in a log", func(t *testing.T) {
		check(t, wal.Erase(t.Context(), w.two, 3))
		_, err := w.bundle(t, w.two).verify(t, w.trust())
		wants(t, err, verdict.ErrDoesNotHold, verdict.ErrErasureUndeclared, 3)
	})
}

// erasedFrame changes the body of the frame of seq 8, the third of its segment, and corrects the checksum.
func erasedFrame(t *testing.T, change func(body []byte)) func(files) {
	return func(f files) {
		data := bytes.Clone(f[name(6, ".seg")])
		at := bytes.Index(data, []byte("CWE1"))
		size := 29 + int(data[at+4]) + int(data[at+5])<<8
		change(data[at+12 : at+size])
		copy(data[at+8:], sumOf(data[at:at+size]))
		f[name(6, ".seg")] = data
	}
}

// TestErasedSwapped exchanges the seqs of two erased frames: their leaves stay in order.
func TestErasedSwapped(t *testing.T) {
	w := newWorld(t)
	for seq := uint64(7); seq <= 8; seq++ {
		state(t, w.key, w.one, seq)
		check(t, wal.Erase(t.Context(), w.one, seq))
	}
	for _, c := range []struct{ seven, eight byte }{{8, 7}, {7, 9}, {6, 8}} {
		dir := clone(t, w.one)
		edit(t, segPath(dir, 6), func(data []byte) []byte {
			for i, seq := range []byte{c.seven, c.eight} {
				at := bytes.Index(data, []byte("CWE1"))
				if i == 1 {
					at = bytes.LastIndex(data, []byte("CWE1"))
				}
				size := 29 + int(data[at+4]) + int(data[at+5])<<8
				data[at+12+32] = seq
				copy(data[at+8:], sumOf(data[at:at+size]))
			}
			return data
		})
		if _, err := verifyDir(t, dir, w.trusted); !errors.Is(err, verdict.ErrDoesNotHold) {
			t.Errorf("seqs %+v: %v", c, err)
		}
	}
}

func TestErasureRefused(t *testing.T) {
	k := newKey(t)
	gap := `{"v":1,"run":"r-craft","seq":1,"time":"2026-01-02T03:04:05Z","observer":"host","kind":"gap","gap":{"stage":"wal","count":1,"cause":"x"}}`
	dir := craft(t, k, func(s *wal.Segment) { s.Losses = wal.Losses{"wal": {Gaps: 1, Events: 1}} }, gap)
	if _, err := statement.NewErasure(frameOf(t, dir, 1), "x", "y", at); !errors.Is(err, statement.ErrNotErasable) {
		t.Errorf("a gap: %v", err)
	}
	run := newRun(t, k, "r-one")
	f := frameOf(t, run, 3)
	if _, err := statement.NewErasure(f, "", "y", at); err == nil {
		t.Error("without a reason")
	}
	e := state(t, k, run, 3)
	first, err := os.ReadFile(filepath.Join(run, name(3, ".erasure")))
	check(t, err)
	e.Reason = "another"
	again, err := proof.StateErasure(run, e, k.signer)
	check(t, err)
	if !bytes.Equal(first, again) {
		t.Error("it was stated twice")
	}
	e.Leaf[3]++
	if _, err := proof.StateErasure(run, e, k.signer); err == nil {
		t.Error("another record under the same seq")
	}
	for _, kind := range []audit.Kind{audit.KindRun, audit.KindStep, audit.KindPolicy, audit.KindGap, audit.KindVM, "novel", ""} {
		if statement.Erasable(kind) {
			t.Errorf("%q can be erased", kind)
		}
	}
	if !statement.Erasable(audit.KindOutput) {
		t.Error("output cannot be erased")
	}
}

// FuzzStatements checks that every text that is parsed is canonical.
func FuzzStatements(f *testing.F) {
	k, next := newKey(f), newKey(f)
	e, err := statement.Erasure{V: 1, Run: "r-one", Seq: 3, Kind: audit.KindOutput, Reason: "x", By: "y", Time: at}.Sign(k.signer)
	check(f, err)
	r, err := statement.NewRotation(k.public, next.public, at)
	check(f, err)
	rotation, err := r.Sign(k.signer)
	check(f, err)
	f.Add(textOf(e))
	f.Add(textOf(rotation))
	f.Add(string(statement.ManifestLeaf("r-one", 3, merkle.Hash{1})))
	f.Add(string(statement.ErasureLeaf("r-one", 3, merkle.Hash{1})))
	f.Add(string(statement.RotationLeaf(merkle.Hash{1})))
	f.Add("host\n17\n" + strings.Repeat("A", 43) + "=\n")
	f.Fuzz(func(t *testing.T, text string) {
		if e, err := statement.ParseErasure(text); err == nil {
			signed, err := e.Sign(k.signer)
			if err == nil && textOf(signed) != text {
				t.Errorf("%q is %q", text, signed)
			}
		}
		if r, err := statement.ParseRotation(text); err == nil {
			signed, err := r.Sign(k.signer)
			if err == nil && textOf(signed) != text {
				t.Errorf("%q is %q", text, signed)
			}
		}
		if l, err := statement.ParseLeaf([]byte(text)); err == nil && l.Of == statement.OfManifest {
			if got := string(statement.ManifestLeaf(l.Run, l.N, l.Digest)); got != text {
				t.Errorf("%q is %q", text, got)
			}
		}
		if c, err := statement.ParseCheckpoint(text); err == nil && c.Origin == "" {
			t.Errorf("%q has no origin", text)
		}
	})
}
