// Package host is the state of one machine under $CUSTODY_HOME, and how its
// parts work together there: the embedded default, without a daemon.
//
//	host.yaml                what differs from a host that stands alone (Config)
//	keys/host.key host.pub   signs manifests (host.key.age: encrypted); checks them
//	templates/               see package template
//	runs/<run>/              a run's log (package wal); "shipped" when the store has all of it
//	log/                     the host's log of all runs' manifests (package hostlog)
//	stamps/                  what a time-stamping authority said of its checkpoints
//	custody.db               the store (package sqlite)
//	deleted/ holds/          signed statements about runs that retention deleted; runs that it must not delete
//	serve/                   tokens of the API and exports on their way (package access), saved views (package views)
//	export/                  how far each sink has got, and what none would take
//
// Several processes share it. Each run's log belongs to the process that holds
// its lock; whichever process comes next closes the logs of those that died.
package host

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/clickhouse"
	"github.com/custody-project/custody/store/sqlite"
)

// Host is an open $CUSTODY_HOME. It is safe for concurrent use.
type Host struct {
	Layout
	// Warn, if set, is called with non-fatal problems.
	Warn func(string)

	config  Config
	spool   spool
	signing heldKey
}

// Dir returns where Custody keeps its state: $CUSTODY_HOME, else custody below
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
		return "", fmt.Errorf("where to keep state is not known: set CUSTODY_HOME: %w", err)
	}
	return filepath.Join(user, ".local", "share", "custody"), nil
}

// Open makes the directory if needed. A full disk is no error: a run detects it where it can wait for space. A
// directory that other users could change is an *OwnerError.
func Open(dir string) (*Host, error) {
	if err := CheckOwner(dir, 0o022); err != nil {
		return nil, &unsafeHome{dir, err}
	}
	err := os.MkdirAll(filepath.Join(dir, "runs"), 0o700)
	if err != nil && !isFull(err) {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	config, err := loadConfig(dir)
	if err != nil {
		return nil, err
	}
	return &Host{Layout: Layout{dir}, config: config}, nil
}

// unsafeHome is a $CUSTODY_HOME that other users could change.
type unsafeHome struct {
	dir string
	err error
}

// Error implements error.
func (e *unsafeHome) Error() string { return fmt.Sprintf("CUSTODY_HOME is %s: %v", e.dir, e.err) }

// Unwrap gives what others can change.
func (e *unsafeHome) Unwrap() error { return e.err }

// Hint returns what to do about it.
func (e *unsafeHome) Hint() string {
	return "anyone who can change it controls what Custody does as root: use a directory of your own or of root's, on a path that others cannot write to (chmod go-w), or call custody as its owner"
}

// Config returns what host.yaml says.
func (h *Host) Config() Config { return h.config }

// UseStore has dsn stand for the store that host.yaml names.
func (h *Host) UseStore(dsn string) { h.config.Store = dsn }

func (h *Host) warn(text string) {
	if h.Warn != nil {
		h.Warn(text)
	}
}

func (l Layout) path(elem ...string) string {
	return filepath.Join(append([]string{l.Dir}, elem...)...)
}

// Runs is where the runs' logs stand.
func (l Layout) Runs() string { return l.path("runs") }

// RunDir is where a run's log stands. A name that no run can have, wherever it comes from, leads to no other
// place: to a directory that there never is.
func (l Layout) RunDir(run string) string {
	if !isRun(run) {
		run = ".none"
	}
	return l.path("runs", run)
}

// Templates is the folder of the templates.
func (l Layout) Templates() string { return l.path("templates") }

// Blanks is the folder of the empty scratch disks that runs copy.
func (l Layout) Blanks() string { return l.path("templates", "blank") }

// Leases has a note for each lease at a broker that may outlive its process: what
// to revoke it by, nothing to use it with.
func (l Layout) Leases() string { return l.path("leases") }

// Exports is the folder in which each sink's exporter keeps how far it is, and its dead letters.
func (l Layout) Exports() string { return l.path("export") }

// Notifications is the directory of the messages that wait to be delivered.
func (l Layout) Notifications() string { return l.path("notify") }

// Serve is the folder of what custody serve keeps: its tokens, and exports on their way.
func (l Layout) Serve() string { return l.path("serve") }

// Views is where saved views of the page are kept.
func (l Layout) Views() string { return filepath.Join(l.Serve(), "views") }

// Witness is the folder of this host as a witness of others: its key, and the checkpoints that it has seen.
func (l Layout) Witness() string { return l.path("witness") }

// Monitors is the folder with how far each log of another host was read, and what was found in it.
func (l Layout) Monitors() string { return l.path("monitor") }

// TagKey returns the key with which the redactor makes its tags, made on first use.
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
	if err := os.Link(tmp.Name(), path); errors.Is(err, fs.ErrExist) { // another process was first
		return regular.ReadFile(path)
	} else if err != nil {
		return nil, err
	}
	return key, nil
}

// Store opens the store that host.yaml names: SQLite below $CUSTODY_HOME, or ClickHouse.
func (h *Host) Store(ctx context.Context) (store.Store, error) {
	if dsn := h.config.Store; dsn != "" && dsn != "sqlite" {
		return openStore(ctx, dsn, h.config.ClickHouse.options())
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

// ErrElsewhere means that host.yaml names a transport and not the store behind it.
var ErrElsewhere = errors.New("the store is elsewhere, and this host does not know where: give --store DSN, or store: in " + ConfigFile)

// openStore opens the store that dsn names: clickhouse://..., or sqlite:PATH.
func openStore(ctx context.Context, dsn string, o clickhouse.Options) (store.Store, error) {
	if path, ok := strings.CutPrefix(dsn, "sqlite:"); ok {
		return sqlite.Open(ctx, path)
	}
	switch scheme, _, _ := strings.Cut(dsn, "://"); scheme {
	case "clickhouse", "tcp", "native", "http", "https":
		return clickhouse.Open(ctx, dsn, o)
	}
	return nil, fmt.Errorf("store %.40q: want sqlite:PATH or clickhouse://USER@HOST:PORT/DATABASE", dsn)
}

// ownerOnly takes a database from others, whom an earlier version's rebuild let read it.
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

// localStore reports whether the store is SQLite in this home, which only this host writes.
func (c Config) localStore() bool {
	return c.Transport == nil && (c.Store == "" || c.Store == "sqlite")
}

func (l Layout) storePath() string { return l.path("custody.db") }

// sandboxPrefix is how the names of sandboxes' runs begin; access logs have store.AccessPrefix.
const sandboxPrefix = "r-"

func isRun(name string) bool {
	return store.ValidRun(name) && (strings.HasPrefix(name, sandboxPrefix) || strings.HasPrefix(name, store.AccessPrefix))
}

// NewRunID returns an id that sorts by time.
func NewRunID(t time.Time) string {
	id, err := ulid.New(ulid.Timestamp(t), rand.Reader)
	if err != nil {
		panic(err) // the system's random source does not fail
	}
	return sandboxPrefix + strings.ToLower(id.String())
}

// WaitForRoom calls f until it works or fails for another reason than a full
// disk. If it has to wait it calls full before that, once, and again after.
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
