package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit/durable"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/internal/flock"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/notify"
)

// Erasure names the record to erase, the reason, and the user who asked for it.
type Erasure struct {
	Run, Reason, By string
	Seq             uint64
}

// Erase removes the contents of a record, here and in the store, and keeps its hash, so that the proof of the run still
// holds. It first signs a statement and enters it in the host's log, so that every erasure is visible.
//
//	statement durable --> entry in the host's log --> log's frame --> store's row
//
// If the process dies in between, Tidy continues from the statement.
func (es Erasures) Erase(ctx context.Context, e Erasure) error {
	return es.erase(ctx, e.Run, e.Seq, func() error {
		stated, err := es.State(e)
		if err != nil {
			return err
		}
		key, err := es.host.Keys().Signing()
		if err != nil {
			return err
		}
		_, err = proof.StateErasure(es.host.RunDir(e.Run), stated, key)
		return err
	})
}

// EraseSigned is Erase with a statement that another process with the host's key has signed, as State returned it.
func (es Erasures) EraseSigned(ctx context.Context, signed []byte) error {
	e, err := es.open(signed)
	if err != nil {
		return err
	}
	return es.erase(ctx, e.Run, e.Seq, func() error {
		f, err := es.frame(e.Run, e.Seq)
		if err == nil && f.Leaf() != e.Leaf {
			err = fmt.Errorf("the statement is about another record than seq %d of run %s", e.Seq, e.Run)
		}
		if err != nil {
			return err
		}
		return proof.KeepErasure(es.host.RunDir(e.Run), e, signed)
	})
}

// erase carries out an erasure after state has written its signed statement: from there on it is certain.
func (es Erasures) erase(ctx context.Context, run string, seq uint64, state func() error) error {
	if !es.host.RunLogs().Has(run) {
		return fmt.Errorf("run %s has no log on this host: erase it on the host that recorded it", run)
	}
	if wal.Locked(es.host.RunDir(run)) {
		return fmt.Errorf("run %s is live: wait for its end", run)
	}
	if err := es.host.ManifestLog().Served(); err != nil {
		return err
	}
	st, err := es.host.Store(ctx) // before the statement is written
	if err != nil {
		return err
	}
	if err := errors.Join(st.Close(), es.begin(run, seq)); err != nil {
		return err
	}
	if es.Stated(run, seq) { // by an earlier call
		return es.carryOut(ctx, run, seq, lockWait)
	}
	if err := state(); err != nil {
		return errors.Join(err, es.end(run, seq))
	}
	return es.carryOut(ctx, run, seq, lockWait)
}

// State returns the statement of an erasure, unsigned.
func (es Erasures) State(e Erasure) (statement.Erasure, error) {
	f, err := es.frame(e.Run, e.Seq)
	if err != nil {
		return statement.Erasure{}, err
	}
	return statement.NewErasure(f, e.Reason, e.By, time.Now())
}

// Stated reports whether a record has a signed statement of its erasure.
func (es Erasures) Stated(run string, seq uint64) bool {
	_, err := os.Stat(filepath.Join(es.host.RunDir(run), statement.ErasureName(seq)))
	return err == nil
}

// open returns the statement of an erasure that a key of this host has signed.
func (es Erasures) open(signed []byte) (e statement.Erasure, err error) {
	trusted, err := es.host.Keys().Trusted()
	if err != nil {
		return e, err
	}
	n, err := note.Open(signed, trusted)
	if err != nil {
		return e, err
	}
	return statement.ParseErasure(n.Text)
}

// frame finds a record in the log.
func (e Erasures) frame(run string, seq uint64) (wal.Frame, error) {
	segments, err := wal.Segments(e.host.RunDir(run))
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
	if e.host.Retention().IsPruned(run) {
		return wal.Frame{}, fmt.Errorf("seq %d is not in the log here: retention may have removed its segment", seq)
	}
	return wal.Frame{}, fmt.Errorf("run %s has no record %d", run, seq)
}

// carryOut carries out a signed erasure. It can be repeated. It waits for verifications, because log and store differ meanwhile.
func (es Erasures) carryOut(ctx context.Context, run string, seq uint64, wait time.Duration) error {
	unlock, err := es.host.Deletions().lockRuns(ctx, unix.LOCK_EX, wait)
	if err != nil {
		return fmt.Errorf("the erasure is signed; the next command carries it out: %w", err)
	}
	defer unlock()
	path := filepath.Join(es.host.RunDir(run), statement.ErasureName(seq))
	signed, err := regular.ReadFile(path)
	if err != nil {
		return err
	}
	e, err := es.open(signed)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if e.Run != run || e.Seq != seq {
		return fmt.Errorf("%s is about seq %d of run %s", path, e.Seq, e.Run)
	}
	log, err := es.host.ManifestLog().open(ctx)
	if err != nil {
		return err
	}
	err = log.enter(ctx, statement.ErasureLeaf(run, e.Seq, statement.Digest(signed)))
	if err := errors.Join(err, log.close(ctx)); err != nil {
		return fmt.Errorf("host log: %w", err)
	}
	if err := wal.Erase(ctx, es.host.RunDir(run), e.Seq); err != nil && !(errors.Is(err, wal.ErrNoRecord) && es.host.Retention().IsPruned(run)) {
		return err // if retention removed the segment meanwhile, only the store has the record
	}
	st, err := es.host.Store(ctx)
	if err != nil {
		return fmt.Errorf("the record is erased in the log, but not in the store: %w", err)
	}
	if err := errors.Join(st.Erase(ctx, es.host.RunLogs().tenantOf(run), run, e.Seq), st.Close()); err != nil {
		return fmt.Errorf("the record is erased in the log, but not in the store: %w", err)
	}
	if err := es.forgetLetters(ctx, run, e.Seq); err != nil {
		return fmt.Errorf("the record is erased in the log and the store, but not in dead letters and notifications: %w", err)
	}
	return es.end(run, seq)
}

// forgetLetters removes a record from the dead letters of all sinks, and from the notifications that were not delivered yet.
func (e Erasures) forgetLetters(ctx context.Context, run string, seq uint64) error {
	names, err := export.Names(e.host.Exports())
	if err != nil {
		return err
	}
	for _, name := range names {
		letters, err := export.OpenDead(e.host.Exports(), name, 0, 0)
		if err == nil {
			_, err = letters.Forget(ctx, run, seq)
		}
		if err != nil {
			return err
		}
	}
	return notify.Forget(e.host.Notifications(), run, seq)
}

// erasing returns the path of the file that exists during an erasure. All are in one directory, named RUN.SEQ, so
// that interrupted erasures are found without reading every run.
func (e Erasures) erasing(run string, seq uint64) string {
	return e.host.path("erasing", fmt.Sprintf("%s.%d", run, seq))
}

func (e Erasures) begin(run string, seq uint64) error {
	if err := os.MkdirAll(e.host.path("erasing"), 0o700); err != nil {
		return err
	}
	return durable.Replace(e.erasing(run, seq), nil, 0o600)
}

func (e Erasures) end(run string, seq uint64) error { return os.Remove(e.erasing(run, seq)) }

// unfinished lists the erasures that are being carried out or were interrupted.
func (e Erasures) unfinished() (left []Erasure, err error) {
	entries, err := os.ReadDir(e.host.path("erasing"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, entry := range entries {
		run, n, _ := strings.Cut(entry.Name(), ".")
		if seq, err := strconv.ParseUint(n, 10, 64); err == nil { // other names are files that are being written
			left = append(left, Erasure{Run: run, Seq: seq})
		}
	}
	return left, err
}

// Finish completes interrupted erasures of a run, and reports whether there were any. It waits for readers of
// runs, so the caller must not be one.
func (es Erasures) Finish(ctx context.Context, run string) (any bool, err error) {
	left, err := es.unfinished()
	left = slices.DeleteFunc(left, func(e Erasure) bool { return e.Run != run })
	if err != nil || len(left) == 0 {
		return false, err
	}
	return true, es.carryOutAll(ctx, left, lockWait)
}

// finish completes interrupted erasures. It does not wait for readers of runs.
func (e Erasures) finish(ctx context.Context) error {
	left, err := e.unfinished()
	return errors.Join(err, e.carryOutAll(ctx, left, 0))
}

func (es Erasures) carryOutAll(ctx context.Context, erasures []Erasure, wait time.Duration) error {
	var errs []error
	for _, e := range erasures {
		run, seq := e.Run, e.Seq
		if _, err := os.Stat(filepath.Join(es.host.RunDir(run), statement.ErasureName(seq))); errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, es.end(run, seq)) // it has no statement
			continue
		}
		err := es.carryOut(ctx, run, seq, wait)
		if held := new(flock.HeldError); errors.As(err, &held) {
			continue // the record is being read: the next command continues
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
