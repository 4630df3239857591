package run

import (
	"context"
	"encoding/json"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/store"
)

// maxReviewed bounds the number of findings that a review records. The timeline shows all disagreements.
const maxReviewed = 100

// review records disagreements between guest and host as findings. It is called after the VM has ended, before the run's end is recorded.
func (j *Job) review(ctx context.Context) error {
	if err := j.record.Flush(ctx); err != nil {
		return err
	}
	found, err := replay.Disagreements(ended(j.o.Home.Logs().Records(ctx, store.Query{Run: j.id})))
	if err != nil {
		return err
	}
	for _, f := range found[:min(len(found), maxReviewed)] {
		ev := audit.Event{Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindFinding, Step: f.Step,
			Finding: &audit.Finding{Rule: f.Rule, Detail: f.Detail, Proc: f.Proc}}
		if len(f.Evidence) > 0 {
			ev.Finding.Seq = f.Evidence[0]
		}
		if _, err := j.record.Post(ctx, ev); err != nil {
			return err
		}
	}
	return nil
}

// ended adds an end event to the run's rows: the real one is recorded after the review.
func ended(rows replay.Rows) replay.Rows {
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
