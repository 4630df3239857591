package report

import (
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/store"
)

// Schema is the value of "schema" in every report that this code writes. schema.json describes it.
const Schema = "custody report v1"

// Status is what a claim, or a control with all its claims, says of its subject.
type Status string

// The statuses; see the package's comment.
const (
	Supports      Status = "supports"
	Lacks         Status = "does not support"
	Contradicts   Status = "contradicts"
	NotApplicable Status = "not applicable"
)

// Basis is who saw what a claim rests on.
type Basis string

// The bases of claims.
const (
	ByHost  Basis = "seen by the host"
	ByGuest Basis = "claimed by the guest"
	ByBoth  Basis = "seen by the host and claimed by the guest"
	ByCheck Basis = "checked by verification"
)

// Input is what a report is made of.
type Input struct {
	Framework string // see Frameworks
	// Runs that the report is about, in any order, all of one tenant.
	Runs []Run
	// Access are the access logs (class store.Accesses) that may tell who looked at these runs. Of their
	// records only those about Tenant count, and within From and To if set, else about Runs.
	Access []Run
	Tenant string // of all Runs; empty or store.NoTenant for what belongs to none
	// From and To are the time in which the runs began, if they were chosen by time. To is exclusive.
	From, To  time.Time
	Generated time.Time
	Version   string // of Custody
}

// Run is one run for a report.
type Run struct {
	Run          store.Run
	Rows         replay.Rows // all of the run's, with their marks; ranged over twice
	Verification Verification
}

// State is what a verification came to.
type State string

// The states of a verification. Any other word counts as Unchecked.
const (
	Holds     State = "holds"
	Fails     State = "fails"
	Cannot    State = "cannot"
	Unchecked State = "unchecked"
)

// Verification is what proof.Verify, and the comparison with the store, said of a run.
type Verification struct {
	State  State         `json:"state"`
	Name   string        `json:"name,omitempty"`   // of the finding, such as record-altered
	Number int           `json:"number,omitempty"` // of the finding
	Text   string        `json:"text,omitempty"`
	At     time.Time     `json:"at,omitzero"`
	Report *proof.Report `json:"-"` // nil if nothing was established
}

// Report is what Build returns. Text in it can be shown as it is: characters that are not
// seen as themselves are written \xNN or \u{NNNN}, except in Record.JSON.
type Report struct {
	Schema    string      `json:"schema"`
	Framework Framework   `json:"framework"`
	Generated time.Time   `json:"generated"`
	Version   string      `json:"version"`
	Notice    string      `json:"notice"`
	Scope     Scope       `json:"scope"`
	Tally     Tally       `json:"tally"`
	Against   []Objection `json:"against"`
	Sources   []Source    `json:"sources"`
	Controls  []Control   `json:"controls"`
	Limits    []string    `json:"limits"`
	Records   []Record    `json:"records"` // those that claims cite, by source and seq
}

// Scope is what a report looked at.
type Scope struct {
	Text    string     `json:"text"`
	Tenant  string     `json:"tenant"`
	Runs    int        `json:"runs"`
	Access  int        `json:"access_logs"`
	Records uint64     `json:"records"` // of the runs
	From    *time.Time `json:"from,omitempty"`
	To      *time.Time `json:"to,omitempty"`
}

// Tally counts controls by status.
type Tally struct {
	Supports      int `json:"supports"`
	Lacks         int `json:"does_not_support"`
	Contradicts   int `json:"contradicts"`
	NotApplicable int `json:"not_applicable"`
}

// Objection is a claim that contradicts, and the controls that have it.
type Objection struct {
	Text     string   `json:"text"`
	Controls []string `json:"controls"`
	Refs     []Ref    `json:"refs"`
	Total    uint64   `json:"total"`

	query string
}

// Control is one control with its claims.
type Control struct {
	ID       string   `json:"id"`
	Title    string   `json:"title"`
	Evidence string   `json:"evidence"` // what Custody can evidence for it
	Status   Status   `json:"status"`
	Tally    Tally    `json:"tally"` // of the claims
	Claims   []Claim  `json:"claims"`
	Limits   []string `json:"limits"` // what it cannot show
}

// Claim is one sentence with what it rests on.
type Claim struct {
	Query  string `json:"query"`
	Status Status `json:"status"`
	Text   string `json:"text"`
	Basis  Basis  `json:"basis"`
	Total  uint64 `json:"total"` // of records that it is about
	Refs   []Ref  `json:"refs"`  // of the first of them

	runs []*source // that it rests on
}

// Ref is the place of a record.
type Ref struct {
	Run  string `json:"run"`
	Seq  uint64 `json:"seq"`
	Link string `json:"link"` // within the user interface
}

// Source is a run that was read, and how to find the same one again.
type Source struct {
	Run      string      `json:"run"`
	Class    store.Class `json:"class"`
	Project  string      `json:"project"`
	Host     string      `json:"host"`
	Start    time.Time   `json:"start"`
	End      *time.Time  `json:"end"`
	Status   string      `json:"status"`
	ExitCode *int        `json:"exit_code"`
	Tier     string      `json:"tier"`
	Mode     string      `json:"mode"`

	Records uint64 `json:"records"` // that were read
	Last    uint64 `json:"last_seq"`
	Erased  uint64 `json:"erased"`   // of them
	LeftOut uint64 `json:"left_out"` // younger than what verification reached in a run that is going on
	// Unsigned are records that the store has and no host signed. They are left out, and nothing of the run is evidence.
	Unsigned uint64 `json:"unsigned,omitempty"`
	// LeavesSHA256 is over the leaves of the records read, in order: what the .leaves files of
	// the run's bundle give, one after the other.
	LeavesSHA256 string       `json:"leaves_sha256"`
	Head         string       `json:"head"` // SHA-256 of the last manifest, as verified
	Key          string       `json:"key"`  // name of the key that signed
	Verification Verification `json:"verification"`
	Log          *Log         `json:"log"` // nil if the host's log was not asked
}

// Whole reports whether the record is closed, and under a checkpoint of the host's log: there can be a bundle of it.
func (s Source) Whole() bool {
	v := s.Verification
	return s.End != nil && (v.State != Cannot || v.Name != verdict.ErrLive.Name() && v.Name != verdict.ErrPending.Name())
}

// Log is what the host's log says of a source.
type Log struct {
	Origin    string     `json:"origin"`
	Size      uint64     `json:"size"`
	Root      string     `json:"root"`
	Covered   uint64     `json:"covered"`
	Tail      uint64     `json:"tail"`
	Witnesses []string   `json:"witnesses"`
	Stamp     *time.Time `json:"stamp,omitempty"`
	Authority string     `json:"authority,omitempty"`
}

// Record is a record that a claim cites.
type Record struct {
	Ref
	Time     time.Time      `json:"time"`
	Kind     audit.Kind     `json:"kind"`
	Observer audit.Observer `json:"observer"`
	Step     string         `json:"step,omitempty"`
	Leaf     string         `json:"leaf"`             // SHA-256(0x00, salt, JSON), in hex
	Salt     string         `json:"salt,omitempty"`   // hex
	JSON     string         `json:"json,omitempty"`   // the exact bytes; missing when erased or longer than 64 KiB
	Base64   string         `json:"base64,omitempty"` // the same, when they are no UTF-8
	Size     int            `json:"size"`             // bytes of the JSON
	Erased   bool           `json:"erased,omitempty"`
}
