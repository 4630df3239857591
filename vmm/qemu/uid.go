package qemu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/internal/regular"
)

// Each QEMU process runs as a uid of its own out of a range that no
// distribution hands out to users, so that two of them share nothing.
const (
	uidFirst = 0x43_000000
	uidCount = 4096
	uidDir   = "/run/custody/uid"
)

// uidLease holds one uid, on this host and not only in this process. The
// kernel ends it with the process that holds it.
type uidLease struct {
	uid  int
	lock *os.File
}

var errLeased = errors.New("leased by another process")

// leaseUID takes the first free uid.
func leaseUID() (*uidLease, error) {
	if err := os.MkdirAll(uidDir, 0o700); err != nil {
		return nil, err
	}
	for uid := uidFirst; uid < uidFirst+uidCount; uid++ {
		l, err := tryUID(uid)
		if err == nil && caged(uid) { // by a process that hangs and will not die
			l.release()
			continue
		}
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, errLeased) {
			return nil, fmt.Errorf("lease a uid: %w", err)
		}
	}
	return nil, fmt.Errorf("all %d uids for VMs are in use on this host", uidCount)
}

func tryUID(uid int) (*uidLease, error) {
	f, err := regular.OpenFile(filepath.Join(uidDir, strconv.Itoa(uid)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, errLeased
	}
	// The holder before us removed the file at the end; a lock on a removed file is worth nothing.
	ours, err1 := f.Stat()
	there, err2 := os.Stat(f.Name())
	if err1 != nil || err2 != nil || !os.SameFile(ours, there) {
		f.Close()
		return nil, errLeased
	}
	return &uidLease{uid: uid, lock: f}, nil
}

func (l *uidLease) release() {
	os.Remove(l.lock.Name())
	l.lock.Close()
}

// Sweep removes the control groups of machines whose Custody was killed. A
// machine's group has its uid for a name, so a lease reports whether it lives.
func Sweep() error {
	groups, err := os.ReadDir(filepath.Join("/sys/fs/cgroup", v1Controller(), cagePrefix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, g := range groups {
		uid, err := strconv.Atoi(g.Name())
		if err != nil || !g.IsDir() {
			continue
		}
		l, err := tryUID(uid)
		if err != nil {
			continue // it lives
		}
		if err := awaitEmpty(func() error { return removeCage(uid) }); !errors.Is(err, unix.EBUSY) {
			errs = append(errs, err) // who hangs in the kernel keeps group and uid: a later start removes them
		}
		l.release()
	}
	return errors.Join(errs...)
}

// caged reports whether there is a control group for a machine with this uid.
func caged(uid int) bool {
	_, err := os.Stat(filepath.Join("/sys/fs/cgroup", v1Controller(), cagePrefix, strconv.Itoa(uid)))
	return err == nil
}

// awaitEmpty repeats a removal for a while: a process that was killed holds
// its group until its memory has been given back.
func awaitEmpty(remove func() error) error {
	for range 200 {
		err := remove()
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
	return remove()
}
