package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/internal/flock"
)

// linkFile holds the login link with the one-time token of a service whose standard output is kept, such as in the systemd
// journal. The service holds a lock on it. A file without a lock is left from a process that was killed: the next service
// removes it.
type linkFile struct {
	file   *os.File
	expiry *time.Timer // removes the file when the link has expired
}

// linkPrefix begins the name of each; the port follows.
const linkPrefix = "link-"

// writeLink writes the login link of the service that listens at address to a file in dir that only its owner can read. The file is
// removed after validFor.
func writeLink(ctx context.Context, dir, address, link string, validFor time.Duration) (*linkFile, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	if err := flock.Lock(ctx, d, unix.LOCK_EX); err != nil { // one process at a time makes and removes files
		return nil, err
	}
	left, err := filepath.Glob(filepath.Join(dir, linkPrefix+"*"))
	if err != nil {
		return nil, err
	}
	for _, old := range left {
		if f, err := lockFile(old, os.O_RDONLY); err == nil {
			os.Remove(old) // an error: the next start tries again, and the token in it is not valid any more
			f.Close()
		}
	}
	f, err := lockFile(filepath.Join(dir, linkPrefix+port), os.O_CREATE|os.O_EXCL|os.O_WRONLY)
	if err != nil {
		return nil, fmt.Errorf("keep the link: %w", err)
	}
	l := &linkFile{file: f}
	if _, err := fmt.Fprintln(f, link); err != nil {
		l.remove()
		return nil, fmt.Errorf("keep the link: %w", err)
	}
	l.expiry = time.AfterFunc(validFor, func() { os.Remove(f.Name()) })
	return l, nil
}

func lockFile(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (l *linkFile) path() string { return l.file.Name() }

// remove removes the file; of nil it removes none.
func (l *linkFile) remove() {
	if l == nil {
		return
	}
	if l.expiry != nil {
		l.expiry.Stop()
	}
	os.Remove(l.file.Name()) // an error: it is gone already
	l.file.Close()
}
