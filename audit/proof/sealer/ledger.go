package sealer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/durable"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/internal/regular"
)

// Ledger keeps in a directory what was signed last for each run, for a process that signs the records of another one. It is on the disk before
// a signature leaves. So a run is closed after its last manifest, even if the other process hides that, and has one history. It is safe for
// concurrent use by one process.
//
//	Begin --> live --Release--> left --Reopen--> live
type Ledger struct {
	dir    string
	prefix string // of the runs
	now    func() time.Time

	mu     sync.Mutex // guards the fields below
	live   map[string]bool
	pruned time.Time
}

// The files of a run in a Ledger.
const (
	factsSuffix    = ".facts"
	manifestSuffix = ".manifest"
)

// runAge is how much the time in a run's name may differ from that of its beginning. What a Ledger keeps of a closed run is removed
// later than that: the run cannot begin again.
const runAge = 24 * time.Hour

const pruneEvery = time.Hour

// leftAge is how long a Ledger keeps a run of which nothing was signed: most of them have no log that could be closed.
const leftAge = 30 * 24 * time.Hour

// ErrLive means that the process of a run has not ended, or that another one closes the run.
var ErrLive = errors.New("it is live")

// The other refusals of a Ledger.
var (
	errName  = errors.New("it is not the name of a run that begins now")
	errBegun = errors.New("it has begun already")
)

// OpenLedger opens the ledger in a directory, which it makes. The names of its runs have a prefix before their ULID.
func OpenLedger(dir, prefix string) (*Ledger, error) {
	l := &Ledger{dir: dir, prefix: prefix, now: time.Now, live: map[string]bool{}}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return l, l.prune()
}

// Begin returns the signer of a new run.
func (l *Ledger) Begin(key note.Signer, run string, facts statement.Facts) (*Signer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if began, ok := l.began(run); !ok || began.Sub(l.now()).Abs() > runAge {
		return nil, fmt.Errorf("run %.80q: %w", run, errName)
	}
	if _, err := os.Lstat(l.path(run, factsSuffix)); !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(fmt.Errorf("run %s: %w", run, errBegun), err)
	}
	if l.now().Sub(l.pruned) > pruneEvery {
		if err := l.prune(); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(facts)
	if err != nil {
		return nil, err
	}
	if err := durable.Replace(l.path(run, factsSuffix), text, 0o600); err != nil {
		return nil, err
	}
	l.live[run] = true
	return l.kept(NewSigner(key, run, facts)), nil
}

// Reopen returns the signer of a run whose processes died. One of the trusted keys has signed its last manifest.
func (l *Ledger) Reopen(key note.Signer, run string, trusted note.Verifiers) (*Signer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.began(run); !ok {
		return nil, fmt.Errorf("run %.80q: %w", run, errName)
	}
	if l.live[run] {
		return nil, fmt.Errorf("run %s: %w", run, ErrLive)
	}
	text, err := regular.ReadFile(l.path(run, factsSuffix))
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", run, err)
	}
	var facts statement.Facts
	if err := json.Unmarshal(text, &facts); err != nil {
		return nil, fmt.Errorf("run %s: %w", run, err)
	}
	signer := NewSigner(key, run, facts)
	last, err := regular.ReadFile(l.path(run, manifestSuffix))
	if err == nil {
		signer, err = Resume(key, run, last, trusted)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	l.live[run] = true
	return l.kept(signer), nil
}

// Release states that the process of a run has ended.
func (l *Ledger) Release(run string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.live, run)
}

// kept makes a signer store each manifest before it returns it.
func (l *Ledger) kept(s *Signer) *Signer {
	s.keep = func(manifest []byte) error { return durable.Replace(l.path(s.run, manifestSuffix), manifest, 0o600) }
	return s
}

// path returns the path of a file of a run whose name began has checked.
func (l *Ledger) path(run, suffix string) string { return filepath.Join(l.dir, run+suffix) }

// began returns the time in the name of a run.
func (l *Ledger) began(run string) (time.Time, bool) {
	name, ok := strings.CutPrefix(run, l.prefix)
	id, err := ulid.ParseStrict(strings.ToUpper(name))
	if !ok || err != nil || strings.ToLower(id.String()) != name {
		return time.Time{}, false
	}
	return ulid.Time(id.Time()), true
}

// prune removes what is kept of closed runs that cannot begin again. The caller holds mu, or is the only one with the ledger.
func (l *Ledger) prune() error {
	l.pruned = l.now()
	files, err := os.ReadDir(l.dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		run, ok := strings.CutSuffix(f.Name(), factsSuffix)
		began, named := l.began(run)
		if !ok || !named || l.now().Sub(began) <= runAge {
			continue
		}
		signed, err := regular.ReadFile(l.path(run, manifestSuffix))
		if errors.Is(err, fs.ErrNotExist) {
			if l.now().Sub(began) <= leftAge || l.live[run] {
				continue
			}
			if err := os.Remove(l.path(run, factsSuffix)); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		if m, err := statement.ReadManifest(signed); err != nil || m.Closing == wal.Open {
			continue
		}
		if err := errors.Join(os.Remove(l.path(run, manifestSuffix)), os.Remove(l.path(run, factsSuffix))); err != nil {
			return err
		}
	}
	return nil
}
