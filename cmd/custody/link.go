package main

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

// linkFile holds the link with the one-time token of a service whose standard output others may keep, as the journal
// does. The service holds a lock on it; a file without a lock was left by a process that was killed.
type linkFile struct {
	file *os.File
	gone *time.Timer
}

// linkPrefix begins the name of each; the port follows.
const linkPrefix = "link-"

// keepLink writes the link of who listens at address into a file in dir that only its owner can read, for as long as it is good.
func keepLink(ctx context.Context, dir, address, link string, good time.Duration) (*linkFile, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	if err := flock.Lock(ctx, d, unix.LOCK_EX); err != nil { // one at a time makes and removes files
		return nil, err
	}
	left, err := filepath.Glob(filepath.Join(dir, linkPrefix+"*"))
	if err != nil {
		return nil, err
	}
	for _, old := range left {
		if f, err := lockFile(old, os.O_RDONLY); err == nil {
			os.Remove(old) // an error: the next start tries again, and the token in it is dead
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
	l.gone = time.AfterFunc(good, func() { os.Remove(f.Name()) })
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

// remove ends the file. It can be called for none.
func (l *linkFile) remove() {
	if l == nil {
		return
	}
	if l.gone != nil {
		l.gone.Stop()
	}
	os.Remove(l.file.Name()) // an error: it is gone already
	l.file.Close()
}

// shown reports whether standard output is a terminal: its text is shown, and kept in no log.
func (a *app) shown() bool {
	return isTerminal(a.stdout)
}
