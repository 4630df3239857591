package proof

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/internal/regular"
)

const (
	erasureVersion = 1
	erasureType    = "custody erasure v1\n"
	// ErasureSuffix ends the name of a signed erasure, after the record's seq with 20 digits.
	ErasureSuffix = ".erasure"
)

// Erasure is the signed statement that one record was erased, by whom and why. It names
// the leaf, which is all that stays of the record.
//
//	custody erasure v1
//	{"v":1,"run":"r-...","seq":17,"leaf":"...","kind":"output","reason":"...","by":"...","time":"..."}
type Erasure struct {
	V      int        `json:"v"`
	Run    string     `json:"run"`
	Seq    uint64     `json:"seq"`
	Leaf   Hash       `json:"leaf"`
	Kind   audit.Kind `json:"kind"` // as the host saw it before the record went
	Reason string     `json:"reason"`
	By     string     `json:"by"`
	Time   time.Time  `json:"time"` // host time, UTC
}

// ErrNotErasable: records of that kind have to stay.
var ErrNotErasable = errors.New("a record of this kind cannot be erased: the rest of the record rests on it")

// Erasable reports whether records of a kind may be erased. Records of how the run was set up, how it went and what was
// lost have to stay.
func Erasable(k audit.Kind) bool {
	switch k {
	case audit.KindRun, audit.KindStep, audit.KindPolicy, audit.KindGap, audit.KindVM:
		return false
	}
	return k.Known()
}

// NewErasure states that the record in f is to be erased. Reason and by must not be empty:
// the statement stands for as long as the record does. The error is ErrNotErasable for kinds that stay.
func NewErasure(f wal.Frame, reason, by string, at time.Time) (Erasure, error) {
	if f.Erased {
		return Erasure{}, fmt.Errorf("seq %d is erased already", f.Seq)
	}
	h, err := newScanner(newSchema()).scan(f.Bytes)
	switch {
	case err != nil:
		return Erasure{}, fmt.Errorf("seq %d: %w", f.Seq, err)
	case !Erasable(h.kind):
		return Erasure{}, fmt.Errorf("seq %d, kind %s: %w", f.Seq, h.kind, ErrNotErasable)
	case reason == "" || by == "":
		return Erasure{}, fmt.Errorf("seq %d: an erasure needs a reason and who asked for it", f.Seq)
	}
	return Erasure{
		V: erasureVersion, Run: f.Run, Seq: f.Seq, Leaf: f.Leaf(), Kind: h.kind, Reason: reason, By: by, Time: at.UTC(),
	}, nil
}

// Sign returns the statement as a signed note.
func (e Erasure) Sign(s note.Signer) ([]byte, error) { return signStatement(erasureType, e, s) }

// ParseErasure reads the text of a statement without its signature. It takes the canonical encoding only.
func ParseErasure(text string) (Erasure, error) {
	var e Erasure
	if err := parseStatement(erasureType, text, &e); err != nil {
		return Erasure{}, err
	}
	if e.V != erasureVersion {
		return Erasure{}, fmt.Errorf("erasure version %d, want %d: a newer custody can read it", e.V, erasureVersion)
	}
	return e, nil
}

// ErasureName returns the file name of the statement about a record.
func ErasureName(seq uint64) string { return wal.FileName(seq, ErasureSuffix) }

// StateErasure signs e and keeps the statement in the run's directory, durable when it
// returns. If the same record's erasure was stated before, it returns the statement of then.
func StateErasure(dir string, e Erasure, s note.Signer) (signed []byte, err error) {
	path := filepath.Join(dir, ErasureName(e.Seq))
	signed, err = regular.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if signed, err = e.Sign(s); err != nil {
			return nil, err
		}
		return signed, replaceFile(path, 0o600, string(signed))
	}
	if err != nil {
		return nil, fmt.Errorf("state erasure: %w", err)
	}
	n, err := unverified(signed)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	was, err := ParseErasure(n.Text)
	if err == nil && (was.Run != e.Run || was.Seq != e.Seq || was.Leaf != e.Leaf) {
		err = errors.New("it is about another record")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return signed, nil
}

// erasure is a statement as it was found.
type erasure struct {
	Erasure
	file   string
	digest Hash
	seen   bool // the record is there
	done   bool // it is erased
	logged bool // it stands under the checkpoint, as entry index of the log
	index  uint64
}

// stated reads the statements of erasures.
func (v *verifier) stated(ctx context.Context) error {
	statements, err := v.evidence.statements(ErasureSuffix)
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

func (v *verifier) openErasure(s statement) (*erasure, error) {
	n, by, known, err := v.ring.openSigned(s.signed)
	var e Erasure
	if err == nil {
		e, err = ParseErasure(n.Text)
	}
	switch {
	case err != nil:
		return nil, broken(ErrErasureForged, 0, s.file, "%v", err)
	case !known || by.name != v.host:
		return nil, broken(ErrErasureForged, 0, s.file, "no key of %s that is trusted here signed it", v.host)
	case e.Run != v.report.Run:
		return nil, broken(ErrErasureMismatch, 0, s.file, "it is about run %s", e.Run)
	case ErasureName(e.Seq) != s.file:
		return nil, broken(ErrErasureMismatch, e.Seq, s.file, "it is about seq %d", e.Seq)
	case !Erasable(e.Kind):
		return nil, broken(ErrErasureForbidden, e.Seq, s.file, "its kind was %.40q", e.Kind)
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
			return broken(ErrErasureUndeclared, f.seq, p.file, "")
		}
		if e.Leaf != f.leaf {
			return broken(ErrErasureMismatch, f.seq, e.file, "it names leaf %s, the record's is %s", e.Leaf, f.leaf)
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
			return broken(ErrErasureMismatch, seq, e.file, "the run has no such record")
		}
	}
	return nil
}

func (v *verifier) erasureSeqs() []uint64 { return slices.Sorted(maps.Keys(v.erasures)) }
