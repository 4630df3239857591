package worker

import (
	"context"
	"errors"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/store"
)

// review records disagreements between guest and host as findings. It is called after the VM has ended, before the run's end is recorded.
func (w *worker) review(ctx context.Context) error {
	if err := goOn(w.record.log.Flush(ctx)); err != nil {
		return err
	}
	return replay.Review(w.rows(), func(ev audit.Event) error {
		_, err := w.record.Post(ctx, ev)
		return err
	})
}

// rows yields the rows of the log.
func (w *worker) rows() replay.Rows {
	return func(yield func(store.Row, error) bool) {
		for f, err := range w.files.Frames() {
			if errors.Is(err, wal.ErrTorn) {
				return // the rest is being written
			}
			row := store.Row{Body: f.Bytes}
			if err == nil {
				row.Head, err = store.HeadOf(w.order.Settings.Run, store.Frame{Seq: f.Seq, Body: f.Bytes})
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}
