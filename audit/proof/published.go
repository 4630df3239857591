package proof

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
)

// published checks what the host's log says of the run: checkpoint, witnesses, time stamp,
// what went before, and that everything signed stands in the tree.
func (v *verifier) published(ctx context.Context) error {
	src, err := v.source()
	if src == nil || err != nil {
		return err
	}
	c, err := v.checkpoint(ctx, src)
	if err != nil || c.note == nil {
		return err
	}
	for _, check := range []func(context.Context, source, signedCheckpoint) error{
		v.since, v.stamped, v.includeRotations, v.includeManifests, v.includeErasures, v.backdated, v.timely,
	} {
		if err := check(ctx, src, c); err != nil {
			return err
		}
	}
	return nil
}

// source returns the source of proofs; nil if there are none and none are needed.
func (v *verifier) source() (source, error) {
	switch {
	case v.evidence.Log != nil:
		return fromLog{v.evidence}, nil
	case v.evidence.bundle:
		return fromFiles{v.evidence}, nil
	case len(v.report.Erasures) > 0:
		v.doubt(verdict.Open(verdict.ErrPending, "", "records were erased, and there is no log that could say so"))
	}
	return nil, nil
}

// checkpoint opens the checkpoint and counts the witnesses.
func (v *verifier) checkpoint(ctx context.Context, src source) (signedCheckpoint, error) {
	signed, err := src.checkpoint(ctx)
	switch {
	case err != nil:
		return signedCheckpoint{}, err
	case signed == nil && v.evidence.bundle && v.trust.Unlogged:
		return signedCheckpoint{}, v.unlogged()
	case signed == nil && v.evidence.bundle:
		return signedCheckpoint{}, verdict.Broken(verdict.ErrNoCheckpoint, 0, checkpointFile, "")
	case signed == nil:
		v.report.Published = &Published{Tail: v.report.Records}
		v.pending()
		return signedCheckpoint{}, nil
	}
	c, n, err := v.openCheckpoint(checkpointFile, signed, v.ring)
	if err != nil {
		return signedCheckpoint{}, err
	}
	v.report.Published = &Published{Checkpoint: c}
	return signedCheckpoint{c, signed}, v.quorum(n)
}

// unlogged accepts a bundle without a checkpoint, if it has nothing that needs one.
func (v *verifier) unlogged() error {
	for _, name := range []string{stampFile, sinceFile, consistencyFile} {
		data, err := (fromFiles{v.evidence}).file(name, maxProof)
		if err != nil {
			return err
		}
		if data != nil {
			return verdict.Broken(verdict.ErrNoCheckpoint, 0, checkpointFile, "there is a file %s", name)
		}
	}
	if len(v.witnessedFiles()) > 0 {
		return verdict.Broken(verdict.ErrNoCheckpoint, 0, checkpointFile, "there are earlier checkpoints")
	}
	switch {
	case len(v.report.Erasures) > 0 || len(v.rotations) > 0 || v.trust.Quorum > 0 || v.trust.Stamped || v.trust.Since != nil:
		return verdict.Broken(verdict.ErrNoCheckpoint, 0, checkpointFile, "erasures, rotations, witnesses and time stamps need it")
	}
	return nil
}

// pending notes that a closed run's end is not under a checkpoint yet.
func (v *verifier) pending() {
	if v.report.Closing != wal.Open {
		v.doubt(verdict.Open(verdict.ErrPending, "", "%d records are younger than it", v.report.Published.Tail))
	}
}

// openCheckpoint checks that a key of the host's signed it. The note has the signatures of
// witnesses that are trusted.
func (v *verifier) openCheckpoint(file string, signed []byte, host note.Verifiers) (statement.Checkpoint, *note.Note, error) {
	witnesses := witnesses{host, v.trust.Witnesses}
	n, err := statement.OpenNote(signed, witnesses)
	var unknown *note.UnverifiedNoteError
	var invalid *note.InvalidSignatureError
	switch {
	case errors.As(err, &unknown):
		n = unknown.Note
	case errors.As(err, &invalid) && witnesses.has(keyID{invalid.Name, invalid.Hash}):
		return statement.Checkpoint{}, nil, verdict.Broken(verdict.ErrCosignature, 0, file, "%s", invalid.Name)
	case err != nil:
		return statement.Checkpoint{}, nil, verdict.Broken(verdict.ErrCheckpoint, 0, file, "%v", err)
	}
	c, err := statement.ParseCheckpoint(n.Text)
	if err != nil {
		return c, nil, verdict.Broken(verdict.ErrCheckpoint, 0, file, "%v", err)
	}
	if c.Origin != v.host {
		return c, nil, verdict.Broken(verdict.ErrOtherLog, 0, file, "it is of %.200q, the run of %s", c.Origin, v.host)
	}
	own := func(s note.Signature) bool { return s.Name == v.host && !witnesses.has(keyID{s.Name, s.Hash}) }
	if !slices.ContainsFunc(n.Sigs, own) {
		return c, nil, verdict.Broken(verdict.ErrCheckpoint, 0, file, "no key of %s that is trusted here signed it", v.host)
	}
	return c, n, nil
}

// witnesses are the keys that may stand under a checkpoint: the host's and the witnesses'.
type witnesses struct {
	host note.Verifiers
	list []note.Verifier
}

func (w witnesses) has(k keyID) bool {
	return slices.ContainsFunc(w.list, func(v note.Verifier) bool { return idOf(v) == k })
}

// Verifier implements note.Verifiers.
func (w witnesses) Verifier(name string, hash uint32) (note.Verifier, error) {
	for _, v := range w.list {
		if v.Name() == name && v.KeyHash() == hash {
			return v, nil
		}
	}
	return w.host.Verifier(name, hash)
}

// quorum counts the witnesses, each key once. The host's own do not count.
func (v *verifier) quorum(n *note.Note) error {
	w := witnesses{v.ring, v.trust.Witnesses}
	p := v.report.Published
	for _, s := range n.Sigs {
		if w.has(keyID{s.Name, s.Hash}) && !v.ring.knows(keyID{s.Name, s.Hash}) {
			p.Witnesses = append(p.Witnesses, s.Name)
		}
	}
	if len(p.Witnesses) >= v.trust.Quorum {
		return nil
	}
	var others []string
	for _, s := range n.UnverifiedSigs {
		others = append(others, s.Name)
	}
	if len(others) > 0 {
		return verdict.Broken(verdict.ErrUnknownWitness, 0, checkpointFile, "%d of the %d that are needed; unknown here: %.200s",
			len(p.Witnesses), v.trust.Quorum, strings.Join(others, ", "))
	}
	return verdict.Broken(verdict.ErrQuorum, 0, checkpointFile, "%d of the %d that are needed", len(p.Witnesses), v.trust.Quorum)
}

// since checks that the log went on from the earlier checkpoints, the verifier's own and the one that came with the
// evidence. The latter may be signed by a key that is not trusted here any more; it then only has to be what that key
// signed.
func (v *verifier) since(ctx context.Context, src source, c signedCheckpoint) error {
	brought, err := src.since()
	if err != nil {
		return err
	}
	if brought != nil {
		if _, err := v.goesOn(ctx, src, sinceFile, brought, oldKeys{v.ring}, c); err != nil {
			return err
		}
		if err := v.idleProof(ctx, src, brought, c); err != nil {
			return err
		}
	}
	if v.trust.Since == nil {
		return nil
	}
	n, err := v.goesOn(ctx, src, "the checkpoint that was kept", v.trust.Since, v.ring, c)
	if err == nil {
		v.report.Published.SinceTime, _ = v.cosignedAt(n)
	}
	return err
}

// idleProof checks the proof of consistency that came with an earlier checkpoint, where there is nothing to prove.
func (v *verifier) idleProof(ctx context.Context, src source, brought []byte, c signedCheckpoint) error {
	old, err := statement.ReadCheckpoint(brought)
	if err != nil || old.Size > 0 && old.Size < c.Size {
		return err
	}
	path, err := src.continues(ctx, old.Size, c)
	if err == nil && len(path) > 0 {
		err = verdict.Broken(verdict.ErrProofMalformed, 0, consistencyFile, "it has %d hashes, none are needed", len(path))
	}
	return err
}

// oldKeys are a ring and the keys that it only knows the names of.
type oldKeys struct{ *ring }

// Verifier implements note.Verifiers.
func (o oldKeys) Verifier(name string, hash uint32) (note.Verifier, error) {
	if v, ok := o.named[keyID{name, hash}]; ok {
		return v, nil
	}
	return o.ring.Verifier(name, hash)
}

func (v *verifier) goesOn(ctx context.Context, src source, file string, signed []byte, keys note.Verifiers, c signedCheckpoint) (*note.Note, error) {
	old, n, err := v.openCheckpoint(file, signed, keys)
	if err == nil {
		err = v.continues(ctx, src, old, c)
	}
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(n.Sigs, func(s note.Signature) bool { return v.ring.knows(keyID{s.Name, s.Hash}) }) {
		v.report.Published.Since = old.Size
	}
	return n, nil
}

func (v *verifier) continues(ctx context.Context, src source, old statement.Checkpoint, c signedCheckpoint) error {
	switch {
	case old.Size > c.Size:
		return verdict.Broken(verdict.ErrRolledBack, 0, checkpointFile, "it has %d entries, there were %d", c.Size, old.Size)
	case old.Size == c.Size && old.Root != c.Root:
		return verdict.Broken(verdict.ErrForked, 0, checkpointFile, "two trees of %d entries have different roots", c.Size)
	case old.Size == c.Size, old.Size == 0:
		return nil
	}
	path, err := src.continues(ctx, old.Size, c)
	if err != nil {
		return err
	}
	if !merkle.VerifyConsistency(old.Size, c.Size, path, old.Root, c.Root) {
		return verdict.Broken(verdict.ErrForked, 0, consistencyFile, "a tree of %d entries does not continue that of %d which was kept", c.Size, old.Size)
	}
	return nil
}

// include checks that an entry stands in the tree.
func (v *verifier) include(ctx context.Context, src source, name string, entry []byte, c signedCheckpoint) error {
	_, err := v.place(ctx, src, name, entry, c)
	return err
}

// place is include, and returns where in the tree the entry stands.
func (v *verifier) place(ctx context.Context, src source, name string, entry []byte, c signedCheckpoint) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	p, err := src.include(ctx, name, entry, c)
	if err != nil {
		return 0, err
	}
	if !merkle.VerifyInclusion(statement.LogHash(entry), p.index, c.Size, p.path, c.Root) {
		return 0, verdict.Broken(verdict.ErrNotIncluded, 0, name+proofSuffix, "entry %d of %d", p.index, c.Size)
	}
	return p.index, nil
}

func (v *verifier) includeManifests(ctx context.Context, src source, c signedCheckpoint) error {
	p := v.report.Published
	for i, m := range v.manifests {
		name := strings.TrimSuffix(m.file, wal.ManifestSuffix)
		index, err := v.place(ctx, src, name, statement.ManifestLeaf(m.Run, m.Segment, m.digest), c)
		switch {
		case err == errTail:
			p.Tail += m.Count
			v.tail = cmp.Or(v.tail, m.file)
		case err != nil:
			return err
		case v.tail != "":
			return verdict.Broken(verdict.ErrUnlogged, 0, v.tail, "%s is", m.file)
		default:
			v.manifests[i].logged, v.manifests[i].index = true, index
			p.Covered += m.Count
		}
	}
	if v.tail != "" {
		v.pending()
	}
	return nil
}

func (v *verifier) includeRotations(ctx context.Context, src source, c signedCheckpoint) error {
	for _, s := range v.rotations {
		err := v.include(ctx, src, s.file, statement.RotationLeaf(s.digest), c)
		if err == errTail {
			err = verdict.Broken(verdict.ErrRotationUnlogged, 0, s.file, "")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (v *verifier) includeErasures(ctx context.Context, src source, c signedCheckpoint) error {
	for _, seq := range v.erasureSeqs() {
		s := v.erasures[seq]
		index, err := v.place(ctx, src, s.file, statement.ErasureLeaf(s.Run, s.Seq, s.digest), c)
		s.logged, s.index = err == nil, index
		if err == errTail && !s.done {
			continue // stated a moment ago, not carried out
		}
		if err == errTail {
			err = verdict.Broken(verdict.ErrErasureUnlogged, seq, s.file, "")
		}
		if err != nil {
			return err
		}
	}
	return nil
}
