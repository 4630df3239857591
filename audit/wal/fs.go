package wal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/internal/regular"
)

// FS has every file operation of a Log, so that tests can inject a fault into
// each of them. Paths are as given to Create and Recover, joined with a name.
type FS interface {
	MkdirAll(dir string) error
	SyncDir(dir string) error
	ReadDir(dir string) ([]string, error)
	ReadFile(path string) ([]byte, error)
	// Create creates or truncates a file, Open opens an existing one; both for reading and writing.
	Create(path string) (File, error)
	Open(path string) (File, error)
	Rename(from, to string) error
	Remove(path string) error
	// Lock acquires an exclusive flock until the Closer is closed or the process ends. It returns ErrLocked if another
	// process holds it.
	Lock(path string) (io.Closer, error)
}

// File is an open file of an FS.
type File interface {
	io.WriterAt
	io.Closer
	Sync() error
	Truncate(size int64) error
}

// ErrLocked means that a live process writes the run.
var ErrLocked = errors.New("the run is being written by a live process")

// LockName is the name of the file that the writer of a log locks.
const LockName = "lock"

// Disk is the operating system's FS. Files are private to the user (0600, 0700).
type Disk struct{}

// MkdirAll implements FS.
func (Disk) MkdirAll(dir string) error { return os.MkdirAll(dir, 0o700) }

// ReadFile implements FS.
func (Disk) ReadFile(path string) ([]byte, error) { return regular.ReadFile(path) }

// Rename implements FS.
func (Disk) Rename(from, to string) error { return os.Rename(from, to) }

// Remove implements FS.
func (Disk) Remove(path string) error { return os.Remove(path) }

// Create implements FS.
func (Disk) Create(path string) (File, error) {
	return openFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

// Open implements FS.
func (Disk) Open(path string) (File, error) { return openFile(path, os.O_RDWR) }

// openFile returns a nil File, not a nil *os.File, with an error.
func openFile(path string, flag int) (File, error) {
	f, err := regular.OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// SyncDir implements FS.
func (Disk) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// ReadDir implements FS; names are sorted.
func (Disk) ReadDir(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// Lock implements FS. It retries for a quarter of a second, because a process that calls Locked holds the lock for a moment.
func (Disk) Lock(path string) (io.Closer, error) {
	f, err := regular.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for range 50 {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err != unix.EWOULDBLOCK {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err == nil {
		return f, nil
	}
	f.Close()
	if err == unix.EWOULDBLOCK {
		return nil, ErrLocked
	}
	return nil, fmt.Errorf("flock %s: %w", path, err)
}

// CheckLock returns a *regular.TypeError if the run's lock file is not a regular file:
// no process can hold it then. A missing lock is not an error.
func CheckLock(dir string) error { return regular.Check(filepath.Join(dir, LockName)) }

// Locked reports whether a live process writes the run in dir.
func Locked(dir string) bool {
	f, err := regular.Open(filepath.Join(dir, LockName))
	if err != nil {
		return false
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == unix.EWOULDBLOCK
}
