package redteam

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// scratch is the directory of a suite's files. The suite holds its lock.
type scratch struct {
	dir  string
	lock *os.File
}

// young is the age up to which a directory may still be unlocked because its suite is just starting.
const young = time.Minute

// newScratch makes a directory, and removes the directories of suites that were killed.
func newScratch() (*scratch, error) {
	const prefix = "custody-redteam-"
	old, err := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	if err != nil {
		return nil, err
	}
	for _, dir := range old {
		if err := removeDead(dir); err != nil {
			return nil, fmt.Errorf("remove what a killed suite left: %w", err)
		}
	}
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		return nil, err
	}
	s := &scratch{dir: dir}
	if s.lock, err = os.Open(dir); err == nil {
		err = unix.Flock(int(s.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), os.RemoveAll(dir))
	}
	return s, nil
}

// removeDead removes a directory of this user that is not locked.
func removeDead(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || time.Since(info.ModTime()) < young {
		return nil // removed already, or not a suite's
	}
	f, err := os.OpenFile(dir, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil // removed already, or not readable
	}
	defer f.Close()
	var owner unix.Stat_t
	if unix.Fstat(int(f.Fd()), &owner) != nil || int(owner.Uid) != os.Geteuid() {
		return nil // another user's
	}
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil // its suite is running
	}
	return os.RemoveAll(dir)
}

func (s *scratch) remove() error { return errors.Join(os.RemoveAll(s.dir), s.lock.Close()) }
