package replay

import (
	"cmp"
	"time"

	"github.com/custody-project/custody/audit"
)

// StepState is a step at the instant.
type StepState struct {
	Seq      uint64       `json:"seq"` // of its start
	Name     string       `json:"name"`
	Argv     []audit.Text `json:"argv"`
	Start    time.Time    `json:"start"`
	End      *time.Time   `json:"end,omitempty"`
	ExitCode *int         `json:"exit_code,omitempty"`
	Status   audit.Status `json:"status,omitempty"`
}

// Steps are the steps of a run.
type Steps struct{ story *Story }

// Steps returns the index of the run's steps.
func (s *Story) Steps() Steps { return Steps{s} }

// At returns the steps that had begun at t, as they were then, in the order in which they began.
func (x Steps) At(t time.Time) []StepState {
	defer x.story.read()()
	return stepsAt(x.story.records.moments, nanos(t))
}

// stepsAt returns the steps as they were at an instant.
func stepsAt(moments []moment, at int64) []StepState {
	steps := []StepState{}
	for i := range moments {
		m := &moments[i]
		if l, is := m.what.(*audit.Lifecycle); is && m.at <= at && m.host() && m.kind == audit.KindStep {
			steps = addStep(steps, m, l)
		}
	}
	return steps
}

func addStep(steps []StepState, m *moment, l *audit.Lifecycle) []StepState {
	name := cmp.Or(l.Name, m.step)
	if l.Phase == audit.PhaseStart {
		return append(steps, StepState{Seq: m.seq, Name: name, Argv: l.Argv, Start: m.time()})
	}
	for i := range steps {
		if s := &steps[i]; s.Name == name && s.End == nil {
			end := m.time()
			s.End, s.ExitCode, s.Status = &end, l.ExitCode, l.Status
			break
		}
	}
	return steps
}
