package store

import (
	"time"

	"github.com/custody-project/custody/audit"
)

// Status is the status of a run.
//
//	running --- the run's end event ----------> sealed
//	   `------- closed by a later process ----> interrupted
type Status string

// The statuses of a run.
const (
	Running     Status = "running"
	Sealed      Status = "sealed"
	Interrupted Status = "interrupted"
)

// Run is the summary of a run, folded from its records by Add in any order.
type Run struct {
	ID         string       `json:"run"`
	Tenant     string       `json:"tenant,omitempty"`
	Host       string       `json:"host,omitempty"` // name of the key that signed it
	Project    string       `json:"project"`
	Start      time.Time    `json:"start"`
	End        *time.Time   `json:"end"` // nil while running
	Status     Status       `json:"status"`
	Result     audit.Status `json:"result,omitempty"` // how the run ended: done, timeout, cancelled, ...
	ExitCode   *int         `json:"exit_code"`        // nil while running or if no command ended
	Tier       string       `json:"tier"`
	Mode       string       `json:"mode,omitempty"`
	Template   string       `json:"template"`
	DurationNS int64        `json:"duration_ns"` // start to end, 0 while running
	Events     uint64       `json:"events"`
	Findings   uint64       `json:"findings"`
	Gaps       uint64       `json:"gaps"`
	Lost       uint64       `json:"lost"` // events that the gaps declare lost
	FirstTime  time.Time    `json:"-"`    // of the earliest record; used as Start until the start event is known
	LastSeq    uint64       `json:"last_seq"`
}

// NewRun returns the summary of a run with no records.
func NewRun(id string) Run { return Run{ID: id, Status: Running} }

// Add folds one record into the summary. The caller must add every record once. An
// erased one is only counted.
func (r *Run) Add(h Head) {
	r.Events++
	r.LastSeq = max(r.LastSeq, h.Seq)
	if r.FirstTime.IsZero() || h.Time.Before(r.FirstTime) {
		r.FirstTime = h.Time
	}
	switch h.Kind {
	case audit.KindFinding:
		r.Findings++
	case audit.KindGap:
		r.Gaps++
		r.Lost += h.lost
	case audit.KindRun:
		if h.lifecycle != nil {
			r.addLifecycle(h.Time, h.lifecycle)
		}
	}
	r.settle()
}

func (r *Run) addLifecycle(t time.Time, l *audit.Lifecycle) {
	switch l.Phase {
	case audit.PhaseStart:
		r.Start = t
		r.Project, r.Template, r.Tier, r.Mode = l.Project, l.Template, l.Tier, l.Mode
	case audit.PhaseEnd:
		r.End, r.ExitCode, r.Result = &t, l.ExitCode, l.Status
		r.Status = Sealed
		if l.Status == audit.StatusInterrupted {
			r.Status = Interrupted
		}
	}
}

// settle computes the fields that depend on records in any order.
func (r *Run) settle() {
	if r.End != nil {
		r.DurationNS = int64(r.End.Sub(r.Began()))
	}
}

// Began returns the start event's time, or that of the earliest record if there is none yet.
func (r Run) Began() time.Time {
	if r.Start.IsZero() {
		return r.FirstTime
	}
	return r.Start
}

// Differs names the first field that differs between r and o, "" if none does.
func (r Run) Differs(o Run) string {
	switch {
	case r.ID != o.ID:
		return "run"
	case r.Project != o.Project:
		return "project"
	case !r.Start.Equal(o.Start):
		return "start"
	case (r.End == nil) != (o.End == nil) || r.End != nil && !r.End.Equal(*o.End):
		return "end"
	case r.Status != o.Status || r.Result != o.Result:
		return "status"
	case (r.ExitCode == nil) != (o.ExitCode == nil) || r.ExitCode != nil && *r.ExitCode != *o.ExitCode:
		return "exit_code"
	case r.Tier != o.Tier || r.Mode != o.Mode || r.Template != o.Template:
		return "tier, mode or template"
	case r.Events != o.Events || r.LastSeq != o.LastSeq:
		return "events"
	case r.Findings != o.Findings || r.Gaps != o.Gaps || r.Lost != o.Lost:
		return "findings or gaps"
	}
	return ""
}
