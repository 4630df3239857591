package state

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit/durable"
	"github.com/custody-project/custody/internal/flock"
	"github.com/custody-project/custody/store"
)

// Suffix ends the names of the files of snapshots, after the ID of the run.
const Suffix = ".snapshot"

const (
	tempSuffix = ".part" // of a file that is being written or removed; its name begins with a dot
	lockFile   = "lock"
)

// files is the directory of the snapshots. The flock of a file states who uses it.
type files string

func (d files) path(run string) string { return filepath.Join(string(d), run+Suffix) }

// lock excludes other processes that make room.
func (d files) lock(ctx context.Context) (unlock func(), err error) {
	path := filepath.Join(string(d), lockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("paused states: %w", err)
	}
	if err := flock.Lock(ctx, f, unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("paused states: %w", err)
	}
	return func() { f.Close() }, nil
}

// newTemp creates a temporary file for a snapshot of a run, with an exclusive flock. A process that cleans can remove the file before it is locked.
func (d files) newTemp(ctx context.Context, run string) (*os.File, error) {
	for {
		f, err := os.OpenFile(d.tempPath(run), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, err
		}
		if err := flock.Lock(ctx, f, unix.LOCK_EX); err != nil {
			return nil, errors.Join(err, os.Remove(f.Name()), f.Close())
		}
		if same(f, f.Name()) {
			return f, nil
		}
		f.Close()
	}
}

func (d files) tempPath(run string) string {
	return filepath.Join(string(d), "."+run+"."+rand.Text()+tempSuffix)
}

// same reports whether path is the name of an open file.
func same(f *os.File, path string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(path)
	return err == nil && os.SameFile(open, named)
}

// open opens the file of a run's snapshot with a flock. It does not wait: the error is ErrNotFound or ErrClaimed.
func (d files) open(ctx context.Context, run string, how int) (*os.File, error) {
	if !store.ValidRun(run) {
		return nil, fmt.Errorf("%.80q is not the ID of a run", run)
	}
	for {
		f, err := openFile(d.path(run), os.O_RDWR)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, ErrNotFound
		}
		if err != nil {
			return nil, err
		}
		if err := tryLock(ctx, f, how); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if same(f, d.path(run)) {
			return f, nil
		}
		f.Close() // it was replaced or removed before the lock
	}
}

// tryLock takes a flock without waiting.
func tryLock(ctx context.Context, f *os.File, how int) error {
	err := flock.LockWithin(ctx, f, how, 0)
	var held *flock.HeldError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &held):
		return ErrClaimed
	}
	return err
}

// remove removes a file that this process has locked exclusively. It overwrites the wrapped key first, so that the blocks on the disk
// and a name that returns after a power failure are of no use.
func (d files) remove(f *os.File, path string) error {
	temp := d.tempPath(strings.TrimSuffix(filepath.Base(path), Suffix)) // from here on, a clean removes it
	if err := os.Rename(path, temp); err != nil {
		return err
	}
	return errors.Join(wipe(f), os.Remove(temp), durable.SyncDir(string(d)))
}

// wipe overwrites the part of a file that has the wrapped key.
func wipe(f *os.File) error {
	info, err := f.Stat()
	if err == nil {
		_, err = f.WriteAt(make([]byte, min(maxHeader, info.Size())), 0)
	}
	return errors.Join(err, f.Sync())
}

// clean removes the temporary files of dead processes.
func (d files) clean() error {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return fmt.Errorf("paused states: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") && strings.HasSuffix(e.Name(), tempSuffix) {
			_, err := d.cleanTemp(filepath.Join(string(d), e.Name()))
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// cleanTemp removes a temporary file unless a process is writing or removing it.
func (d files) cleanTemp(path string) (gone bool, err error) {
	f, err := openFile(path, os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	if err != nil || !same(f, path) { // it has become a snapshot
		return err == nil, err
	}
	return true, errors.Join(wipe(f), os.Remove(path))
}

// runOf returns the run of a file, if it is a snapshot.
func runOf(e fs.DirEntry) (string, bool) {
	run, found := strings.CutSuffix(e.Name(), Suffix)
	return run, found && store.ValidRun(run) && e.Type().IsRegular()
}

// size returns the bytes of all snapshots but that of one run. It does not read them.
func (d files) size(without string) (total int64, err error) {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return 0, fmt.Errorf("paused states: %w", err)
	}
	for _, e := range entries {
		if run, found := runOf(e); !found || run == without {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was removed meanwhile
		}
		if err != nil {
			return 0, err
		}
		total += info.Size()
	}
	return total, nil
}

// eraseTemps removes the temporary files of a run.
func (d files) eraseTemps(run string) error {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return err
	}
	for _, e := range entries {
		rest, found := strings.CutPrefix(e.Name(), "."+run+".")
		if !found || strings.ContainsRune(strings.TrimSuffix(rest, tempSuffix), '.') || !strings.HasSuffix(rest, tempSuffix) {
			continue
		}
		gone, err := d.cleanTemp(filepath.Join(string(d), e.Name()))
		if err == nil && !gone {
			err = ErrClaimed
		}
		if err != nil {
			return fmt.Errorf("erase what is being written of the paused state of run %s: %w", run, err)
		}
	}
	return nil
}
