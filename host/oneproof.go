package host

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/store"
)

// OfRecord proves one record. It reads only the segment that contains it: from the log, or from the store if
// retention removed it or another host made the run. The error is a *verdict.Verdict if the
// segment differs from what was signed, or has no such record (verdict.ErrNoEvidence).
func (ps Proofs) OfRecord(ctx context.Context, tenant, run string, seq uint64) (proof.RecordProof, error) {
	unlock, err := ps.host.Deletions().readRuns(ctx)
	if err != nil {
		return proof.RecordProof{}, err
	}
	defer unlock()
	if ps.host.RunLogs().HasOf(tenant, run) {
		p, err := ps.proofIn(ctx, ps.host.RunDir(run), run, true, seq)
		if !errors.Is(err, verdict.ErrSegmentMissing) || !ps.host.Retention().IsPruned(run) {
			return p, err
		}
	}
	temp, err := os.MkdirTemp(ps.host.Dir, rebuiltPrefix)
	if err != nil {
		return proof.RecordProof{}, err
	}
	dir := filepath.Join(temp, rebuiltDir)
	p, err := proof.RecordProof{}, ps.rebuildSegment(ctx, tenant, run, seq, dir)
	if err == nil {
		p, err = ps.proofIn(ctx, dir, run, ps.mine(tenant, run, dir), seq)
	}
	return p, errors.Join(err, os.RemoveAll(temp))
}

func (ps Proofs) proofIn(ctx context.Context, dir, run string, mine bool, seq uint64) (proof.RecordProof, error) {
	e, err := ps.open(ctx, dir, run, mine)
	if err != nil {
		return proof.RecordProof{}, err
	}
	p, err := proof.ProofOf(ctx, e, seq)
	return p, errors.Join(err, e.Close())
}

// rebuildSegment writes the files of the segment that contains seq from the store's copy.
func (p Proofs) rebuildSegment(ctx context.Context, tenant, run string, seq uint64, dir string) (err error) {
	st, err := p.host.Store(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	r, err := st.Run(ctx, tenant, run)
	if err != nil {
		return fmt.Errorf("run %s: %w", run, err)
	}
	manifests, err := st.Manifests(ctx, r.Tenant, r.ID)
	if err != nil {
		return fmt.Errorf("run %s: %w", run, err)
	}
	for _, m := range manifests {
		if m.Count == 0 || seq < m.First || seq > m.Last {
			continue
		}
		if err := signedFor(r.ID, m.Bytes); err != nil {
			return err
		}
		if err := proof.Rebuild(ctx, dir, [][]byte{m.Bytes}, segmentRows(ctx, st, r, m)); err != nil {
			return fmt.Errorf("run %s, segment %d: restore it from the store: %w", run, m.Index, err)
		}
		return p.copyStatements(r, dir)
	}
	return fmt.Errorf("run %s, seq %d: %w", run, seq, verdict.ErrNoEvidence)
}

// segmentRows yields the records of one segment.
func segmentRows(ctx context.Context, st store.Store, r store.Run, m store.Manifest) iter.Seq2[proof.Row, error] {
	q := store.Query{Tenant: r.Tenant, Run: r.ID, AfterSeq: m.First - 1, Limit: int(min(m.Count, store.MaxFrames))}
	return func(yield func(proof.Row, error) bool) {
		for row, err := range st.Records(ctx, q) {
			if !yield(proof.Row(row.Frame()), err) || err != nil {
				return
			}
		}
	}
}
