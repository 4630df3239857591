// Package judge verifies what a user names, a run, a bundle, the proof of one record or a report, and returns the result in one
// form for all of them, also as the JSON object that custody verify --json writes.
package judge

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/replay/api"
	"github.com/custody-project/custody/replay/report"
	"github.com/custody-project/custody/store"
)

// Kind is what can be verified.
type Kind string

// The kinds, as they stand in JSON.
const (
	OfRun    Kind = "run"
	OfBundle Kind = "bundle"
	OfRecord Kind = "record"
	OfReport Kind = "report"
)

// Judgement is the result of a verification.
type Judgement struct {
	// Of is what was verified; "" if that could not be determined.
	Of Kind
	// Report is what was established, as far as the verification went. Of a record it has run, key and log, of a report nothing.
	Report proof.Report
	// Record is the record of a proof, Files are those of a report.
	Record *Record
	Files  report.Checked
	// Err is nil if all of it verifies.
	Err error
	// Barred reports that Err prevented the verification: it is no finding.
	Barred bool
}

// Record is the record that a proof is about.
type Record struct {
	Seq   uint64      `json:"seq"`
	Leaf  merkle.Hash `json:"leaf"`
	State proof.State `json:"state"`

	// Erased is the signed statement of the record's erasure, if it was erased.
	Erased *statement.Erasure `json:"-"`
}

// Barred is the judgement of what could not be verified because of err.
func Barred(of Kind, err error) Judgement { return Judgement{Of: of, Err: err, Barred: true} }

// Run verifies the log of a run, and what st has of it. st is a source of h.
func Run(ctx context.Context, h *host.Host, st host.Reader, run store.Run, t proof.Trust) Judgement {
	r, err := h.Checks().Verify(ctx, st, "", run.ID, t)
	return Judgement{Of: OfRun, Report: r, Err: err}
}

// File verifies a bundle, or the proof of one record, which is a JSON object.
func File(ctx context.Context, path string, t proof.Trust) Judgement {
	object, err := beginsWith(path, '{')
	switch {
	case err != nil:
		return Barred("", err)
	case object:
		return recordProof(path, t)
	}
	e, err := proof.OpenBundle(path)
	if err != nil {
		return Judgement{Of: OfBundle, Err: err}
	}
	r, err := proof.Verify(ctx, e, t)
	e.Close() // it was only read
	return Judgement{Of: OfBundle, Report: r, Err: err}
}

// beginsWith reports whether a file's first byte is c. An empty file has none.
func beginsWith(path string, c byte) (bool, error) {
	f, err := regular.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	var first [1]byte
	if _, err := f.Read(first[:]); err != nil && err != io.EOF {
		return false, err
	}
	return first[0] == c, nil
}

func recordProof(path string, t proof.Trust) Judgement {
	data, err := regular.ReadFile(path)
	if err != nil {
		return Barred(OfRecord, err)
	}
	p, err := proof.ParseRecordProof(data)
	if err != nil {
		return Judgement{Of: OfRecord, Err: err}
	}
	r, err := p.Verify(t)
	return Judgement{Of: OfRecord, Err: err, Report: proof.Report{Run: r.Run, KeyName: r.KeyName, Published: r.Log},
		Record: &Record{Seq: r.Seq, Leaf: r.Leaf, State: r.State, Erased: r.Erased}}
}

// Directory verifies the directory of a report.
func Directory(ctx context.Context, dir string, t proof.Trust) Judgement {
	files, err := report.Verify(ctx, dir, t)
	var unreadable *report.UnreadableError
	return Judgement{Of: OfReport, Files: files, Err: err, Barred: errors.As(err, &unreadable)}
}

// Document is the object of custody verify --json. Fields may be added, and none changes its meaning.
type Document struct {
	V      int    `json:"v"`
	Target string `json:"target"` // as it was named
	Of     Kind   `json:"of,omitempty"`
	Exit   int    `json:"exit"`
	api.Verification
	Hint      string              `json:"hint,omitempty"`
	Run       string              `json:"run,omitempty"`
	Runs      []statement.Subject `json:"runs,omitempty"` // of a report, those whose bundles verify
	Record    *Record             `json:"record,omitempty"`
	Selection *Selection          `json:"selection,omitempty"`
}

// Selection describes the records that a bundle shows.
type Selection struct {
	What     string `json:"what"`
	By       string `json:"by"`
	Shown    uint64 `json:"shown"`
	Withheld uint64 `json:"withheld"`
}

// The values of Document.Exit apart from a finding's own number.
const (
	Verified      = 0
	DoesNotVerify = 1
	Undetermined  = 2
)

// Document describes j, the judgement of target at a time, with the exit status and the hint that the user gets.
func (j Judgement) Document(target string, exit int, hint string, at time.Time) Document {
	d := Document{
		V: 1, Target: target, Of: j.Of, Exit: exit, Hint: hint, Verification: api.Judge(j.Report, j.Err, at.UTC()),
		Run: j.Report.Run, Record: j.Record,
	}
	for _, r := range j.Files.Runs {
		d.Runs = append(d.Runs, statement.Subject{Run: r.Run, Head: r.Head})
	}
	if j.Err != nil {
		d.Text = j.Err.Error()
	}
	switch exit { // an error that is no finding has no state of its own
	case DoesNotVerify:
		d.State = api.Fails
	case Undetermined:
		d.State = api.Cannot
	}
	if j.Of == OfRecord || j.Of == OfReport {
		d.Verification.Report = nil
		if j.Err == nil {
			d.Text = map[Kind]string{OfRecord: "this record holds; other records were not checked", OfReport: "the report is the host's, and so are the records of its runs"}[j.Of]
		}
	}
	if s := j.Report.Selected; s != nil {
		d.Selection = &Selection{s.What, s.By, j.Report.Shown(), j.Report.Withheld}
	}
	return d
}
