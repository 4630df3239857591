package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit/durable"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/internal/flock"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/sqlite"
)

// Kept is a run that is older than delete_after and is not deleted, with the reason.
type Kept struct {
	Run string
	Why error
}

// Reasons for which a run that is due is not deleted.
var (
	errNotWhole    = errors.New("the store or a checkpoint lacks a part of it")
	errNotExported = errors.New("an exporter that host.yaml names has not sent all of it")
	errHeld        = errors.New("it is on hold")
)

// lockWait bounds the time for which a deletion waits for readers of run directories: a verification, a bundle, fsck or
// rebuild.
const lockWait = 10 * time.Second

// expire deletes the runs that ended longer ago than host.yaml's delete_after. It deletes a run only if it has ended, is in the
// store, verifies under a checkpoint, was exported to the sinks that host.yaml names and has no hold. With dry it deletes nothing.
//
//	statement durable --> entry in the host's log --> directory renamed --> store's rows --> dead letters --> directory --> file rewritten
//
// If the process dies in between, Tidy or the next expire continues from the statement.
func (d Deletions) expire(ctx context.Context, dry bool) (deleted []string, kept []Kept, err error) {
	if d.host.config.DeleteAfter == 0 || !d.host.config.localStore() {
		return nil, nil, nil
	}
	runs, err := d.host.RunLogs().all()
	if err != nil {
		return nil, nil, err
	}
	var errs []error
	unsent, err := d.unsent(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, run := range runs {
		m, signed, due := d.expired(run)
		if !due {
			continue
		}
		if ctx.Err() != nil {
			errs = append(errs, fmt.Errorf("not all runs that are due were deleted: %w", context.Cause(ctx)))
			break
		}
		if why := d.keep(ctx, run, unsent); why != nil {
			kept = append(kept, Kept{run, why})
			continue
		}
		if !dry {
			if err := d.deleteRun(ctx, m, signed); err != nil {
				errs = append(errs, fmt.Errorf("run %s: delete: %w", run, err))
				continue
			}
		}
		deleted = append(deleted, run)
	}
	if !dry {
		errs = append(errs, d.deleteAgain(ctx), d.scrub(ctx))
	}
	return deleted, kept, errors.Join(errs...)
}

// expired returns the closing manifest of a run that ended before delete_after, and its signed form.
func (d Deletions) expired(run string) (m statement.Manifest, signed []byte, due bool) {
	files, _ := filepath.Glob(filepath.Join(d.host.RunDir(run), "*"+wal.ManifestSuffix)) // the pattern is good
	if len(files) == 0 || d.host.RunLogs().Live(run) {
		return m, nil, false
	}
	signed, err := regular.ReadFile(files[len(files)-1])
	if err == nil {
		m, _, err = d.host.RunLogs().openManifest(signed)
	}
	if err != nil || m.Closing == wal.Open {
		return m, nil, false
	}
	return m, signed, time.Since(m.SealedAt) > time.Duration(d.host.config.DeleteAfter)
}

// unsent lists the runs that were not sent completely to a sink that host.yaml names.
func (d Deletions) unsent(ctx context.Context) (map[string]bool, error) {
	all := map[string]bool{}
	if len(d.host.config.Export) == 0 {
		return all, nil
	}
	st, err := sqlite.Open(ctx, d.host.storePath())
	if err != nil {
		return nil, err
	}
	for _, sink := range d.host.config.Export {
		at, err := export.ReadCursor(d.host.Exports(), sink.Name)
		if err != nil {
			return nil, errors.Join(err, st.Close())
		}
		behind, err := st.Behind(ctx, at.Feed)
		if err != nil {
			return nil, errors.Join(err, st.Close())
		}
		for run := range behind {
			all[run] = true
		}
	}
	return all, st.Close()
}

// keep returns the reason for which a run that is due has to stay, nil if it can be deleted. A record that does not
// verify stays, because it is evidence.
func (d Deletions) keep(ctx context.Context, run string, unsent map[string]bool) error {
	switch {
	case !d.host.RunLogs().HasWhole(run):
		return errNotWhole
	case unsent[run]:
		return errNotExported
	case d.host.Retention().IsHeld(run):
		return errHeld
	}
	trusted, err := d.host.Keys().Trusted()
	if err != nil {
		return err
	}
	e, closeEvidence, err := d.host.Proofs().OfRun(ctx, "", run)
	if err != nil {
		return err
	}
	report, err := proof.Verify(ctx, e, proof.Trust{Keys: trusted})
	if err == nil {
		err = SameRun(run, report)
	}
	if err = errors.Join(err, closeEvidence()); err != nil {
		return fmt.Errorf("it does not verify, so it is not deleted: %w", err)
	}
	return nil
}

// deleteRun signs the statement of a run's deletion, and deletes it. closing is the signed form of the closing manifest m.
func (d Deletions) deleteRun(ctx context.Context, m statement.Manifest, closing []byte) error {
	if err := d.host.ManifestLog().Served(); err != nil {
		return err
	}
	unlock, err := d.lockRuns(ctx, unix.LOCK_EX, lockWait)
	if err != nil {
		return err
	}
	defer unlock()
	if d.host.RunLogs().Live(m.Run) || d.host.Retention().IsHeld(m.Run) { // it may have changed meanwhile
		return nil
	}
	st, err := d.host.Store(ctx)
	if err != nil {
		return err
	}
	run, err := st.Run(ctx, "", m.Run)
	if err := errors.Join(err, st.Close()); err != nil {
		return err
	}
	key, err := d.host.Keys().Signing()
	if err != nil {
		return err
	}
	signed, err := statement.Deletion{
		Run: m.Run, Tenant: m.Tenant, Began: run.Began(), Ended: m.SealedAt, Records: run.Events, Segments: m.Segment + 1,
		Manifest: statement.Digest(closing), Rule: statement.DeleteRule(time.Duration(d.host.config.DeleteAfter)), Time: time.Now(),
	}.Sign(key.With(closing))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(d.host.path("deleted"), 0o700); err != nil {
		return err
	}
	if !d.stated(m.Run) {
		if err := durable.Replace(d.file(m.Run), signed, 0o600); err != nil {
			return err
		}
	}
	return d.remove(ctx, m.Run)
}

// goingPrefix begins the name of a run's directory while it is being removed.
const goingPrefix = ".going-"

// remove carries out a signed deletion, except for rewriting the store's file. It can be repeated. The caller has locked the runs.
func (ds Deletions) remove(ctx context.Context, run string) error {
	d, signed, err := ds.open(run)
	if err != nil {
		return err
	}
	log, err := ds.host.ManifestLog().open(ctx)
	if err != nil {
		return err
	}
	_, entry := d.Leaves(signed)
	err = log.enter(ctx, entry)
	if err := errors.Join(err, log.close(ctx)); err != nil {
		return fmt.Errorf("host log: %w", err)
	}
	if _, err := ds.of(ctx, run); err != nil { // it also requires the closing manifest
		return err
	}
	going := ds.host.path("runs", goingPrefix+run)
	if _, err := os.Lstat(ds.host.RunDir(run)); err == nil {
		err := errors.Join(os.RemoveAll(going), os.Rename(ds.host.RunDir(run), going), durable.SyncDir(ds.host.path("runs")))
		if err != nil {
			return err
		}
	}
	st, err := sqlite.Open(ctx, ds.host.storePath())
	if err != nil {
		return err
	}
	if err := errors.Join(st.Delete(ctx, run), st.Close()); err != nil {
		return err
	}
	names, err := export.Names(ds.host.Exports())
	if err != nil {
		return err
	}
	for _, name := range names {
		letters, err := export.OpenDead(ds.host.Exports(), name, 0, 0)
		if err == nil {
			_, err = letters.ForgetRun(ctx, run)
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(os.RemoveAll(going), os.RemoveAll(ds.host.Retention().holdFile(run)), durable.SyncDir(ds.host.path("runs")))
}

// finish completes deletions that were interrupted. It does not wait for readers of runs.
func (d Deletions) finish(ctx context.Context) error {
	left, err := d.unfinished()
	if err != nil {
		return err
	}
	return d.removeAll(ctx, left, 0)
}

// halfDeleted names the deletions that are not in the host's log yet, or whose run is partly removed. It leaves out
// deleted runs that are whole: someone put them back, which Fsck reports.
func (d Deletions) halfDeleted(ctx context.Context) ([]string, error) {
	left, err := d.unfinished()
	return slices.DeleteFunc(left, func(run string) bool {
		_, going := os.Lstat(d.host.path("runs", goingPrefix+run))
		_, logged := d.of(ctx, run)
		return going != nil && logged == nil
	}), err
}

// unfinished names the runs that have a signed deletion and still have a directory.
func (d Deletions) unfinished() (left []string, err error) {
	entries, err := os.ReadDir(d.host.path("runs"))
	for _, e := range entries {
		if run := strings.TrimPrefix(e.Name(), goingPrefix); isRun(run) && d.stated(run) {
			left = append(left, run)
		}
	}
	return left, err
}

// deleteAgain removes deleted runs that are back in the store, for example from a backup.
func (d Deletions) deleteAgain(ctx context.Context) error {
	runs, err := d.all()
	if err != nil || len(runs) == 0 {
		return err
	}
	st, err := sqlite.Open(ctx, d.host.storePath())
	if err != nil {
		return err
	}
	there, err := st.Has(ctx, runs...)
	if err := errors.Join(err, st.Close()); err != nil {
		return err
	}
	return d.removeAll(ctx, there, lockWait)
}

func (d Deletions) removeAll(ctx context.Context, runs []string, wait time.Duration) error {
	if len(runs) == 0 {
		return nil
	}
	unlock, err := d.lockRuns(ctx, unix.LOCK_EX, wait)
	if err != nil {
		var held *flock.HeldError
		if wait == 0 && errors.As(err, &held) {
			return nil // the next command continues
		}
		return err
	}
	defer unlock()
	var errs []error
	for _, run := range runs {
		if wal.Locked(d.host.RunDir(run)) {
			continue // another process removes it
		}
		if err := d.remove(ctx, run); err != nil {
			errs = append(errs, fmt.Errorf("run %s: delete: %w", run, err))
		}
	}
	return errors.Join(errs...)
}

// scrub removes the bytes of deleted rows from the store's file, and the directories and files of runs' records
// that killed processes left behind.
func (d Deletions) scrub(ctx context.Context) error {
	if _, err := os.Stat(d.host.storePath()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if runs, err := d.all(); err != nil || len(runs) == 0 {
		return err
	}
	unlock, err := d.lockRuns(ctx, unix.LOCK_EX, lockWait)
	if err != nil {
		return err
	}
	defer unlock()
	built, err := filepath.Glob(d.host.path(rebuiltPrefix + "*"))
	for _, dir := range built {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	st, openErr := sqlite.Open(ctx, d.host.storePath())
	if openErr != nil {
		return errors.Join(err, openErr)
	}
	return errors.Join(err, st.Scrub(ctx), st.Close())
}

// lockRuns locks the directories of all runs, shared for readers, exclusively for deletions. It locks $CUSTODY_HOME
// itself.
func (d Deletions) lockRuns(ctx context.Context, how int, wait time.Duration) (unlock func() error, err error) {
	dir, err := os.Open(d.host.Dir)
	if err != nil {
		return nil, err
	}
	if err := flock.LockWithin(ctx, dir, how, max(wait, time.Millisecond)); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir.Close, nil
}

// readRuns is lockRuns for readers.
func (d Deletions) readRuns(ctx context.Context) (unlock func() error, err error) {
	return d.lockRuns(ctx, unix.LOCK_SH, flock.Limit)
}

var _ store.Store = remembering{}
