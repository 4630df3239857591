package main

import (
	"encoding/json"
	"io"
	"time"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/replay/api"
)

// What verify can check.
const (
	ofRun    = "run"
	ofBundle = "bundle"
	ofRecord = "record"
	ofReport = "report"
)

// judged is what verify found, which was printed already.
type judged struct {
	of          string // "" if that could not be found out
	report      proof.Report
	record      *judgedRecord
	runs        []statement.Subject // of a report, those whose bundles hold
	code, found error               // what to exit with, and why
}

// judgedRecord is the record of a proof.
type judgedRecord struct {
	Seq   uint64      `json:"seq"`
	Leaf  merkle.Hash `json:"leaf"`
	State string      `json:"state"`
}

// verification is the object of verify --json. Fields may be added, and none changes its meaning.
type verification struct {
	V      int    `json:"v"`
	Target string `json:"target"` // as it was named
	Of     string `json:"of,omitempty"`
	Exit   int    `json:"exit"`
	api.Verification
	Hint      string              `json:"hint,omitempty"`
	Run       string              `json:"run,omitempty"`
	Runs      []statement.Subject `json:"runs,omitempty"`
	Record    *judgedRecord       `json:"record,omitempty"`
	Selection *judgedSelection    `json:"selection,omitempty"`
}

// judgedSelection describes the records that a bundle shows.
type judgedSelection struct {
	What     string `json:"what"`
	By       string `json:"by"`
	Shown    uint64 `json:"shown"`
	Withheld uint64 `json:"withheld"`
}

// writeJSON writes one object in one line.
func (j judged) writeJSON(w io.Writer, target string, code error) error {
	v := verification{
		V: 1, Target: target, Of: j.of, Verification: api.Judge(j.report, j.found, time.Now().UTC()),
		Run: j.report.Run, Runs: j.runs, Record: j.record,
	}
	if exit, ok := code.(exitCode); ok {
		v.Exit = int(exit)
	}
	if j.found != nil {
		v.Text, v.Hint = j.found.Error(), hint(j.found)
	}
	switch v.Exit { // what is no finding has no state of its own
	case int(exitDoesNotHold):
		v.State = api.Fails
	case int(exitCannotBeKnown):
		v.State = api.Cannot
	}
	if j.of == ofRecord || j.of == ofReport {
		v.Report = nil
		if j.found == nil {
			v.Text = map[string]string{ofRecord: "this record holds, and nothing is said of its neighbours", ofReport: "the report is the host's, and so are the records of its runs"}[j.of]
		}
	}
	if s := j.report.Selected; s != nil {
		v.Selection = &judgedSelection{s.What, s.By, j.report.Shown(), j.report.Withheld}
	}
	return json.NewEncoder(w).Encode(v)
}
