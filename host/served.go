package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/internal/flock"
	"github.com/custody-project/custody/internal/regular"
)

// ServedError refuses to add to the log of a home whose key signs the log of a service. Two logs under one key and name are no
// different from a fork.
type ServedError struct{ Dir string }

// Error implements error.
func (e *ServedError) Error() string {
	return fmt.Sprintf("%s is the directory of custody host, whose service has the only log of this host: nothing else can be recorded under its key", e.Dir)
}

// Hint returns what to do about it.
func (*ServedError) Hint() string {
	return "call the command without CUSTODY_HOME, so that the service carries it out; commands about the service's records: as its user, with CUSTODY_HOST and its CUSTODY_HOME"
}

// Signed is the directory of what the key has signed for a service. If it exists, the service's log is the only one under this key.
func (l Layout) Signed() string { return l.shared("signed") }

// Served returns a ServedError if the log under this home's key is that of a service, and this process is not the service.
func (l ManifestLog) Served() error {
	if l.host.signing.client() != nil {
		return nil // the process with the key refuses a second log
	}
	_, err := os.Lstat(l.host.Signed())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return &ServedError{l.host.Dir}
}

// hold keeps the log from becoming that of a service, until the caller closes the file; nil: this process is the service.
func (l ManifestLog) hold(ctx context.Context) (*os.File, error) {
	if l.host.signing.client() != nil {
		return nil, nil
	}
	f, err := l.lock(ctx, unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	if err := l.Served(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// lock takes the lock under which a log gets or loses its writers.
func (l ManifestLog) lock(ctx context.Context, how int) (*os.File, error) {
	f, err := regular.OpenFile(l.host.path("log.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock.Lock(ctx, f, how); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// letGo ends hold.
func letGo(f *os.File) {
	if f != nil {
		f.Close()
	}
}
