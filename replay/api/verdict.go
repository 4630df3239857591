package api

import (
	"errors"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/store"
)

// The states of verification, with the names of package store.
const (
	Holds     = string(store.Holds)
	Fails     = string(store.Fails)
	Unsigned  = string(store.Unsigned)
	Cannot    = string(store.Cannot)
	Unchecked = string(store.Unchecked)
	Checking  = string(store.Checking)
)

// Verification is the result of a check of a run's record.
type Verification struct {
	State  string        `json:"state"`
	Name   string        `json:"name,omitempty"`   // of the finding, see docs/verify.md
	Number int           `json:"number,omitempty"` // of the finding
	Text   string        `json:"text"`
	At     time.Time     `json:"at,omitzero"` // of the check
	Report *VerifyReport `json:"report,omitempty"`
}

// VerifyReport is what a check proved before it ended or failed.
type VerifyReport struct {
	Records   uint64      `json:"records"`
	Segments  uint64      `json:"segments"`
	First     uint64      `json:"first"`
	Last      uint64      `json:"last"`
	HoldsTo   uint64      `json:"holds_to"` // seq up to which every record is proven
	Head      merkle.Hash `json:"head"`     // digest of the last manifest
	Closing   wal.Closing `json:"closing,omitempty"`
	Key       string      `json:"key,omitempty"` // name of the key that signed
	Gaps      int         `json:"gaps"`
	Losses    wal.Losses  `json:"losses"`
	Erasures  int         `json:"erasures"`
	Rotations int         `json:"rotations"`
	// Lineage has the ancestors that the check followed, the parent first.
	Lineage   []AncestorReport `json:"lineage,omitempty"`
	Published *PublishedReport `json:"published,omitempty"`
}

// AncestorReport is what a check proved about an ancestor of a run.
type AncestorReport struct {
	audit.Parent
	State   proof.AncestorState `json:"state"`
	Records uint64              `json:"records"`
	Erased  uint64              `json:"erased"`
}

// PublishedReport is the state of the host's log.
type PublishedReport struct {
	Origin    string      `json:"origin"`
	Size      uint64      `json:"size"` // entries
	Root      merkle.Hash `json:"root"`
	Witnesses []string    `json:"witnesses"`
	Covered   uint64      `json:"covered"` // records under the checkpoint
	Tail      uint64      `json:"tail"`    // records that are younger
	Stamp     time.Time   `json:"stamp,omitzero"`
	Authority string      `json:"authority,omitempty"`
}

func reportOf(r proof.Report) *VerifyReport {
	if r.Run == "" {
		return nil
	}
	v := &VerifyReport{
		Records: r.Records, Segments: r.Segments, First: r.First, Last: r.Last, HoldsTo: r.HoldsTo, Head: r.Head,
		Closing: r.Closing, Key: r.KeyName, Gaps: len(r.Gaps), Losses: r.Losses, Erasures: len(r.Erasures), Rotations: len(r.Rotations),
	}
	if v.Losses == nil {
		v.Losses = wal.Losses{}
	}
	for _, a := range r.Lineage {
		v.Lineage = append(v.Lineage, AncestorReport{a.Parent, a.State, a.Records, a.Erased})
	}
	if p := r.Published; p != nil {
		v.Published = &PublishedReport{Origin: p.Origin, Size: p.Size, Root: p.Root, Witnesses: p.Witnesses,
			Covered: p.Covered, Tail: p.Tail, Stamp: p.Stamp, Authority: p.Authority}
		if p.Witnesses == nil {
			v.Published.Witnesses = []string{}
		}
	}
	return v
}

// Judge converts the error of a check to a Verification. An error that is neither a failed verification nor a difference from
// the log leaves the record unverified.
func Judge(report proof.Report, err error, at time.Time) Verification {
	v := Verification{State: Holds, Text: "every record holds, from the first to the closing manifest", At: at, Report: reportOf(report)}
	if err == nil {
		return v
	}
	v.Text = err.Error()
	var finding *verdict.Verdict
	var differs *replay.Differences
	var marked *store.MarkError
	switch {
	case errors.As(err, &marked):
		v.State, v.Name = string(marked.Mark.State), "store-differs"
		if marked.Mark.State == store.Unsigned {
			v.Name = "unsigned"
		}
	case errors.As(err, &finding):
		v.State, v.Name, v.Number = Fails, finding.Name(), finding.Status()
		if errors.Is(err, verdict.ErrCannotBeJudged) {
			v.State = Cannot
		}
	case errors.As(err, &differs), errors.Is(err, replay.ErrSummary):
		v.State, v.Name = Fails, "store-differs"
	case errors.Is(err, store.ErrUnsigned):
		v.State, v.Name, v.Text = Unsigned, "unsigned", store.ErrUnsigned.Error()
	case errors.Is(err, store.ErrNotFound):
		v.State, v.Name, v.Number, v.Text = Cannot, verdict.ErrNoEvidence.Name(), verdict.ErrNoEvidence.Status(), verdict.ErrNoEvidence.Error()
	default:
		v.State, v.Text = Cannot, "the check could not be carried out"
	}
	return v
}
