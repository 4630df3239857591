package replay

import (
	"encoding/json"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// maxReviewed bounds the number of findings that a review records. The timeline shows all disagreements.
const maxReviewed = 100

// Review calls record with a finding for each disagreement between guest and host in a run whose VM has ended and whose end is not
// recorded yet.
func Review(rows Rows, record func(audit.Event) error) error {
	found, err := Disagreements(ended(rows))
	if err != nil {
		return err
	}
	for _, f := range found[:min(len(found), maxReviewed)] {
		ev := audit.Event{Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindFinding, Step: f.Step,
			Finding: &audit.Finding{Rule: f.Rule, Detail: f.Detail, Proc: f.Proc}}
		if len(f.Evidence) > 0 {
			ev.Finding.Seq = f.Evidence[0]
		}
		if err := record(ev); err != nil {
			return err
		}
	}
	return nil
}

// ended adds an end event to the run's rows: the real one is recorded after the review.
func ended(rows Rows) Rows {
	return func(yield func(store.Row, error) bool) {
		var last store.Row
		for row, err := range rows {
			if !yield(row, err) || err != nil {
				return
			}
			last = row
		}
		end := audit.Record{V: audit.Version, Run: last.Run, Seq: last.Seq + 1, Event: audit.Event{Time: time.Now().UTC(), Observer: audit.Host,
			Kind: audit.KindRun, Lifecycle: &audit.Lifecycle{Phase: audit.PhaseEnd, Status: audit.StatusDone}}}
		body, err := json.Marshal(end)
		yield(store.Row{Head: store.Head{Run: end.Run, Seq: end.Seq, Time: end.Time, Observer: end.Observer, Kind: end.Kind}, Body: body}, err)
	}
}
