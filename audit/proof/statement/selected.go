package statement

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof/merkle"
)

const (
	selectionVersion = 1
	selectionType    = "custody selection v1\n"
)

// Selected is the signed statement that a bundle shows only some records of a run, by the exporter's choice, and which.
// Digest is over the withheld ones in their order, SHA-256 of seq (uint64, little-endian) and leaf of each. It is not
// in the host's log.
//
//	custody selection v1
//	{"v":1,"run":"r-...","head":"...","records":900,"withheld":880,"digest":"...","what":"seq 40 to 59","by":"...","time":"..."}
type Selected struct {
	V        int         `json:"v"`
	Run      string      `json:"run"`
	Head     merkle.Hash `json:"head"`     // digest of the run's last manifest
	Records  uint64      `json:"records"`  // of the run
	Withheld uint64      `json:"withheld"` // of them
	Digest   merkle.Hash `json:"digest"`
	What     string      `json:"what"`
	By       string      `json:"by"`
	Time     time.Time   `json:"time"` // host time, UTC
}

// Sign returns the statement as a signed note.
func (s Selected) Sign(by note.Signer) ([]byte, error) {
	s.V, s.Time = selectionVersion, s.Time.UTC()
	return signStatement(selectionType, s, by)
}

// ParseSelected parses the text of a statement without its signature. It accepts the canonical encoding only.
func ParseSelected(text string) (Selected, error) {
	var s Selected
	if err := parseStatement(selectionType, text, &s); err != nil {
		return Selected{}, err
	}
	if s.V != selectionVersion {
		return Selected{}, fmt.Errorf("selection version %d, want %d: a newer custody can read it", s.V, selectionVersion)
	}
	return s, nil
}

// withheld returns the number and digest of the withheld records.
type Withheld struct {
	Count uint64
	hash  hash.Hash
}

func NewWithheld() Withheld { return Withheld{hash: sha256.New()} }

func (w *Withheld) Add(seq uint64, leaf merkle.Hash) {
	w.Count++
	w.hash.Write(binary.LittleEndian.AppendUint64(nil, seq))
	w.hash.Write(leaf[:])
}

func (w *Withheld) Digest() merkle.Hash { return merkle.Hash(w.hash.Sum(nil)) }
