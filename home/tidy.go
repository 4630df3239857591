package home

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
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/store"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/sandbox"
)

// Tidy closes the logs of runs whose process died, completes interrupted erasures and deletions, and carries what is
// missing into a store on this host; for one elsewhere Ship does that. It reports each run it closes to the user, in
// one line. It may run concurrently in several processes; live runs are left alone.
func (h *Home) Tidy(ctx context.Context, notice func(string)) error {
	errs := []error{h.finishDeletions(ctx)}
	runs, err := h.logs()
	if err != nil {
		return err
	}
	for _, run := range runs {
		if h.HasWhole(run) || wal.Locked(h.RunDir(run)) || !h.begun(run) {
			continue
		}
		if err := h.finish(ctx, run, notice); err != nil {
			errs = append(errs, fmt.Errorf("run %s: %w", run, err))
		}
	}
	errs = append(errs, h.logRotations(ctx), h.finishErasures(ctx))
	if h.config.Transport == nil {
		errs = append(errs, h.Ship(ctx, false, func(string) {}))
	}
	return errors.Join(append(errs, h.removeUnborn())...)
}

// begun reports whether anything of a run was ever written. If not, its process is just making the directory, or died
// over it; either way there is nothing to close.
func (h *Home) begun(run string) bool {
	for _, suffix := range []string{wal.SegmentSuffix, wal.ManifestSuffix} {
		files, _ := filepath.Glob(filepath.Join(h.RunDir(run), "*"+suffix))
		for _, file := range files {
			if info, err := os.Stat(file); err == nil && info.Size() > 0 {
				return true
			}
		}
	}
	return false
}

// removeUnborn removes the directories of runs that died before anything was
// written, unless some run goes on: it might be one of these (see Begin).
func (h *Home) removeUnborn() error {
	nursery, err := os.Open(h.path("runs"))
	if err != nil {
		return err
	}
	defer nursery.Close()
	if unix.Flock(int(nursery.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil
	}
	runs, err := h.logs()
	if err != nil {
		return err
	}
	var errs []error
	for _, run := range runs {
		if !h.begun(run) {
			errs = append(errs, os.RemoveAll(h.RunDir(run)))
		}
	}
	return errors.Join(errs...)
}

func (h *Home) finish(ctx context.Context, run string, notice func(string)) error {
	closed, err := h.recover(ctx, run)
	if errors.Is(err, wal.ErrLocked) {
		return nil // it lives, or another process is at it
	}
	if err != nil {
		return err
	}
	if closed {
		notice("run " + run + " was interrupted; its record is closed now")
	}
	return nil
}

// recover closes the log of a dead run. It reports whether that was necessary.
func (h *Home) recover(ctx context.Context, run string) (bool, error) {
	dir := h.RunDir(run)
	key, err := h.Key()
	if err != nil {
		return false, err
	}
	facts, err := proof.FactsOf(dir)
	if err != nil {
		return false, err
	}
	// Do not wait here for a full disk: the next start does what is left.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	log, _, err := wal.Recover(ctx, dir, wal.Options{Run: run, Sealer: proof.NewSealer(key, facts), OnStall: cancel})
	if errors.Is(err, wal.ErrFinished) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	tag, err := h.TagKey()
	if err != nil {
		return false, err
	}
	os.Remove(filepath.Join(dir, controlSocket)) // of the process that died
	r := &Run{Recorder: audit.NewRecorder(log, redact.New(tag)), log: log}
	interrupted, err := sandbox.Interrupted(ctx, r, h.records(run))
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

// HasLog reports whether there is a log of that name on this host.
func (h *Home) HasLog(run string) bool {
	info, err := os.Stat(h.RunDir(run))
	return err == nil && info.IsDir() && isRun(run)
}

// HasLogOf reports whether there is a log of the run and it belongs to that tenant, whose name is as store.Store's Run
// takes it.
func (h *Home) HasLogOf(tenant, run string) bool {
	return h.HasLog(run) && store.OfTenant(tenant, h.tenantOf(run))
}

// Frames yields what a run's log holds, as a store is given it.
func (h *Home) Frames(run string) iter.Seq2[store.Frame, error] { return h.framesFrom(run, 0) }

// frameOf is a frame of the log as a store is given it.
func frameOf(f wal.Frame) store.Frame {
	if f.Erased {
		leaf := f.Leaf()
		return store.Frame{Seq: f.Seq, Erased: &leaf}
	}
	return store.Frame{Seq: f.Seq, Salt: f.Salt, Body: f.Bytes}
}

// records yields the same, decoded.
func (h *Home) records(run string) iter.Seq2[audit.Record, error] {
	return func(yield func(audit.Record, error) bool) {
		for f, err := range h.Frames(run) {
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
