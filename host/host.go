// Package host is the state of one machine under $CUSTODY_HOME, and how its
// parts work together. It needs no daemon.
//
//	host.yaml                optional settings (Config)
//	keys/host.key host.pub   the key that signs manifests (host.key.age: encrypted), and its public half
//	templates/               see package template
//	runs/<run>/              a run's log (package wal); "facts" are those of its manifests; "shipped" when the store has all of it
//	log/                     the host's log of all runs' manifests (package hostlog)
//	stamps/                  time stamps of its checkpoints, from a time-stamping authority
//	custody.db               the store (package sqlite)
//	deleted/ holds/          signed statements about runs that retention deleted; runs that it must not delete
//	serve/                   tokens of the API and exports that are being made (package access), saved views (package views)
//	projects/                the registered project files, in all versions (package registry)
//	export/                  the cursor of each sink, and the events that it refused
//
// Several processes share it. The process that holds a run's lock writes its log;
// the next process closes the logs of processes that died.
package host

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/custody-project/custody/audit/hostlog"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/clickhouse"
	"github.com/custody-project/custody/store/sqlite"
)

// Host is an open $CUSTODY_HOME. It is safe for concurrent use.
type Host struct {
	Layout
	// Warn, if set, is called with problems that do not end the operation.
	Warn func(string)
	// CloseLog, if set, closes the logs of sandboxes whose processes died; else this process reads them itself. It must be set before
	// the first use of the Host.
	CloseLog LogCloser
	// Outside speaks to other machines for this process.
	Outside Outside

	config  Config
	spool   spool
	signing heldKey
}

// Dir returns the directory of Custody's state: $CUSTODY_HOME, else custody below
// the XDG data directory.
func Dir() (string, error) {
	if dir := os.Getenv("CUSTODY_HOME"); dir != "" {
		return filepath.Abs(dir)
	}
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "custody"), nil
	}
	user, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("the directory for Custody's state is not known: set CUSTODY_HOME: %w", err)
	}
	return filepath.Join(user, ".local", "share", "custody"), nil
}

// Open opens a home, and makes the directory if needed. A full disk is not an error here: a run can wait for space later. For a
// directory that other users could change, the error has a Hint.
func Open(dir string) (*Host, error) { return OpenShared(dir, "") }

// OpenShared is like Open for a home whose settings, public keys, templates and registered projects are in another directory, shared, which
// only an administrator can change. Empty: they are in dir.
func OpenShared(dir, shared string) (*Host, error) {
	l := Layout{Dir: dir, Shared: shared}
	for _, d := range []string{dir, l.shared()} {
		if err := CheckOwner(d, 0o022); err != nil {
			return nil, &unsafeHome{d, err}
		}
	}
	err := os.MkdirAll(filepath.Join(dir, "runs"), 0o700)
	if err != nil && !isFull(err) {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	config, err := loadConfig(l.shared())
	if err != nil {
		return nil, err
	}
	return &Host{Layout: l, config: config}, nil
}

// unsafeHome is a $CUSTODY_HOME that other users could change.
type unsafeHome struct {
	dir string
	err error
}

// Error implements error.
func (e *unsafeHome) Error() string { return fmt.Sprintf("CUSTODY_HOME is %s: %v", e.dir, e.err) }

// Unwrap returns what others can change.
func (e *unsafeHome) Unwrap() error { return e.err }

// Hint returns the remedy.
func (e *unsafeHome) Hint() string {
	return "users who can change it control what Custody does as root: use a directory that belongs to you or to root, on a path that others cannot write to (chmod go-w), or call custody as its owner"
}

// Config returns the contents of host.yaml.
func (h *Host) Config() Config { return h.config }

// UseStore replaces the store that host.yaml names by dsn.
func (h *Host) UseStore(dsn string) { h.config.Store = dsn }

func (h *Host) warn(text string) {
	if h.Warn != nil {
		h.Warn(text)
	}
}

func (l Layout) path(elem ...string) string {
	return filepath.Join(append([]string{l.Dir}, elem...)...)
}

// shared returns a path in the directory of what only an administrator changes.
func (l Layout) shared(elem ...string) string {
	return filepath.Join(append([]string{cmp.Or(l.Shared, l.Dir)}, elem...)...)
}

// keys returns a path in the directory of the signing key and the public keys.
func (l Layout) keys(elem ...string) string { return l.shared(append([]string{"keys"}, elem...)...) }

// Runs is the directory of the runs' logs.
func (l Layout) Runs() string { return l.path("runs") }

// RunDir is the directory of a run's log. For a name that is not a valid run ID, it returns a path that never
// exists.
func (l Layout) RunDir(run string) string {
	if !isRun(run) {
		run = ".none"
	}
	return l.path("runs", run)
}

// Templates is the directory of the templates.
func (l Layout) Templates() string { return l.shared("templates") }

// Blanks is the directory of the empty scratch disks that runs copy.
func (l Layout) Blanks() string { return l.path("templates", "blank") }

// Leases is the directory of notes about the leases at brokers that may outlive their process. A note suffices to
// revoke the lease, not to use it.
func (l Layout) Leases() string { return l.path("leases") }

// Exports is the directory of each sink's cursor and dead letters.
func (l Layout) Exports() string { return l.path("export") }

// Notifications is the directory of the messages that were not delivered yet.
func (l Layout) Notifications() string { return l.path("notify") }

// Serve is the directory of custody serve's tokens, and of exports that are being made.
func (l Layout) Serve() string { return l.path("serve") }

// Views is the directory of the page's saved views.
func (l Layout) Views() string { return filepath.Join(l.Serve(), "views") }

// Projects is the directory of the registered projects.
func (l Layout) Projects() string { return l.shared("projects") }

// States contains the snapshots of paused sandboxes.
func (l Layout) States() string { return l.shared("paused") }

// StatesKey is the file of the key that they are encrypted with.
func (l Layout) StatesKey() string { return l.keys("paused") }

// Witness is the directory of this host as a witness: its key, and the checkpoints that it has seen.
func (l Layout) Witness() string { return l.path("witness") }

// Monitors is the directory with the position in each monitored log, and the findings in it.
func (l Layout) Monitors() string { return l.path("monitor") }

// TagKey returns the key with which the redactor computes its tags. The first call creates it.
func (h *Host) TagKey() ([]byte, error) {
	path := h.path("keys", "tag.key")
	key, err := regular.ReadFile(path)
	if err == nil && len(key) == 32 {
		return key, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	key = make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(h.path("keys"), 0o700); err != nil {
		return nil, err
	}
	tmp, err := os.CreateTemp(h.path("keys"), "tag-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(key)
	if err := errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return nil, err
	}
	if err := os.Link(tmp.Name(), path); errors.Is(err, fs.ErrExist) { // another process created it first
		return regular.ReadFile(path)
	} else if err != nil {
		return nil, err
	}
	return key, nil
}

// Store opens the store that host.yaml names: SQLite below $CUSTODY_HOME, or ClickHouse.
func (h *Host) Store(ctx context.Context) (store.Store, error) {
	if dsn := h.config.Store; dsn != "" && dsn != "sqlite" {
		return h.Outside.open(ctx, dsn, h.config.ClickHouse.options())
	}
	if h.config.Transport != nil && h.config.Store == "" {
		return nil, ErrElsewhere
	}
	if err := ownerOnly(h.storePath()); err != nil {
		return nil, err
	}
	st, err := sqlite.Open(ctx, h.storePath())
	if err != nil {
		return nil, err
	}
	return remembering{st, h}, nil
}

// HoldOpen keeps open until the caller closes it what each run opens: the index of the log of manifests, and the store if it is SQLite on this
// host. The last process that closes one moves SQLite's write-ahead log into the database: while both are held, no run's end waits for that.
func HoldOpen(ctx context.Context, h *Host) (io.Closer, error) {
	index, err := hostlog.HoldIndex(h.path("log"))
	if err != nil || !h.config.localStore() {
		return index, err
	}
	st, err := h.Store(ctx)
	if err != nil {
		return nil, errors.Join(err, index.Close())
	}
	return held{index, st}, nil
}

// held are two files that are open.
type held [2]io.Closer

// Close closes both.
func (h held) Close() error { return errors.Join(h[0].Close(), h[1].Close()) }

// ErrElsewhere reports that host.yaml names a transport but not the store behind it.
var ErrElsewhere = errors.New("the store is on another host, and its address is not configured here: give --store DSN, or set store: in " + ConfigFile)

// open opens the store that dsn names: clickhouse://..., or sqlite:PATH.
func (out Outside) open(ctx context.Context, dsn string, o clickhouse.Options) (store.Store, error) {
	if path, ok := strings.CutPrefix(dsn, "sqlite:"); ok {
		return sqlite.Open(ctx, path)
	}
	switch scheme, _, _ := strings.Cut(dsn, "://"); scheme {
	case "clickhouse", "tcp", "native", "http", "https":
		if out.OpenStore != nil {
			return out.OpenStore(ctx, dsn, o)
		}
		return clickhouse.Open(ctx, dsn, o)
	}
	return nil, fmt.Errorf("store %.40q: want sqlite:PATH or clickhouse://USER@HOST:PORT/DATABASE", dsn)
}

// ownerOnly removes other users' access to a database: rebuild of an earlier version let them read it.
func ownerOnly(path string) error {
	for _, file := range regular.DatabaseFiles(path) {
		info, err := os.Lstat(file)
		if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
			err = os.Chmod(file, 0o600)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("open store: %w", err)
		}
	}
	return nil
}

// localStore reports whether the store is SQLite in this home, which only this host writes to.
func (c Config) localStore() bool {
	return c.Transport == nil && (c.Store == "" || c.Store == "sqlite")
}

func (l Layout) storePath() string { return l.path("custody.db") }

// SandboxPrefix begins the names of sandboxes' runs; those of access logs begin with store.AccessPrefix.
const SandboxPrefix = "r-"

func isRun(name string) bool {
	return store.ValidRun(name) && (strings.HasPrefix(name, SandboxPrefix) || strings.HasPrefix(name, store.AccessPrefix))
}

// NewRunID returns a new ID. IDs sort by time.
func NewRunID(t time.Time) string {
	id, err := ulid.New(ulid.Timestamp(t), rand.Reader)
	if err != nil {
		panic(err) // the system's random source does not fail
	}
	return SandboxPrefix + strings.ToLower(id.String())
}

// WaitForRoom calls f until it succeeds or fails for another reason than a full
// disk. If it has to wait, it calls full once before, and again afterwards.
func WaitForRoom(ctx context.Context, full func(error), again func(), f func() error) error {
	waited := false
	for {
		err := f()
		if waited && err == nil {
			again()
		}
		if err == nil || !isFull(err) {
			return err
		}
		if !waited {
			waited = true
			full(err)
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		case <-time.After(100 * time.Millisecond):
		}
	}
}
