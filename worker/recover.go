package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/sealer"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/audit/wal/remote"
	"github.com/custody-project/custody/redact/pattern"
	"github.com/custody-project/custody/sandbox"
)

// recover closes the record of a worker that ended before it did.
func (w *worker) recover(ctx context.Context) (result Result, err error) {
	if w.redactor, err = pattern.NewRedactor(w.order.TagKey); err != nil {
		return result, err
	}
	w.record = newRecord()
	w.reports = newReports(w.conn, w.record.durable)
	defer w.reports.close()
	if err := sealer.Complete(w.files, remote.Dir, w.order.Last); err != nil {
		return result, fmt.Errorf("store the last signature of the record: %w", err)
	}
	watch := &sealer.Watch{Sealer: sealer.NewRemote(w.host), Wait: w.order.KeyWait}
	log, _, err := wal.Recover(ctx, remote.Dir, w.logOptions(watch))
	if errors.Is(err, wal.ErrFinished) {
		result.Status = audit.StatusDone
		return result, nil
	}
	if err != nil {
		return result, err
	}
	w.record.open(log, w.redactor)
	interrupted, err := sandbox.Interrupted(ctx, w.record, w.order.Reason, w.records())
	closing := wal.Sealed
	result.Status = audit.StatusDone
	if interrupted {
		result.Status, closing = audit.StatusInterrupted, wal.Interrupted
		result.ExitCode = sandbox.ExitFailed
	}
	result.Record = errors.Join(err, watch.Close(ctx, log, closing))
	return result, nil
}

// records yields the records of the log, in order.
func (w *worker) records() iter.Seq2[audit.Record, error] {
	return func(yield func(audit.Record, error) bool) {
		for f, err := range w.files.Frames() {
			var r audit.Record
			if err == nil {
				err = json.Unmarshal(f.Bytes, &r)
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}
