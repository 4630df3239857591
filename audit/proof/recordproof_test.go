package proof_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
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

// evidence opens a run of the test's host with the host's log.
func (w *world) evidence(t testing.TB, dir string) *proof.Evidence {
	t.Helper()
	e, err := proof.OpenDir(dir)
	check(t, err)
	t.Cleanup(func() { e.Close() })
	e.Log, e.HostKey = w.log, w.public
	return e
}

// proofOf makes a proof and encodes and parses it.
func proofOf(t testing.TB, e *proof.Evidence, seq uint64) proof.RecordProof {
	t.Helper()
	p, err := proof.ProofOf(t.Context(), e, seq)
	check(t, err)
	data, err := p.Encode()
	check(t, err)
	again, err := proof.ParseRecordProof(data)
	check(t, err)
	return again
}

func (w *world) recordTrust() proof.Trust {
	return proof.Trust{Keys: w.trusted, Witnesses: []note.Verifier{w.witness.verifier}, Quorum: 1}
}

// TestRecordProof proves each record of a run, from its directory and from a bundle.
func TestRecordProof(t *testing.T) {
	w := newWorld(t)
	packed, err := openBytes(t, w.bundle(t, w.one).pack(t))
	check(t, err)
	defer packed.Close()
	dir := w.evidence(t, w.one)
	for seq := uint64(1); seq <= 15; seq++ {
		p := proofOf(t, dir, seq)
		r, err := p.Verify(w.recordTrust())
		check(t, err)
		if r.Seq != seq || r.Run != "r-one" || r.Kind != "output" || r.State != proof.StateLogged || len(r.Log.Witnesses) != 1 || r.KeyName != "custody-test" {
			t.Errorf("%+v", r)
		}
		other := proofOf(t, packed, seq)
		a, _ := json.Marshal(p)
		b, _ := json.Marshal(other)
		if !bytes.Equal(a, b) {
			t.Errorf("seq %d: the bundle gives another proof", seq)
		}
		if !bytes.Contains(p.Record, []byte("line ")) {
			t.Errorf("%s", p.Record)
		}
	}
	for _, seq := range []uint64{0, 16, 1 << 60} {
		_, err := proof.ProofOf(t.Context(), dir, seq)
		wants(t, err, verdict.ErrCannotBeJudged, verdict.ErrNoEvidence, 0)
	}
}

// TestRecordProofStates follows a record from its writing into the host's log.
func TestRecordProofStates(t *testing.T) {
	k := newKey(t)
	w := &world{key: k, log: &treeLog{signer: k.signer}, witness: newWitness(t, "witness.example")}
	dir := filepath.Join(t.TempDir(), "r-live")
	l, err := wal.Create(dir, wal.Options{Run: "r-live", Sealer: statement.NewSealer(k.signer, facts), SegmentAge: time.Hour})
	check(t, err)
	for range 3 {
		_, err := l.Append(t.Context(), output(t, "line <&>"))
		check(t, err)
	}
	check(t, l.Sync(t.Context(), 3))
	e := w.evidence(t, dir)
	state := func(want proof.State, finding error) {
		t.Helper()
		p := proofOf(t, e, 2)
		if p.State != want {
			t.Errorf("state %s, want %s", p.State, want)
		}
		_, err := p.Verify(w.recordTrust())
		if finding == nil {
			check(t, err)
			return
		}
		wants(t, err, verdict.ErrCannotBeJudged, finding, 0)
	}
	state(proof.StateOpen, verdict.ErrLive)
	check(t, l.Rotate(t.Context()))
	_, err = l.Append(t.Context(), output(t, "behind it"))
	check(t, err)
	check(t, l.Sync(t.Context(), 4))
	state(proof.StateSealed, verdict.ErrPending)
	w.log.publish(t, w.witness)
	state(proof.StateSealed, verdict.ErrPending)
	w.log.log(t, dir)
	state(proof.StateSealed, verdict.ErrPending)
	w.log.publish(t, w.witness)
	state(proof.StateLogged, nil)
	if p := proofOf(t, e, 4); p.State != proof.StateOpen {
		t.Errorf("seq 4: %s", p.State)
	}
	check(t, l.Close(t.Context(), wal.Sealed))
}

// TestRecordProofErased: of an erased record, the leaf and the statement stay.
func TestRecordProofErased(t *testing.T) {
	w := newWorld(t)
	stated := eraseRecord(t, w, 7)
	e := w.evidence(t, w.one)
	p := proofOf(t, e, 7)
	r, err := p.Verify(w.recordTrust())
	check(t, err)
	if r.Erased == nil || r.Erased.Seq != 7 || len(p.Record) > 0 || len(p.Salt) > 0 || p.Erasure.Note != string(stated) {
		t.Errorf("%+v", r)
	}
	for name, c := range map[string]struct {
		change  func(*proof.RecordProof)
		finding error
		seq     uint64
	}{
		"statement of another": {func(p *proof.RecordProof) {
			p.Erasure.Note = strings.Replace(p.Erasure.Note, `"seq":7`, `"seq":8`, 1)
		}, verdict.ErrErasureForged, 0},
		"not logged":            {func(p *proof.RecordProof) { p.Erasure.Log = nil }, verdict.ErrErasureUnlogged, 7},
		"other place":           {func(p *proof.RecordProof) { p.Erasure.Log.Index-- }, verdict.ErrNotIncluded, 0},
		"other leaf":            {func(p *proof.RecordProof) { p.Leaf[0]++ }, verdict.ErrAltered, 7},
		"no longer stated":      {func(p *proof.RecordProof) { p.Erasure = nil }, verdict.ErrProofMalformed, 7},
		"leaf of the neighbour": {func(p *proof.RecordProof) { p.Leaf, p.Segment = proofOf(t, e, 8).Leaf, proofOf(t, e, 8).Segment }, verdict.ErrReordered, 7},
		"statement about another leaf": {func(p *proof.RecordProof) {
			other := *r.Erased
			other.Leaf[0]++
			signed, err := other.Sign(w.signer)
			check(t, err)
			p.Erasure.Note = string(signed)
		}, verdict.ErrErasureMismatch, 7},
	} {
		p := proofOf(t, e, 7)
		c.change(&p)
		_, err := p.Verify(w.recordTrust())
		t.Run(name, func(t *testing.T) { wants(t, err, verdict.ErrDoesNotHold, c.finding, c.seq) })
	}
	check(t, os.Remove(filepath.Join(w.one, statement.ErasureName(7))))
	_, err = proof.ProofOf(t.Context(), e, 7)
	wants(t, err, verdict.ErrDoesNotHold, verdict.ErrErasureUndeclared, 7)
}

// TestRecordProofTampered changes each part of a valid document.
func TestRecordProofTampered(t *testing.T) {
	w, stranger := newWorld(t), newKey(t)
	e := w.evidence(t, w.one)
	other := w.evidence(t, w.two)
	for name, c := range map[string]struct {
		change  func(*proof.RecordProof)
		finding error
		seq     uint64
	}{
		"record":       {func(p *proof.RecordProof) { p.Record[len(p.Record)-4]++ }, verdict.ErrAltered, 7},
		"salt":         {func(p *proof.RecordProof) { p.Salt[0]++ }, verdict.ErrAltered, 7},
		"short salt":   {func(p *proof.RecordProof) { p.Salt = p.Salt[:15] }, verdict.ErrProofMalformed, 7},
		"no record":    {func(p *proof.RecordProof) { p.Record = nil }, verdict.ErrProofMalformed, 7},
		"leaf":         {func(p *proof.RecordProof) { p.Leaf[5]++ }, verdict.ErrAltered, 7},
		"seq":          {func(p *proof.RecordProof) { p.Seq++ }, verdict.ErrRunMismatch, 8},
		"run":          {func(p *proof.RecordProof) { p.Run = "r-two" }, verdict.ErrRunMismatch, 7},
		"path":         {func(p *proof.RecordProof) { p.Segment.Path[1][3]++ }, verdict.ErrAltered, 7},
		"longer path":  {func(p *proof.RecordProof) { p.Segment.Path = append(p.Segment.Path, merkle.Hash{1}) }, verdict.ErrAltered, 7},
		"shorter path": {func(p *proof.RecordProof) { p.Segment.Path = p.Segment.Path[:1] }, verdict.ErrAltered, 7},
		"place":        {func(p *proof.RecordProof) { p.Segment.Index++ }, verdict.ErrAltered, 7},
		"record of another": {func(p *proof.RecordProof) {
			q := proofOf(t, other, 7)
			p.Record, p.Salt, p.Leaf = q.Record, q.Salt, q.Leaf
		}, verdict.ErrRunMismatch, 7},
		"manifest": {func(p *proof.RecordProof) {
			p.Manifest.Note = strings.Replace(p.Manifest.Note, `"count":5`, `"count":4`, 1)
		}, verdict.ErrForged, 0},
		"manifest of another segment": {func(p *proof.RecordProof) { p.Manifest = proofOf(t, e, 1).Manifest }, verdict.ErrContradiction, 7},
		"manifest of another run":     {func(p *proof.RecordProof) { p.Manifest = proofOf(t, other, 7).Manifest }, verdict.ErrRunMismatch, 0},
		"checkpoint":                  {func(p *proof.RecordProof) { p.Checkpoint = strings.Replace(p.Checkpoint, "\n11\n", "\n12\n", 1) }, verdict.ErrCheckpoint, 0},
		"earlier checkpoint":          {func(p *proof.RecordProof) { p.Checkpoint = string(w.before) }, verdict.ErrQuorum, 0},
		"cosignature cut":             {func(p *proof.RecordProof) { p.Checkpoint = p.Checkpoint[:strings.Index(p.Checkpoint, "— witness")] }, verdict.ErrQuorum, 0},
		"log's path":                  {func(p *proof.RecordProof) { p.Manifest.Log.Path[0][0]++ }, verdict.ErrNotIncluded, 0},
		"log's place":                 {func(p *proof.RecordProof) { p.Manifest.Log.Index++ }, verdict.ErrNotIncluded, 0},
		"no place":                    {func(p *proof.RecordProof) { p.Manifest.Log = nil }, verdict.ErrProofMalformed, 7},
		"host's key":                  {func(p *proof.RecordProof) { p.HostKey = stranger.public }, verdict.ErrHostKey, 0},
		"state":                       {func(p *proof.RecordProof) { p.State = "proven" }, verdict.ErrProofMalformed, 7},
		"state too low":               {func(p *proof.RecordProof) { p.State = proof.StateSealed }, verdict.ErrProofMalformed, 7},
		"rule":                        {func(p *proof.RecordProof) { p.LeafRule = "none" }, verdict.ErrProofMalformed, 7},
		"version":                     {func(p *proof.RecordProof) { p.V = 2 }, verdict.ErrProofMalformed, 7},
	} {
		t.Run(name, func(t *testing.T) {
			p := proofOf(t, e, 7)
			c.change(&p)
			_, err := p.Verify(w.recordTrust())
			wants(t, err, verdict.ErrDoesNotHold, c.finding, c.seq)
		})
	}
	p := proofOf(t, e, 7)
	_, err := p.Verify(proof.Trust{Keys: stranger.trusted})
	wants(t, err, verdict.ErrCannotBeJudged, verdict.ErrUnknownKey, 0)
	_, err = p.Verify(proof.Trust{Keys: w.trusted, Since: w.before})
	wants(t, err, verdict.ErrDoesNotHold, verdict.ErrNoConsistency, 0)
	_, err = p.Verify(proof.Trust{Keys: w.trusted, Stamped: true})
	wants(t, err, verdict.ErrDoesNotHold, verdict.ErrNoStamp, 0)
}

// TestProofOfTampered: a segment that was altered gives no proof but a finding.
func TestProofOfTampered(t *testing.T) {
	w := newWorld(t)
	e := w.evidence(t, w.one)
	reframe(t, segPath(w.one, 6), func(fs []frame) []frame { return fs[1:] })
	_, err := proof.ProofOf(t.Context(), e, 7)
	wants(t, err, verdict.ErrDoesNotHold, verdict.ErrMissing, 6)
	if _, err := proofOf(t, e, 2).Verify(w.recordTrust()); err != nil {
		t.Error("another segment's record:", err)
	}
	check(t, os.Remove(segPath(w.one, 6)))
	_, err = proof.ProofOf(t.Context(), e, 7)
	wants(t, err, verdict.ErrDoesNotHold, verdict.ErrSegmentMissing, 6)
}

// FuzzRecordProof: only the true document verifies.
func FuzzRecordProof(f *testing.F) {
	w := newWorld(f)
	eraseRecord(f, w, 8)
	e := w.evidence(f, w.one)
	truth := map[uint64][]byte{}
	for _, seq := range []uint64{7, 8} {
		p := proofOf(f, e, seq)
		compact, err := p.Encode()
		check(f, err)
		truth[seq] = compact
		f.Add(compact)
	}
	f.Add([]byte(`{"type":"custody record proof","v":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := proof.ParseRecordProof(data)
		if err != nil {
			var v *verdict.Verdict
			if !errors.As(err, &v) || v.Finding != verdict.ErrProofMalformed {
				t.Errorf("%v", err)
			}
			return
		}
		if _, err := p.Verify(w.recordTrust()); err != nil {
			return
		}
		p.HostKey, p.Rotations, p.Stamp = w.public, nil, nil
		again, err := p.Encode()
		check(t, err)
		if !bytes.Equal(again, truth[p.Seq]) {
			t.Errorf("it holds: %s", again)
		}
	})
}

func BenchmarkProofOf(b *testing.B) {
	k := newKey(b)
	dir, _ := busyRun(b, k, 100_000)
	w := &world{key: k, log: &treeLog{signer: k.signer}}
	w.log.log(b, dir)
	w.log.publish(b)
	e := w.evidence(b, dir)
	var p proof.RecordProof
	b.Run("make", func(b *testing.B) {
		for b.Loop() {
			var err error
			p, err = proof.ProofOf(b.Context(), e, 50_000)
			check(b, err)
		}
	})
	b.Run("verify", func(b *testing.B) {
		for b.Loop() {
			_, err := p.Verify(proof.Trust{Keys: k.trusted})
			check(b, err)
		}
	})
}

// eraseRecord erases a record of the first run, with its statement in the log.
func eraseRecord(t testing.TB, w *world, seq uint64) (stated []byte) {
	t.Helper()
	state(t, w.key, w.one, seq)
	check(t, wal.Erase(t.Context(), w.one, seq))
	w.log.log(t, w.one)
	w.log.publish(t, w.witness)
	stated, err := os.ReadFile(filepath.Join(w.one, statement.ErasureName(seq)))
	check(t, err)
	return stated
}
