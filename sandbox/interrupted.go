package sandbox

import (
	"context"
	"iter"
	"time"

	"github.com/custody-project/custody/audit"
)

// Interrupted writes the end of a run whose Custody died: an exit for each
// process without one, an end for each step without one, and the run's. It
// says whether there was anything to end: a run can die between its end and
// its seal. records are those that survived, in order.
func Interrupted(ctx context.Context, r Recorder, records iter.Seq2[audit.Record, error]) (bool, error) {
	var left procs
	var open []string // steps
	for rec, err := range records {
		if err != nil {
			return false, err
		}
		left.note(&rec.Event)
		switch l := rec.Lifecycle; {
		case l == nil:
		case rec.Kind == audit.KindRun && l.Phase == audit.PhaseEnd:
			return false, nil
		case rec.Kind == audit.KindStep && l.Phase == audit.PhaseStart:
			open = append(open, rec.Step)
		case rec.Kind == audit.KindStep && l.Phase == audit.PhaseEnd && len(open) > 0:
			open = open[:len(open)-1]
		}
	}
	events := left.unfinished()
	const reason = "custody died; closed at its next start"
	for _, step := range open {
		l := &audit.Lifecycle{Phase: audit.PhaseEnd, Name: step, Status: audit.StatusInterrupted, Reason: reason}
		events = append(events, audit.Event{Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindStep, Step: step, Lifecycle: l})
	}
	end := audit.Lifecycle{Phase: audit.PhaseEnd, Status: audit.StatusInterrupted, Reason: reason}
	for _, ev := range append(events, runEvent(&end)) {
		if _, err := r.Post(ctx, ev); err != nil {
			return true, err
		}
	}
	return true, nil
}
