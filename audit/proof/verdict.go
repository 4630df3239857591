package proof

import (
	"errors"
	"fmt"
)

// The outcomes of Verify other than "holds". Every error of Verify is one of the
// two; use errors.Is.
var (
	ErrDoesNotHold    = errors.New("the record does not hold")
	ErrCannotBeJudged = errors.New("the record cannot be judged")
)

// What Verify can find. Each comes in a Verdict, which says where.
var (
	// Findings about records: the evidence does not hold.
	ErrAltered     = errors.New("record altered")
	ErrMissing     = errors.New("record missing")
	ErrDuplicated  = errors.New("record duplicated")
	ErrReordered   = errors.New("records reordered")
	ErrInserted    = errors.New("record inserted that was never sealed")
	ErrAppended    = errors.New("record appended after the seal")
	ErrUndecodable = errors.New("record cannot be decoded")
	ErrHole        = errors.New("seqs missing that no gap declares")
	// Findings about the files around them: the evidence does not hold either.
	ErrTailCut         = errors.New("tail cut: there is no closing manifest")
	ErrSegmentMissing  = errors.New("segment missing")
	ErrManifestMissing = errors.New("manifest missing")
	ErrForged          = errors.New("manifest forged")
	ErrOutOfChain      = errors.New("manifest out of chain")
	ErrContradiction   = errors.New("manifest contradicts its records")
	ErrLeaves          = errors.New("leaf hashes altered or missing")
	ErrRunMismatch     = errors.New("evidence is mixed from different runs")
	// Findings that leave the question open.
	ErrUnknownKey = errors.New("signed by a key that is not trusted here")
	ErrLive       = errors.New("the run is live: its record is not closed yet")
	ErrNoEvidence = errors.New("there is no record here")
	ErrUnreadable = errors.New("the evidence cannot be read")
	ErrPending    = errors.New("the record's end is not under a checkpoint of the host's log yet")
)

// Verdict is why evidence does not hold or cannot be judged. errors.Is finds
// both the outcome and the finding in it.
type Verdict struct {
	Outcome error  // ErrDoesNotHold or ErrCannotBeJudged
	Finding error  // one of the findings above
	Seq     uint64 // first record concerned, 0 if it is none in particular
	File    string // manifest, leaves or segment concerned
	Detail  string
}

// Error implements error.
func (v *Verdict) Error() string {
	s := v.Finding.Error()
	if v.Seq > 0 {
		s += fmt.Sprintf(": seq %d", v.Seq)
	}
	if v.File != "" {
		s += " in " + v.File
	}
	if v.Detail != "" {
		s += ": " + v.Detail
	}
	return s
}

// Unwrap makes both outcome and finding visible to errors.Is.
func (v *Verdict) Unwrap() []error { return []error{v.Outcome, v.Finding} }

func broken(finding error, seq uint64, file, detail string, args ...any) *Verdict {
	return &Verdict{ErrDoesNotHold, finding, seq, file, fmt.Sprintf(detail, args...)}
}

func open(finding error, file, detail string, args ...any) *Verdict {
	return &Verdict{ErrCannotBeJudged, finding, 0, file, fmt.Sprintf(detail, args...)}
}
