package export

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit/durable"
	"github.com/custody-project/custody/internal/flock"
	"github.com/custody-project/custody/internal/regular"
)

// Files of an exporter named N, in the directory of exporters:
//
//	N.cursor        its position, and statistics until there; rewritten and renamed, fsynced
//	N.lock          locked while an exporter of this name runs
//	N.status        Stats, for others to read; may be some seconds old
//	N.dead.ndjson   permanently refused events, one Letter a line; see Dead
const (
	cursorSuffix = ".cursor"
	lockSuffix   = ".lock"
	statusSuffix = ".status"
)

// Cursor is an exporter's position in a store's feed.
type Cursor struct {
	V    int    `json:"v"`
	Feed string `json:"feed"` // all before it are done
	// Part is the segment after Feed that is partly done: zero if there is none.
	Part Part `json:"part,omitzero"`
}

// Part is a segment that is done up to a record.
type Part struct {
	Tenant string `json:"tenant,omitempty"`
	Run    string `json:"run"`
	Index  uint64 `json:"index"`
	Seq    uint64 `json:"seq"` // the last that is done
}

// ErrName is returned, wrapped, for a name that is not valid in a file name.
var ErrName = errors.New("a sink's name has letters, digits, - and _, at most 64")

var validName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// LockedError: another exporter of this name is running.
type LockedError struct {
	Name  string
	Owner string // process id, as the owner wrote it
}

// Error implements error.
func (e *LockedError) Error() string {
	return fmt.Sprintf("another exporter named %q is running, in process %s", e.Name, e.Owner)
}

// Hint returns the remedy.
func (e *LockedError) Hint() string {
	return "stop the other one, or give this sink a unique name: each name has its own cursor"
}

// lockWait is longer than ReadStatus holds a lock.
const lockWait = 250 * time.Millisecond

// lock holds the lock of a name as long as the file is open. The kernel releases it when the process dies.
func lock(ctx context.Context, dir, name string) (*os.File, error) {
	f, err := regular.OpenFile(filepath.Join(dir, name+lockSuffix), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock.LockWithin(ctx, f, unix.LOCK_EX, lockWait); err != nil {
		owner := make([]byte, 20)
		n, _ := f.Read(owner) // the owner may not have written yet
		f.Close()
		var held *flock.HeldError
		if errors.As(err, &held) {
			return nil, &LockedError{Name: name, Owner: strings.TrimSpace(string(owner[:n]))}
		}
		return nil, err
	}
	if err := errors.Join(f.Truncate(0), writeAt0(f, fmt.Sprintln(os.Getpid()))); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func writeAt0(f *os.File, s string) error {
	_, err := f.WriteAt([]byte(s), 0)
	return err
}

// ReadCursor reads the cursor of the exporter of this name. Without a file it is the zero Cursor.
func ReadCursor(dir, name string) (Cursor, error) {
	p, err := readProgress(dir, name)
	return p.Cursor, err
}

// progress is the contents of a cursor's file, with the statistics of all processes so far.
type progress struct {
	Cursor
	Sent      uint64    `json:"sent,omitempty"`
	Dead      uint64    `json:"dead,omitempty"`
	Delivered time.Time `json:"delivered,omitzero"` // when the sink last accepted an event
}

func readProgress(dir, name string) (progress, error) {
	c := progress{Cursor: Cursor{V: 1}}
	b, err := regular.ReadFile(filepath.Join(dir, name+cursorSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(b, &c); err != nil || c.V != 1 {
		return c, &CursorError{Path: filepath.Join(dir, name+cursorSuffix), Err: err}
	}
	return c, nil
}

// CursorError: a cursor cannot be read, so that it is unknown what was exported.
type CursorError struct {
	Path string
	Err  error
}

// Error implements error.
func (e *CursorError) Error() string { return fmt.Sprintf("%s is not a cursor: %v", e.Path, e.Err) }

// Unwrap returns the cause.
func (e *CursorError) Unwrap() error { return e.Err }

// Hint returns the remedy.
func (e *CursorError) Hint() string {
	return "remove the file to export everything again: events keep their ids"
}

func writeProgress(dir, name string, p progress) error {
	return writeFile(filepath.Join(dir, name+cursorSuffix), p, true)
}

// writeFile atomically replaces path by v. If synced, the file is on disk on return.
func writeFile(path string, v any, synced bool) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := regular.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if err == nil && synced {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil || !synced {
		return err
	}
	return durable.SyncDir(filepath.Dir(path))
}

// Stats of one sink. Sent and Dead count over all processes of its exporter: repeats after a kill count once.
// Retried, Missing and DeadDropped are of this process.
type Stats struct {
	Name    string    `json:"name"`
	Running bool      `json:"running"`
	At      time.Time `json:"at"`      // of these statistics
	Sent    uint64    `json:"sent"`    // accepted events
	Retried uint64    `json:"retried"` // calls of Send that were retries
	Dead    uint64    `json:"dead"`    // events that became dead letters
	Missing uint64    `json:"missing"` // records that the feed announced and the store did not have
	// DeadKept are the letters in the files now, DeadDropped those that were removed for lack of space.
	DeadKept    uint64    `json:"dead_kept"`
	DeadDropped uint64    `json:"dead_dropped"`
	LastSuccess time.Time `json:"last_success,omitzero"`
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
	// FailingSince is the time of the first failure since the last accepted event, in this process or an earlier one; zero: none.
	FailingSince time.Time `json:"failing_since,omitzero"`
	// Halted is set if the sink refuses everything; no more events become dead letters then.
	Halted  bool   `json:"halted,omitempty"`
	Warning string `json:"warning,omitempty"` // a guarantee that the sink lacks
}

// ReadStats reads the statistics that the exporter of this name last wrote, in any process.
func ReadStats(dir, name string) (Stats, error) {
	s := Stats{Name: name}
	b, err := regular.ReadFile(filepath.Join(dir, name+statusSuffix))
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(b, &s)
}

// Names returns the sorted names of the exporters that have run in dir. A missing dir has none.
func Names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), statusSuffix); ok && validName.MatchString(name) {
			names = append(names, name)
		}
	}
	return names, err
}
