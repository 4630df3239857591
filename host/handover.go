package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit/durable"
	"github.com/custody-project/custody/audit/proof/statement"
)

// A host that was used before it got a service has a log, which the service must continue: a second one under the same key would be a fork. So
// the service takes it over, with the records that are in it.
//
//	the key's owner                         the service
//	log/ runs/ ...  --- copied ----------->  runs/ ... log.part/ --> log.taken/
//	before-service/ <-- Done: moved aside        log.taken/ --> log/
//
// A kill at any moment is followed by the same again, or by the rest. The service signs nothing meanwhile, because it has no log.
const (
	partLog  = "log.part"  // is being copied
	takenLog = "log.taken" // is complete
	// setAside has what was handed over.
	setAside = "before-service"
)

// recorded are the files and directories with the records of this host, the log last. log.entries is made again.
var recorded = []string{"runs", "stamps", "deleted", "holds", "erasing", "export", "custody.db", "custody.db-wal", "log.checkpoints", "log"}

// Handover is the side that has a log of the time before there was a service.
type Handover struct {
	host *Host
	last func() statement.Checkpoint
}

// NewHandover returns what h can hand over. last returns the checkpoint that was signed last for the service: after that of h's log, nothing is
// handed over.
func NewHandover(h *Host, last func() statement.Checkpoint) Handover { return Handover{h, last} }

// open reports whether there is a log that no service has taken over or replaced.
func (v Handover) open() (bool, error) {
	if _, err := os.Lstat(v.host.path("log")); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	r, err := v.host.ManifestLog().Reader()
	var published statement.Checkpoint
	if err == nil {
		published, err = v.host.ManifestLog().checkpoint(context.Background(), r)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return v.last().Size == 0, nil
	}
	return err == nil && published == v.last(), err
}

// Second returns an error if h has a log that is not part of the service's log: an earlier version of Custody has begun both.
func (v Handover) Second() error {
	open, err := v.open()
	if err != nil || open {
		return err
	}
	if _, err := os.Lstat(v.host.path("log")); err != nil {
		return nil
	}
	return fmt.Errorf("%s is a second log under the host's key, which an earlier version of Custody has begun beside the service's: nothing is added to it any more; "+
		"docs/witness.md has what to do about it", v.host.path("log"))
}

// Files returns the names of the files to hand over.
func (v Handover) Files() (names []string, err error) {
	if open, err := v.open(); !open {
		return nil, err
	}
	root, err := os.OpenRoot(v.host.Dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	for _, top := range recorded {
		err := fs.WalkDir(root.FS(), top, func(name string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				names = append(names, name)
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return names, nil
}

// Open opens one of the Files.
func (v Handover) Open(name string) (*os.File, error) {
	if open, err := v.open(); !open {
		return nil, cmp.Or(err, fs.ErrNotExist)
	}
	if top, _, _ := strings.Cut(name, "/"); !slices.Contains(recorded, top) || path.Clean(name) != name {
		return nil, fs.ErrNotExist
	}
	root, err := os.OpenRoot(v.host.Dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if info, err := root.Lstat(name); err != nil || !info.Mode().IsRegular() {
		return nil, cmp.Or(err, fs.ErrInvalid)
	}
	return root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
}

// Done moves aside what was handed over.
func (v Handover) Done() error {
	if open, err := v.open(); !open {
		return err
	}
	if err := os.MkdirAll(v.host.path(setAside), 0o700); err != nil {
		return err
	}
	for _, top := range recorded {
		if err := os.Rename(v.host.path(top), v.host.path(setAside, top)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return errors.Join(durable.SyncDir(v.host.path(setAside)), durable.SyncDir(v.host.Dir))
}

// Former is a Handover in another process.
type Former interface {
	Files(ctx context.Context) ([]string, error)
	Open(ctx context.Context, name string) (*os.File, error)
	Done(ctx context.Context) error
}

// takeover is the other side.
type takeover struct {
	host *Host
	from Former
}

// TakeOver takes the log over that a host has from the time before h was its service. If h has a log, it does nothing.
func TakeOver(ctx context.Context, h *Host, from Former) error {
	has := func() bool {
		_, err := os.Lstat(h.path("log"))
		return err == nil
	}
	if has() {
		return nil
	}
	lock, err := h.ManifestLog().lock(ctx, unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer lock.Close()
	if has() {
		return nil
	}
	if err := (takeover{h, from}).run(ctx); err != nil {
		return fmt.Errorf("take over the log from the time before the service: %w", err)
	}
	return nil
}

func (t takeover) run(ctx context.Context) error {
	if _, err := os.Lstat(t.host.path(takenLog)); errors.Is(err, fs.ErrNotExist) {
		names, err := t.from.Files(ctx)
		if err != nil || len(names) == 0 {
			return err
		}
		if err := t.copy(ctx, names); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	if err := t.from.Done(ctx); err != nil {
		return err
	}
	return errors.Join(os.Rename(t.host.path(takenLog), t.host.path("log")), durable.SyncDir(t.host.Dir))
}

// copy copies the files durably, and the log under another name.
func (t takeover) copy(ctx context.Context, names []string) error {
	root, err := os.OpenRoot(t.host.Dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.RemoveAll(partLog); err != nil {
		return err
	}
	for _, name := range names {
		to := name
		if rest, ok := strings.CutPrefix(name, "log/"); ok {
			to = filepath.Join(partLog, rest)
		}
		if err := t.file(ctx, root, to, name); err != nil {
			return err
		}
	}
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return err
	}
	return errors.Join(root.Rename(partLog, takenLog), dir.Sync())
}

// file copies one file.
func (t takeover) file(ctx context.Context, root *os.Root, to, name string) error {
	src, err := t.from.Open(ctx, name)
	if err != nil {
		return err
	}
	defer src.Close()
	if err := root.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	dst, err := root.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}
