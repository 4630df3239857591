package statement

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/schema"
	"github.com/custody-project/custody/audit/wal"
)

const (
	erasureVersion = 1
	erasureType    = "custody erasure v1\n"
)

const (
	// ErasureSuffix ends the name of a signed erasure, after the record's seq with 20 digits.
	ErasureSuffix = ".erasure"
)

// Erasure is the signed statement that one record was erased, by whom and why. It names
// the leaf, the only part of the record that stays.
//
//	custody erasure v1
//	{"v":1,"run":"r-...","seq":17,"leaf":"...","kind":"output","reason":"...","by":"...","time":"..."}
type Erasure struct {
	V      int         `json:"v"`
	Run    string      `json:"run"`
	Seq    uint64      `json:"seq"`
	Leaf   merkle.Hash `json:"leaf"`
	Kind   audit.Kind  `json:"kind"` // as read by the host before the erasure
	Reason string      `json:"reason"`
	By     string      `json:"by"`
	Time   time.Time   `json:"time"` // host time, UTC
}

// ErrNotErasable: records of that kind must stay.
var ErrNotErasable = errors.New("a record of this kind cannot be erased: the other records depend on it")

// Erasable reports whether records of a kind may be erased. Records of the setup of the run, of its course and of
// losses must stay.
func Erasable(k audit.Kind) bool {
	switch k {
	case audit.KindRun, audit.KindStep, audit.KindPolicy, audit.KindGap, audit.KindVM:
		return false
	}
	return k.Known()
}

// NewErasure states that the record in f is to be erased. Reason and by must not be empty:
// the statement exists as long as the record does. The error is ErrNotErasable for kinds that must stay.
func NewErasure(f wal.Frame, reason, by string, at time.Time) (Erasure, error) {
	if f.Erased {
		return Erasure{}, fmt.Errorf("seq %d is already erased", f.Seq)
	}
	h, err := schema.NewScanner(schema.New()).Scan(f.Bytes)
	switch {
	case err != nil:
		return Erasure{}, fmt.Errorf("seq %d: %w", f.Seq, err)
	case !Erasable(h.Kind):
		return Erasure{}, fmt.Errorf("seq %d, kind %s: %w", f.Seq, h.Kind, ErrNotErasable)
	case reason == "" || by == "":
		return Erasure{}, fmt.Errorf("seq %d: an erasure needs a reason and a requester", f.Seq)
	}
	return Erasure{
		V: erasureVersion, Run: f.Run, Seq: f.Seq, Leaf: f.Leaf(), Kind: h.Kind, Reason: reason, By: by, Time: at.UTC(),
	}, nil
}

// Sign returns the statement as a signed note.
func (e Erasure) Sign(s note.Signer) ([]byte, error) { return signStatement(erasureType, e, s) }

// ParseErasure parses the text of a statement without its signature. It accepts the canonical encoding only.
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
