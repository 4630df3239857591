package proof

import (
	"context"
	"maps"
	"slices"

	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
)

// erasure is a statement as it was found.
type erasure struct {
	statement.Erasure
	file   string
	digest merkle.Hash
	seen   bool // the record is there
	done   bool // it is erased
	logged bool // it stands under the checkpoint, as entry index of the log
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

// gone holds the erased records of a segment against the statements.
func (v *verifier) gone(p part) error {
	for _, seq := range p.present {
		e := v.erasures[seq]
		e.seen = true
		v.report.Asked = append(v.report.Asked, e.Erasure)
	}
	for _, f := range p.erased {
		e := v.erasures[f.seq]
		if e == nil {
			return verdict.Broken(verdict.ErrErasureUndeclared, f.seq, p.file, "")
		}
		if e.Leaf != f.leaf {
			return verdict.Broken(verdict.ErrErasureMismatch, f.seq, e.file, "it names leaf %s, the record's is %s", e.Leaf, f.leaf)
		}
		e.seen, e.done = true, true
		v.report.Erasures = append(v.report.Erasures, e.Erasure)
	}
	return nil
}

// idleErasures finds statements about records that the run does not have.
func (v *verifier) idleErasures() error {
	for _, seq := range v.erasureSeqs() {
		if e := v.erasures[seq]; !e.seen && !v.evidence.Live {
			return verdict.Broken(verdict.ErrErasureMismatch, seq, e.file, "the run has no such record")
		}
	}
	return nil
}

func (v *verifier) erasureSeqs() []uint64 { return slices.Sorted(maps.Keys(v.erasures)) }
