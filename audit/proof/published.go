package proof

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
)

// logCheck checks a run against the host's log, with proofs from one source.
type logCheck struct {
	v         *verifier
	src       source
	witnesses witnesses
	stamps    authorities
	cp        signedCheckpoint // the one that must cover all entries
	tail      string           // the first manifest that it does not cover
}

func (v *verifier) log(src source) *logCheck {
	return &logCheck{
		v: v, src: src, stamps: authorities{v.trust.Authorities},
		witnesses: witnesses{v.host, v.ring, v.trust.Witnesses, v.trust.Quorum},
	}
}

// published checks the host's log: checkpoint, witnesses, time stamp,
// earlier checkpoints, and that the tree has an entry for everything that is signed.
func (v *verifier) published(ctx context.Context) error {
	if src := v.source(); src != nil {
		return v.log(src).check(ctx)
	}
	return nil
}

func (l *logCheck) check(ctx context.Context) error {
	if err := l.checkpoint(ctx); err != nil || l.cp.note == nil {
		return err
	}
	for _, check := range []func(context.Context) error{
		l.since, l.stamped, l.includeRotations, l.includeManifests, l.includeErasures, l.backdated, l.timely,
	} {
		if err := check(ctx); err != nil {
			return err
		}
	}
	return nil
}

// source returns the source of proofs; nil if there is none and none is needed.
func (v *verifier) source() source {
	switch {
	case v.evidence.Log != nil:
		return fromLog{v.evidence}
	case v.evidence.bundle:
		return fromFiles{v.evidence}
	case len(v.report.Erasures) > 0:
		v.doubt(verdict.Open(verdict.ErrPending, "", "records were erased, and there is no log that could say so"))
	}
	return nil
}

// checkpoint opens the checkpoint and counts the witnesses. It leaves l.cp zero if none is needed.
func (l *logCheck) checkpoint(ctx context.Context) error {
	signed, err := l.src.checkpoint(ctx)
	switch {
	case err != nil:
		return err
	case signed == nil && l.v.evidence.bundle && l.v.trust.Unlogged:
		return l.unlogged()
	case signed == nil && l.v.evidence.bundle:
		return verdict.Broken(verdict.ErrNoCheckpoint, 0, checkpointFile, "")
	case signed == nil:
		l.v.report.Published = &Published{Tail: l.v.report.Records}
		l.pending()
		return nil
	}
	c, n, err := l.witnesses.open(checkpointFile, signed, l.v.ring)
	if err != nil {
		return err
	}
	l.cp = signedCheckpoint{c, signed}
	l.v.report.Published = &Published{Checkpoint: c}
	l.v.report.Published.Witnesses, err = l.witnesses.enough(n)
	return err
}

// unlogged accepts a bundle without a checkpoint if it has nothing that needs one.
func (l *logCheck) unlogged() error {
	for _, name := range []string{stampFile, sinceFile, consistencyFile} {
		data, err := (fromFiles{l.v.evidence}).file(name, maxProof)
		if err != nil {
			return err
		}
		if data != nil {
			return verdict.Broken(verdict.ErrNoCheckpoint, 0, checkpointFile, "there is a file %s", name)
		}
	}
	if len(l.v.witnessedFiles()) > 0 {
		return verdict.Broken(verdict.ErrNoCheckpoint, 0, checkpointFile, "there are earlier checkpoints")
	}
	switch {
	case len(l.v.report.Erasures) > 0 || len(l.v.rotations) > 0 || l.v.trust.Quorum > 0 || l.v.trust.Stamped || l.v.trust.Since != nil:
		return verdict.Broken(verdict.ErrNoCheckpoint, 0, checkpointFile, "erasures, rotations, witnesses and time stamps need it")
	}
	return nil
}

// pending records that no checkpoint covers the end of a closed run yet.
func (l *logCheck) pending() {
	if l.v.report.Closing != wal.Open {
		l.v.doubt(verdict.Open(verdict.ErrPending, "", "%d records are younger than it", l.v.report.Published.Tail))
	}
}

// since checks that the log continues the earlier checkpoints, the verifier's and the one in the
// evidence. The latter may be signed by a key that is no longer trusted; then only that key's signature
// is checked.
func (l *logCheck) since(ctx context.Context) error {
	brought, err := l.src.since()
	if err != nil {
		return err
	}
	if brought != nil {
		if _, err := l.goesOn(ctx, sinceFile, brought, oldKeys{l.v.ring}); err != nil {
			return err
		}
		if err := l.idleProof(ctx, brought); err != nil {
			return err
		}
	}
	if l.v.trust.Since == nil {
		return nil
	}
	n, err := l.goesOn(ctx, "the checkpoint that was kept", l.v.trust.Since, l.v.ring)
	if err == nil {
		l.v.report.Published.SinceTime, _ = l.witnesses.cosignedAt(n)
	}
	return err
}

// idleProof checks the proof of consistency of an earlier checkpoint that needs none.
func (l *logCheck) idleProof(ctx context.Context, brought []byte) error {
	old, err := statement.ReadCheckpoint(brought)
	if err != nil || old.Size > 0 && old.Size < l.cp.Size {
		return err
	}
	path, err := l.src.continues(ctx, old.Size, l.cp)
	if err == nil && len(path) > 0 {
		err = verdict.Broken(verdict.ErrProofMalformed, 0, consistencyFile, "it has %d hashes, none are needed", len(path))
	}
	return err
}

func (l *logCheck) goesOn(ctx context.Context, file string, signed []byte, keys note.Verifiers) (*note.Note, error) {
	old, n, err := l.witnesses.open(file, signed, keys)
	if err == nil {
		err = l.continues(ctx, old)
	}
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(n.Sigs, func(s note.Signature) bool { return l.v.ring.knows(keyID{s.Name, s.Hash}) }) {
		l.v.report.Published.Since = old.Size
	}
	return n, nil
}

func (l *logCheck) continues(ctx context.Context, old statement.Checkpoint) error {
	switch {
	case old.Size > l.cp.Size:
		return verdict.Broken(verdict.ErrRolledBack, 0, checkpointFile, "it has %d entries, there were %d", l.cp.Size, old.Size)
	case old.Size == l.cp.Size && old.Root != l.cp.Root:
		return verdict.Broken(verdict.ErrForked, 0, checkpointFile, "two trees of %d entries have different roots", l.cp.Size)
	case old.Size == l.cp.Size, old.Size == 0:
		return nil
	}
	path, err := l.src.continues(ctx, old.Size, l.cp)
	if err != nil {
		return err
	}
	if !merkle.VerifyConsistency(old.Size, l.cp.Size, path, old.Root, l.cp.Root) {
		return verdict.Broken(verdict.ErrForked, 0, consistencyFile, "a tree of %d entries does not continue that of %d which was kept", l.cp.Size, old.Size)
	}
	return nil
}

// include checks that the tree has an entry.
func (l *logCheck) include(ctx context.Context, name string, entry []byte) error {
	_, err := l.place(ctx, name, entry)
	return err
}

// place is include, and returns the index of the entry in the tree.
func (l *logCheck) place(ctx context.Context, name string, entry []byte) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	p, err := l.src.include(ctx, name, entry, l.cp)
	if err != nil {
		return 0, err
	}
	if !merkle.VerifyInclusion(statement.LogHash(entry), p.index, l.cp.Size, p.path, l.cp.Root) {
		return 0, verdict.Broken(verdict.ErrNotIncluded, 0, name+proofSuffix, "entry %d of %d", p.index, l.cp.Size)
	}
	return p.index, nil
}

func (l *logCheck) includeManifests(ctx context.Context) error {
	p := l.v.report.Published
	for i, m := range l.v.manifests {
		name := strings.TrimSuffix(m.file, wal.ManifestSuffix)
		index, err := l.place(ctx, name, statement.ManifestLeaf(m.Run, m.Segment, m.digest))
		switch {
		case err == errTail:
			p.Tail += m.Count
			l.tail = cmp.Or(l.tail, m.file)
		case err != nil:
			return err
		case l.tail != "":
			return verdict.Broken(verdict.ErrUnlogged, 0, l.tail, "%s is", m.file)
		default:
			l.v.manifests[i].logged, l.v.manifests[i].index = true, index
			p.Covered += m.Count
		}
	}
	if l.tail != "" {
		l.pending()
	}
	return nil
}

func (l *logCheck) includeRotations(ctx context.Context) error {
	for _, s := range l.v.rotations {
		err := l.include(ctx, s.file, statement.RotationLeaf(s.digest))
		if err == errTail {
			err = verdict.Broken(verdict.ErrRotationUnlogged, 0, s.file, "")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *logCheck) includeErasures(ctx context.Context) error {
	for _, seq := range l.v.erasures.seqs() {
		s := l.v.erasures[seq]
		index, err := l.place(ctx, s.file, statement.ErasureLeaf(s.Run, s.Seq, s.digest))
		s.logged, s.index = err == nil, index
		if err == errTail && !s.done {
			continue // stated recently, not carried out yet
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
