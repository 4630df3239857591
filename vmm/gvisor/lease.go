package gvisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/vmm/confine"
)

// runDir holds the mount point of sandboxes, and a locked file for each that lives.
const runDir = "/run/custody/gvisor"

// lease names a sandbox on this host, and has ids that no other process uses. The kernel ends it with the process that holds it.
type lease struct {
	name string
	lock *os.File
	ids  *confine.Lease // nil while Sweep has it
}

func takeLease(id string) (*lease, error) {
	if err := os.MkdirAll(filepath.Join(runDir, "box"), 0o700); err != nil {
		return nil, err
	}
	for n := 0; ; n++ {
		l, err := tryLease(fmt.Sprintf("%s-%d", id, n))
		if errors.Is(err, unix.EWOULDBLOCK) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if l.ids, err = confine.LeaseUID(); err != nil {
			l.release()
			return nil, err
		}
		return l, nil
	}
}

func tryLease(name string) (*lease, error) {
	f, err := regular.OpenFile(filepath.Join(runDir, name+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	// The holder before removed the file at its end; a lock on a removed file is worth nothing.
	ours, err1 := f.Stat()
	there, err2 := os.Stat(f.Name())
	if err1 != nil || err2 != nil || !os.SameFile(ours, there) {
		f.Close()
		return nil, unix.EWOULDBLOCK
	}
	return &lease{name: name, lock: f}, nil
}

func (l *lease) release() {
	os.Remove(l.lock.Name())
	l.lock.Close()
	if l.ids != nil {
		l.ids.Release()
	}
}

// Sweep ends what is left of sandboxes whose Custody was killed: processes that still end, and
// their control groups. Mounts, devices and files of runsc are in namespaces that ended with them.
func Sweep() error {
	entries, err := os.ReadDir(runDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		name, isLock := strings.CutSuffix(e.Name(), ".lock")
		if !isLock {
			continue
		}
		l, err := tryLease(name)
		if err != nil {
			continue // it lives
		}
		if err := openGroup(name).remove(); err != nil {
			errs = append(errs, err)
			l.lock.Close() // the next start tries again
			continue
		}
		l.release()
	}
	return errors.Join(errs...)
}
