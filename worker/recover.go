package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/durable"
	"github.com/custody-project/custody/audit/proof/sealer"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/redact/pattern"
	"github.com/custody-project/custody/sandbox"
)

// recover closes the record of a worker that ended before it did.
func (w *worker) recover(ctx context.Context) (result Result, err error) {
	if w.redactor, err = pattern.NewRedactor(w.config.TagKey); err != nil {
		return result, err
	}
	run := w.config.Settings.Run
	dir := filepath.Join(logs, run)
	if err := storeSigned(dir, w.config.Last); err != nil {
		return result, fmt.Errorf("store the last signature of the record: %w", err)
	}
	log, _, err := wal.Recover(ctx, dir, wal.Options{Run: run, Mode: w.config.Mode, Sealer: sealer.NewRemote(w.conn)})
	if errors.Is(err, wal.ErrFinished) {
		return Result{Status: audit.StatusDone}, nil
	}
	if err != nil {
		return result, err
	}
	interrupted, err := sandbox.Interrupted(ctx, &record{audit.NewRecorder(log, w.redactor), log}, recordsOf(dir))
	result, closing := Result{Status: audit.StatusDone}, wal.Sealed
	if interrupted {
		result.Status, closing = audit.StatusInterrupted, wal.Interrupted
	}
	return result, errors.Join(err, log.Close(ctx, closing))
}

// storeSigned stores a manifest, and its leaves, that were signed for a segment of a log and not written. The segment's
// records are durable: they were before it was signed.
func storeSigned(dir string, manifest []byte) error {
	if manifest == nil {
		return nil
	}
	m, err := statement.ReadManifest(manifest)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, wal.FileName(m.First, wal.ManifestSuffix))
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if m.Count > 0 {
		var seg wal.Segment
		for f, err := range wal.ReadSegment(filepath.Join(dir, wal.FileName(m.First, wal.SegmentSuffix))) {
			if err != nil {
				return err
			}
			seg.Leaves = append(seg.Leaves, f.Leaf())
		}
		leaves, root := statement.Leaves(seg)
		if root != m.Root {
			return fmt.Errorf("the records from %d on are not those that were signed", m.First)
		}
		if err := durable.Replace(filepath.Join(dir, wal.FileName(m.First, wal.LeavesSuffix)), leaves, 0o600); err != nil {
			return err
		}
	}
	return durable.Replace(path, manifest, 0o600)
}

// recordsOf yields the records of a log, in order.
func recordsOf(dir string) iter.Seq2[audit.Record, error] {
	return func(yield func(audit.Record, error) bool) {
		segments, err := wal.Segments(dir)
		if err != nil {
			yield(audit.Record{}, err)
			return
		}
		for _, path := range segments {
			for f, err := range wal.ReadSegment(path) {
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
}
