package home

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/export"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/wal"
)

// Erasure says what is to be erased, why, and who asked for it.
type Erasure struct {
	Run, Reason, By string
	Seq             uint64
}

// Erase removes what a record said, here and in the store, and keeps its hash, so that
// the proof of the run still holds. First comes a signed statement, which the host's log
// gets an entry of: nobody can erase without that being seen.
//
//	statement durable --> entry in the host's log --> log's frame --> store's row
//
// A process that dies in between is followed by Tidy, which goes on from the statement.
func (h *Home) Erase(ctx context.Context, e Erasure) error {
	if !h.HasLog(e.Run) {
		return fmt.Errorf("run %s has no log on this host: erase on the host that recorded it", e.Run)
	}
	if wal.Locked(h.RunDir(e.Run)) {
		return fmt.Errorf("run %s goes on: wait for its end", e.Run)
	}
	path := filepath.Join(h.RunDir(e.Run), proof.ErasureName(e.Seq))
	if _, err := os.Stat(path); err == nil { // it was stated already
		return h.carryOut(ctx, e.Run, path)
	}
	f, err := h.frame(e.Run, e.Seq)
	if err != nil {
		return err
	}
	statement, err := proof.NewErasure(f, e.Reason, e.By, time.Now())
	if err != nil {
		return err
	}
	key, err := h.Key()
	if err != nil {
		return err
	}
	signed, err := statement.Sign(key)
	if err != nil {
		return err
	}
	if err := writeDurably(path, signed); err != nil {
		return err
	}
	return h.carryOut(ctx, e.Run, path)
}

// frame finds a record in the log.
func (h *Home) frame(run string, seq uint64) (wal.Frame, error) {
	segments, err := wal.Segments(h.RunDir(run))
	if err != nil {
		return wal.Frame{}, err
	}
	for _, path := range segments {
		for f, err := range wal.ReadSegment(path) {
			if err != nil || f.Seq == seq {
				return f, err
			}
		}
	}
	if h.IsPruned(run) {
		return wal.Frame{}, fmt.Errorf("seq %d is not in the log here: retention may have removed its segment", seq)
	}
	return wal.Frame{}, fmt.Errorf("run %s has no record %d", run, seq)
}

// carryOut does what a statement says. It can be repeated.
func (h *Home) carryOut(ctx context.Context, run, path string) error {
	signed, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	trusted, err := h.Trusted()
	if err != nil {
		return err
	}
	n, err := note.Open(signed, trusted)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	e, err := proof.ParseErasure(n.Text)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if e.Run != run {
		return fmt.Errorf("%s is about run %s", path, e.Run)
	}
	log, err := h.openNotary(ctx)
	if err != nil {
		return err
	}
	index, err := log.add(ctx, proof.ErasureLeaf(run, e.Seq, proof.Digest(signed)), true)
	if err == nil {
		err = log.publish(ctx, index)
	}
	if err := errors.Join(err, log.close(ctx)); err != nil {
		return fmt.Errorf("host log: %w", err)
	}
	if err := wal.Erase(h.RunDir(run), e.Seq); err != nil {
		return err
	}
	st, err := h.Store(ctx)
	if err != nil {
		return fmt.Errorf("the record is erased here, not in the store: %w", err)
	}
	if err := errors.Join(st.Erase(ctx, h.config.Tenant, run, e.Seq), st.Close()); err != nil {
		return fmt.Errorf("the record is erased here, not in the store: %w", err)
	}
	if err := h.forgetLetters(run, e.Seq); err != nil {
		return fmt.Errorf("the record is erased, not in the dead letters of exports: %w", err)
	}
	return writeDurably(path+doneSuffix, nil)
}

// forgetLetters removes a record from the dead letters of all sinks.
func (h *Home) forgetLetters(run string, seq uint64) error {
	names, err := export.Names(h.Exports())
	if err != nil {
		return err
	}
	for _, name := range names {
		letters, err := export.OpenDead(h.Exports(), name, 0, 0)
		if err == nil {
			_, err = letters.Forget(run, seq)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// doneSuffix marks a statement that was carried out to its end.
const doneSuffix = ".done"

// finishErasures goes on with the erasures of a run that were broken off.
func (h *Home) finishErasures(ctx context.Context, run string) error {
	files, _ := filepath.Glob(filepath.Join(h.RunDir(run), "*"+proof.ErasureSuffix)) // the pattern is good
	var errs []error
	for _, path := range files {
		if _, err := os.Stat(path + doneSuffix); err != nil {
			errs = append(errs, h.carryOut(ctx, run, path))
		}
	}
	return errors.Join(errs...)
}

// writeDurably puts a whole file in place.
func writeDurably(path string, text []byte) error {
	f, err := os.OpenFile(path+".tmp", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
