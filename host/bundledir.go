package host

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// bundlePrefix begins the names of the temporary directories of BundleReaders.
const bundlePrefix = "custody-bundle-"

// bundleDir makes a temporary directory and locks it.
func bundleDir() (dir string, lock *os.File, err error) {
	for range 100 { // sweepBundles of another process may remove one before it is locked
		if dir, err = os.MkdirTemp("", bundlePrefix); err != nil {
			return "", nil, err
		}
		if lock = lockDir(dir); lock != nil {
			return dir, lock, nil
		}
	}
	return "", nil, errors.New("another process removes new temporary directories in " + os.TempDir())
}

// sweepBundles removes this user's directories of BundleReaders whose process died: those that are not locked.
func sweepBundles() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), bundlePrefix+"*"))
	for _, dir := range dirs {
		if lock := lockDir(dir); lock != nil {
			os.RemoveAll(dir)
			lock.Close()
		}
	}
}

// lockDir locks a directory of this user. It returns nil if another process has the lock, or if there is no such directory.
func lockDir(dir string) *os.File {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), dir)
	opened, err := f.Stat()
	if err == nil && opened.Sys().(*syscall.Stat_t).Uid == uint32(os.Getuid()) && unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil {
		if now, err := os.Lstat(dir); err == nil && os.SameFile(opened, now) {
			return f
		}
	}
	f.Close()
	return nil
}
