package run

import (
	"context"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/store"
)

// review records disagreements between guest and host as findings. It is called after the VM has ended, before the run's end is recorded.
func (j *Job) review(ctx context.Context) error {
	if err := j.record.Flush(ctx); err != nil {
		return err
	}
	return replay.Review(j.o.Home.Logs().Records(ctx, store.Query{Run: j.id}), func(ev audit.Event) error {
		_, err := j.record.Post(ctx, ev)
		return err
	})
}
