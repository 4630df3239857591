package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/sealer"
	"github.com/custody-project/custody/audit/proof/statement"
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
	if err := w.storeSigned(); err != nil {
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
	interrupted, err := sandbox.Interrupted(ctx, w.record, w.records())
	closing := wal.Sealed
	result.Status = audit.StatusDone
	if interrupted {
		result.Status, closing = audit.StatusInterrupted, wal.Interrupted
		result.ExitCode = sandbox.ExitFailed
	}
	result.Record = errors.Join(err, watch.Close(ctx, log, closing))
	return result, nil
}

// storeSigned stores the manifest that was signed last, and its leaves, if they were not written. The segment's
// records are durable: they were before it was signed.
func (w *worker) storeSigned() error {
	if w.order.Last == nil {
		return nil
	}
	m, err := statement.ReadManifest(w.order.Last)
	if err != nil {
		return err
	}
	_, err = w.files.ReadFile(path.Join(remote.Dir, wal.FileName(m.First, wal.ManifestSuffix)))
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if m.Count > 0 {
		var seg wal.Segment
		for f, err := range w.files.Segment(m.First) {
			if err != nil {
				return err
			}
			seg.Leaves = append(seg.Leaves, f.Leaf())
		}
		leaves, root := statement.Leaves(seg)
		if root != m.Root {
			return fmt.Errorf("the records from %d on are not those that were signed", m.First)
		}
		if err := w.files.Write(wal.FileName(m.First, wal.LeavesSuffix), leaves); err != nil {
			return err
		}
	}
	return w.files.Write(wal.FileName(m.First, wal.ManifestSuffix), w.order.Last)
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
