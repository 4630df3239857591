package confine

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/internal/regular"
)

// Each machine's process runs with its own uid, from a range that no distribution assigns
// to users, so that no two of them can access each other.
const (
	uidFirst = 0x43_000000
	uidCount = 4096
	uidDir   = "/run/custody/uid"
)

// Lease reserves a uid among all processes of this host. It is a file lock, which the
// kernel releases when the process ends.
type Lease struct {
	uid  int
	lock *os.File
}

var errLeased = errors.New("leased by another process")

// LeaseUID takes the first free uid.
func LeaseUID() (*Lease, error) {
	if err := os.MkdirAll(uidDir, 0o700); err != nil {
		return nil, err
	}
	for uid := uidFirst; uid < uidFirst+uidCount; uid++ {
		l, err := tryUID(uid)
		if err == nil && HasGroup(uid) { // a killed process that hangs still uses it
			l.Release()
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

func tryUID(uid int) (*Lease, error) {
	f, err := regular.OpenFile(filepath.Join(uidDir, strconv.Itoa(uid)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, errLeased
	}
	// The previous holder may have removed the file in the meantime. A lock on a removed file excludes no one.
	ours, err1 := f.Stat()
	there, err2 := os.Stat(f.Name())
	if err1 != nil || err2 != nil || !os.SameFile(ours, there) {
		f.Close()
		return nil, errLeased
	}
	return &Lease{uid: uid, lock: f}, nil
}

// UID is the leased uid.
func (l *Lease) UID() int { return l.uid }

// Ranges of ids, one for each uid that can be leased.
const (
	rangeFirst = 0x50_000000
	rangeSize  = 1 << 16
)

// Range returns the first of size ids that belong to this lease, for a user namespace.
func (l *Lease) Range() (first, size int) { return rangeFirst + (l.uid-uidFirst)*rangeSize, rangeSize }

// Abandon gives up the lease of a machine whose process does not end. Its control group keeps the uid in use; a later
// Sweep removes the group.
func (l *Lease) Abandon() { l.lock.Close() }

// namePrefix begins the names that Name makes.
const namePrefix = ".custody-"

// Name gives a file without a name one, in the directory in which it was made, so that it can be mounted, and opens it under
// that name. The caller closes the file and then calls Unname. If Custody is killed before, Sweep removes the name.
func (l *Lease) Name(f *os.File) (*os.File, error) {
	self := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	path, err := os.Readlink(self)
	if err != nil {
		return nil, err
	}
	name := filepath.Join(filepath.Dir(path), fmt.Sprintf("%s%d-%d", namePrefix, l.uid, os.Getpid()))
	if err := l.lock.Truncate(0); err != nil {
		return nil, err
	}
	if _, err := l.lock.WriteAt([]byte(name), 0); err != nil {
		return nil, err
	}
	if err := unix.Linkat(unix.AT_FDCWD, self, unix.AT_FDCWD, name, unix.AT_SYMLINK_FOLLOW); err != nil {
		return nil, &os.LinkError{Op: "link", Old: path, New: name, Err: err}
	}
	return regular.OpenFile(name, os.O_RDWR, 0)
}

// Unname removes the name that Name made.
func (l *Lease) Unname() error {
	err := l.removeName()
	return errors.Join(err, l.lock.Truncate(0))
}

func (l *Lease) removeName() error {
	b := make([]byte, unix.PathMax)
	n, err := l.lock.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if name := string(b[:n]); strings.HasPrefix(filepath.Base(name), namePrefix) {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Release gives up the lease, whose process has ended and whose control group has been removed.
func (l *Lease) Release() {
	os.Remove(l.lock.Name())
	l.lock.Close()
}

// Sweep removes the control groups of machines whose custody process was killed. A
// group is named by the machine's uid; it is in use if the uid is leased.
func Sweep() error {
	groups, err := os.ReadDir(filepath.Join("/sys/fs/cgroup", anyController(), cgroupParent))
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
			continue // in use
		}
		errs = append(errs, l.removeName())
		if err := awaitEmpty(func() error { return removeGroup(uid) }); !errors.Is(err, unix.EBUSY) {
			errs = append(errs, err) // a process that hangs in the kernel keeps its group and uid; a later Sweep removes them
		}
		l.Release()
	}
	return errors.Join(errs...)
}

// HasGroup reports whether a control group exists for this uid.
func HasGroup(uid int) bool {
	_, err := os.Stat(filepath.Join("/sys/fs/cgroup", anyController(), cgroupParent, strconv.Itoa(uid)))
	return err == nil
}

// awaitEmpty repeats a removal for a second while it fails with EBUSY: a killed process stays in
// its group until the kernel has freed its memory.
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
