package host

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/audit/proof/hostkey/remote"
	"github.com/custody-project/custody/audit/proof/sealer"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/store"
)

// Use makes the host sign through c, because only another process has the key; see Server. This process then reads only public
// files below keys, and cannot rotate the key. Use can be called again, with another connection.
func (k Keys) Use(c *remote.Client) {
	k.host.signing.mu.Lock()
	defer k.host.signing.mu.Unlock()
	k.host.signing.elsewhere = c
}

// Server returns the server of a process without the key, which runs the rest of this host with Use. dir has what the key has signed
// for that process; only the key's owner may write to it. If it is the Layout's Signed, no other process adds to a log from then on. A log that
// this home has must be continued, see Handover.
func (k Keys) Server(ctx context.Context, dir string) (_ *remote.Server, err error) {
	h := k.host
	lock, err := h.ManifestLog().lock(ctx, unix.LOCK_EX) // those who hold the log complete it first
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	published, err := regular.ReadFile(h.path("log", "checkpoint"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return remote.NewServer(remote.Options{
		Dir: dir, Key: k.Signing, Trusted: k.Trusted, Published: published,
		DeleteAfter: time.Duration(h.config.DeleteAfter), Prefix: store.AccessPrefix, Tenant: h.config.Tenant,
	})
}

// KeyElsewhereError is the failure of an operation that needs the private key, in a process that does not have it.
type KeyElsewhereError struct{}

// Error implements error.
func (*KeyElsewhereError) Error() string {
	return "this process does not have the host's signing key, which only signs for it"
}

// Hint returns the remedy.
func (*KeyElsewhereError) Hint() string { return "run it as root" }

// client returns the client of the process with the key; nil if this process has it.
func (v *heldKey) client() *remote.Client {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.elsewhere
}

// remoteKey returns the key of another process.
func remoteKey(c *remote.Client) (hostkey.Key, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), keyTimeout, errors.New("the process with the host's signing key does not answer"))
	defer cancel()
	return c.Key(ctx)
}

// sealer returns the sealer of a run that this process writes.
func (k Keys) sealer(key hostkey.Key, run string, facts statement.Facts) wal.Sealer {
	if c := k.host.signing.client(); c != nil {
		return c.Sealer(run, facts)
	}
	return statement.NewSealer(key, facts)
}

// complete stores the last manifest of a run that was signed for a process that died, if that process did not store it.
func (k Keys) complete(ctx context.Context, run string) error {
	c := k.host.signing.client()
	if c == nil {
		return nil
	}
	last, err := c.Last(ctx, run)
	if err != nil {
		return err
	}
	dir := k.host.RunDir(run)
	lock, err := wal.Disk{}.Lock(filepath.Join(dir, wal.LockName))
	if err != nil {
		return err
	}
	return errors.Join(sealer.Complete(wal.Disk{}, dir, last), lock.Close())
}
