package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/sealer"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/sandbox"
	"github.com/custody-project/custody/store"
)

// Tidy closes the logs of runs whose process died, completes interrupted erasures and deletions, and ships what is
// missing to a store on this host; Ship does that for a store elsewhere. It reports each run that it closes to notice, in
// one line. Several processes may run it concurrently. It leaves live runs alone.
func (h *Host) Tidy(ctx context.Context, notice func(string)) error {
	return recovery{h}.tidy(ctx, notice)
}

func (r recovery) tidy(ctx context.Context, notice func(string)) error {
	errs := []error{r.host.Deletions().finish(ctx)}
	runs, err := r.host.RunLogs().all()
	if err != nil {
		return err
	}
	for _, run := range runs {
		if r.host.RunLogs().HasWhole(run) || wal.Locked(r.host.RunDir(run)) || !r.host.RunLogs().begun(run) {
			continue
		}
		if err := r.finish(ctx, run, notice); err != nil {
			errs = append(errs, fmt.Errorf("run %s: %w", run, err))
		}
	}
	errs = append(errs, r.host.Keys().logRotations(ctx), r.host.Erasures().finish(ctx))
	if r.host.config.Transport == nil {
		errs = append(errs, r.host.Shipping().Ship(ctx, false, func(string) {}))
	}
	return errors.Join(append(errs, r.removeUnborn())...)
}

// begun reports whether anything of a run was ever written. If not, its process is still creating the directory, or died
// while doing so; either way there is nothing to close.
func (l RunLogs) begun(run string) bool {
	for _, suffix := range []string{wal.SegmentSuffix, wal.ManifestSuffix} {
		files, _ := filepath.Glob(filepath.Join(l.host.RunDir(run), "*"+suffix))
		for _, file := range files {
			if info, err := os.Stat(file); err == nil && info.Size() > 0 {
				return true
			}
		}
	}
	return false
}

// removeUnborn removes the directories of runs whose process died before it wrote
// anything. It removes none while any run is live: the directory might belong to that run (see Begin).
func (r recovery) removeUnborn() error {
	nursery, err := os.Open(r.host.path("runs"))
	if err != nil {
		return err
	}
	defer nursery.Close()
	if unix.Flock(int(nursery.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil
	}
	runs, err := r.host.RunLogs().all()
	if err != nil {
		return err
	}
	var errs []error
	for _, run := range runs {
		if !r.host.RunLogs().begun(run) {
			errs = append(errs, os.RemoveAll(r.host.RunDir(run)))
		}
	}
	return errors.Join(errs...)
}

func (r recovery) finish(ctx context.Context, run string, notice func(string)) error {
	closed, err := r.recover(ctx, run)
	if errors.Is(err, wal.ErrLocked) || errors.Is(err, sealer.ErrLive) {
		return nil // it is live, or another process closes it
	}
	if err != nil {
		return err
	}
	if closed {
		notice("run " + run + " was interrupted; its record is closed now")
	}
	return nil
}

// recover closes the log of a run whose process died. It reports whether that was necessary.
func (rc recovery) recover(ctx context.Context, run string) (bool, error) {
	if rc.closes(run) {
		return rc.close(ctx, run)
	}
	dir := rc.host.RunDir(run)
	key, err := rc.host.Keys().Signing()
	if err != nil {
		return false, err
	}
	facts, err := rc.host.RunLogs().facts(run)
	if err != nil {
		return false, err
	}
	if err := rc.host.Keys().complete(ctx, run); err != nil {
		return false, err
	}
	// Do not wait here for space on a full disk: the next start closes the log.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	log, _, err := wal.Recover(ctx, dir, wal.Options{Run: run, Sealer: rc.host.Keys().sealer(key, run, facts), OnStall: cancel})
	if errors.Is(err, wal.ErrFinished) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	tag, err := rc.host.TagKey()
	if err != nil {
		return false, err
	}
	os.Remove(filepath.Join(dir, controlSocket)) // the dead process left it
	r := &Run{Recorder: audit.NewRecorder(log, redact.New(tag)), log: log}
	interrupted, err := sandbox.Interrupted(ctx, r, "", rc.host.RunLogs().records(run))
	closing := wal.Sealed
	if interrupted {
		closing = wal.Interrupted
	}
	if err != nil {
		cancel(err)
	}
	if err := errors.Join(log.Close(ctx, closing), context.Cause(ctx)); err != nil {
		return false, err
	}
	return interrupted, nil
}

// Has reports whether a run has a log on this host.
func (l RunLogs) Has(run string) bool {
	info, err := os.Stat(l.host.RunDir(run))
	return err == nil && info.IsDir() && isRun(run)
}

// HasOf reports whether a run has a log here and belongs to the tenant. An empty tenant matches any, as in store.Store's
// Run.
func (l RunLogs) HasOf(tenant, run string) bool {
	return l.Has(run) && store.OfTenant(tenant, l.tenantOf(run))
}

// Frames yields the frames of a run's log, in the form that a store takes.
func (l RunLogs) Frames(run string) iter.Seq2[store.Frame, error] { return l.framesFrom(run, 0) }

// frameOf converts a frame of the log to the form that a store takes.
func frameOf(f wal.Frame) store.Frame {
	if f.Erased {
		leaf := f.Leaf()
		return store.Frame{Seq: f.Seq, Erased: &leaf}
	}
	return store.Frame{Seq: f.Seq, Salt: f.Salt, Body: f.Bytes}
}

// records yields the decoded records of a run's log.
func (l RunLogs) records(run string) iter.Seq2[audit.Record, error] {
	return func(yield func(audit.Record, error) bool) {
		for f, err := range l.Frames(run) {
			var rec audit.Record
			if err == nil {
				err = json.Unmarshal(f.Body, &rec)
			}
			if !yield(rec, err) || err != nil {
				return
			}
		}
	}
}
