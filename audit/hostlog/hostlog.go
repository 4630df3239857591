package hostlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/transparency-dev/tessera"
	"github.com/transparency-dev/tessera/storage/posix"
	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/witness"
	"github.com/custody-project/custody/internal/regular"
)

// MaxEntry is the maximum size of an entry, in bytes (C2SP tlog-tiles, log entries).
const MaxEntry = 1<<16 - 1

// DefaultWitnessTimeout bounds the time that a publication waits for all witnesses together.
const DefaultWitnessTimeout = 5 * time.Second

// never is an interval that disables Tessera's timers: this package publishes.
const never = 100 * 365 * 24 * time.Hour

// Options name the log, its signer and its witnesses.
type Options struct {
	Dir string // created if it does not exist
	// Signer signs the checkpoints. Its name is the log's origin, which never changes. It can be a Prover.
	Signer note.Signer
	// Verifier belongs to Signer. Older are its predecessors, which may have signed the last
	// checkpoint.
	Verifier note.Verifier
	Older    []note.Verifier
	// Others also sign each checkpoint, under the same name: the old key, during a key rotation.
	Others []note.Signer
	// Witnesses cosign; nil: none. Publish then waits for a quorum.
	Witnesses *witness.Policy
	// WitnessTimeout bounds the wait for them; 0: DefaultWitnessTimeout.
	WitnessTimeout time.Duration
	// FailOpen publishes without quorum; Publish then returns an error along with the checkpoint.
	FailOpen bool
	// Transport carries requests to witnesses; nil: one like http.DefaultTransport, closed by Close.
	Transport http.RoundTripper
	// Warn, if set, is called with problems that did not prevent a publication: a witness that refused although there was
	// a quorum, or a checkpoint that was reset to an older one.
	Warn func(error)
}

func (o *Options) check() error {
	switch {
	case o.Dir == "":
		return errors.New("no directory")
	case o.Signer == nil || o.Verifier == nil:
		return errors.New("no signing key")
	case o.Signer.Name() != o.Verifier.Name() || o.Signer.KeyHash() != o.Verifier.KeyHash():
		return errors.New("signer and verifier have different keys")
	}
	for _, s := range o.Others {
		if s.Name() != o.Signer.Name() {
			return fmt.Errorf("key %s cannot sign for the log %s: the names differ", s.Name(), o.Signer.Name())
		}
	}
	if o.WitnessTimeout == 0 {
		o.WitnessTimeout = DefaultWitnessTimeout
	}
	if o.Warn == nil {
		o.Warn = func(error) {}
	}
	return nil
}

// Log is an open log. It is safe for concurrent use, and several processes may have the same log open.
type Log struct {
	o      Options
	files  files
	kept   kept
	index  *indexed
	append *lock
	pub    *lock
	add    tessera.AddFn
	reader tessera.LogReader
	stop   context.CancelFunc // stops Tessera's goroutines
	idle   func()             // closes idle connections to witnesses

	mu     sync.Mutex // guards closed
	closed bool
}

// Open opens the log and creates it if it does not exist. ctx bounds only the opening. If the error is ErrRolledBack or
// ErrMissing, Open has written nothing.
func Open(ctx context.Context, o Options) (*Log, error) {
	l, err := open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("open host log: %w", err)
	}
	return l, nil
}

func open(ctx context.Context, o Options) (*Log, error) {
	redirectKlog()
	if err := o.check(); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	o.Dir = dir
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	l := &Log{o: o, files: newFiles(dir), kept: newKept(dir, newKeys(o.Verifier, o.Older...)), idle: func() {}}
	l.index = &indexed{path: indexPath(dir), files: l.files, warn: o.Warn}
	if o.Transport == nil {
		own := http.DefaultTransport.(*http.Transport).Clone()
		l.o.Transport, l.idle = own, own.CloseIdleConnections
	}
	if l.append, err = openLock(filepath.Join(dir, "append.lock")); err != nil {
		return nil, err
	}
	if l.pub, err = openLock(filepath.Join(dir, "publish.lock")); err != nil {
		l.append.file.Close()
		return nil, err
	}
	if err := l.start(ctx); err != nil {
		l.append.file.Close()
		l.pub.file.Close()
		return nil, err
	}
	return l, nil
}

// start checks the directory and starts Tessera on it.
func (l *Log) start(ctx context.Context) error {
	if err := l.append.lock(ctx); err != nil {
		return err
	}
	defer l.append.unlock()
	known, err := l.newest()
	if err != nil {
		return err
	}
	state, err := l.files.state()
	switch {
	case errors.Is(err, fs.ErrNotExist) && known.Size == 0:
		if _, err := os.Stat(filepath.Join(l.o.Dir, "tile")); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: tiles without .state/treeState", ErrMissing)
		}
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: .state/treeState", ErrMissing)
	case err != nil:
		return err
	case state.Size < known.Size:
		return fmt.Errorf("%w: it has %d entries, %d were published", ErrRolledBack, state.Size, known.Size)
	}
	if err := l.prepare(); err != nil {
		return err
	}
	l.files.sweep(state.Size)
	return l.runTessera(ctx)
}

// runTessera starts Tessera's appender. Its publisher must stay idle: it gets a key that signs
// only the empty tree, with which a new log begins.
func (l *Log) runTessera(ctx context.Context) error {
	driver, err := posix.New(ctx, posix.Config{Path: l.o.Dir})
	if err != nil {
		return err
	}
	appends, ok := driver.(*posix.Storage)
	if !ok {
		return fmt.Errorf("unexpected driver %T", driver)
	}
	options := tessera.NewAppendOptions().
		WithCheckpointSigner(onlyEmpty{l.o.Signer}).
		WithBatching(1, time.Second). // each entry is a batch: no entry waits for another
		WithCheckpointInterval(never).
		WithCheckpointRepublishInterval(0).
		WithGarbageCollectionInterval(0) // see files.prune
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	a, reader, err := appends.Appender(life, options)
	if err != nil {
		stop()
		return err
	}
	l.add, l.reader, l.stop = a.Add, reader, stop
	return nil
}

// prepare makes the files without which Tessera panics instead of returning an error.
func (l *Log) prepare() error {
	if err := makeDir(filepath.Join(l.o.Dir, ".state")); err != nil {
		return err
	}
	return l.probe()
}

// probe opens the files that Tessera opens next, because Tessera panics if that fails: no file descriptors left, or a
// file system that became read-only.
func (l *Log) probe() error {
	for _, name := range []string{"treeState.lock", "publish.lock"} {
		f, err := regular.OpenFile(filepath.Join(l.o.Dir, ".state", name), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// Prepare opens what the first Add needs, so that Add need not. Without it, or after an error, Add does that.
func (l *Log) Prepare(ctx context.Context) error {
	if err := l.append.lock(ctx); err != nil {
		return err
	}
	defer l.append.unlock()
	state, err := l.files.state()
	if err != nil {
		return err
	}
	return l.index.prepare(ctx, state.Size)
}

// Add adds an entry to the log and returns its index when the entry is durable and part of the tree. No checkpoint covers
// it yet. If an entry of a run is already in the log, Add returns its index. The error is ErrTwice if the log has a
// different entry about the same segment or erased record. ctx bounds the wait for other processes; an append that has
// begun is completed.
func (l *Log) Add(ctx context.Context, entry []byte) (uint64, error) {
	if len(entry) > MaxEntry {
		return 0, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(entry), MaxEntry)
	}
	if err := l.append.lock(ctx); err != nil {
		return 0, err
	}
	defer l.append.unlock()
	index, err := l.addLocked(ctx, entry)
	if err != nil {
		return 0, fmt.Errorf("add to host log: %w", err)
	}
	return index, nil
}

func (l *Log) addLocked(ctx context.Context, entry []byte) (uint64, error) {
	state, err := l.files.state()
	if err != nil {
		return 0, err
	}
	if err := l.files.checkEdge(ctx, state); err != nil {
		return 0, err
	}
	if err := l.probe(); err != nil {
		return 0, err
	}
	if index, found, err := l.index.find(ctx, state.Size, entry); err != nil || found {
		return index, err
	}
	index, err := l.integrate(ctx, entry)
	if err != nil {
		l.files.sweep(state.Size) // Tessera leaves its temporary files if the disk is full
		return 0, err
	}
	if index != state.Size {
		return 0, fmt.Errorf("%w: Tessera returned index %d, want %d", ErrForked, index, state.Size)
	}
	return index, l.index.added(context.WithoutCancel(ctx), index, entry)
}

// integrate adds an entry through Tessera, without checks.
func (l *Log) integrate(ctx context.Context, entry []byte) (uint64, error) {
	got, err := l.add(context.WithoutCancel(ctx), tessera.NewEntry(entry))()
	return got.Index, err
}

// Close waits for active calls, then closes the log. Entries that are added and not published stay in the log: the next
// Publish of any process covers them. It can be called again. Two goroutines of Tessera, which are idle by then, end
// shortly after.
func (l *Log) Close(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	if err := errors.Join(l.append.close(ctx), l.pub.close(ctx)); err != nil {
		return err
	}
	l.stop()
	l.idle()
	l.closed = true
	return l.index.close()
}
