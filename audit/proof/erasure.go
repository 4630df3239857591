package proof

import (
	"context"
	"maps"
	"slices"

	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
)

// erasure is a statement and the result of its checks.
type erasure struct {
	statement.Erasure
	file   string
	digest merkle.Hash
	seen   bool // the record exists, erased or not
	done   bool // it is erased
	logged bool // the checkpoint covers it, as entry index of the log
	index  uint64
}

// stated reads the statements of erasures.
func (v *verifier) stated(ctx context.Context) error {
	statements, err := v.evidence.statements(statement.ErasureSuffix)
	if err != nil {
		return err
	}
	for _, s := range statements {
		e, err := v.openErasure(s)
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		v.erasures[e.Seq] = e
	}
	return nil
}

func (v *verifier) openErasure(s signedFile) (*erasure, error) {
	n, by, known, err := v.ring.openSigned(s.signed)
	var e statement.Erasure
	if err == nil {
		e, err = statement.ParseErasure(n.Text)
	}
	switch {
	case err != nil:
		return nil, verdict.Broken(verdict.ErrErasureForged, 0, s.file, "%v", err)
	case !known || by.name != v.host:
		return nil, verdict.Broken(verdict.ErrErasureForged, 0, s.file, "no key of %s that is trusted here signed it", v.host)
	case e.Run != v.report.Run:
		return nil, verdict.Broken(verdict.ErrErasureMismatch, 0, s.file, "it is about run %s", e.Run)
	case statement.ErasureName(e.Seq) != s.file:
		return nil, verdict.Broken(verdict.ErrErasureMismatch, e.Seq, s.file, "it is about seq %d", e.Seq)
	case !statement.Erasable(e.Kind):
		return nil, verdict.Broken(verdict.ErrErasureForbidden, e.Seq, s.file, "its kind was %.40q", e.Kind)
	}
	return &erasure{Erasure: e, file: s.file, digest: s.digest}, nil
}

// erasures are the statements of a run by the seq of the record.
type erasures map[uint64]*erasure

func (e erasures) seqs() []uint64 { return slices.Sorted(maps.Keys(e)) }
