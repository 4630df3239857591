package hostlog

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/custody-project/custody/audit/entries"
)

// Errors of a log, wrapped with details. Only ErrUnwitnessed can be transient.
var (
	// ErrRolledBack: the log, or its checkpoint, is older than a checkpoint that was published.
	ErrRolledBack = errors.New("the host's log was rolled back to an older state")
	// ErrForked: the log does not extend a checkpoint that was published.
	ErrForked = errors.New("the host's log has two histories")
	// ErrTilesAltered: the hashes on disk are not those of the tree.
	ErrTilesAltered = errors.New("the host log's tiles were altered")
	// ErrEntriesAltered: an entry on disk is not the one that was added.
	ErrEntriesAltered = errors.New("an entry of the host's log was altered")
	// ErrMissing: a file of the log does not exist.
	ErrMissing = errors.New("a part of the host's log is missing")
	// ErrForged: a checkpoint is not signed by a trusted key, or is not a checkpoint of this log.
	ErrForged = errors.New("the checkpoint is not signed by the host's key")
	// ErrUnwitnessed: too few witnesses have cosigned; see Unwitnessed.
	ErrUnwitnessed = errors.New("too few witnesses cosigned the checkpoint")
	// ErrTwice: the log has another entry about the same segment of a run, or about the same erased record.
	ErrTwice = entries.ErrTwice
	// ErrNotFound: the last checkpoint does not cover such an entry.
	ErrNotFound = fmt.Errorf("not in the host's log: %w", fs.ErrNotExist)
	// ErrTooLarge: an entry has more than MaxEntry bytes.
	ErrTooLarge = errors.New("the entry is too large for the host's log")
	// ErrClosed: the log was closed.
	ErrClosed = errors.New("the host's log is closed")
)

// Refusal is a witness that did not cosign.
type Refusal struct {
	Name, URL string
	Status    int    // HTTP status; 0 if there was no answer
	Size      uint64 // with 409: size of the largest tree that it has cosigned
	Err       error
}

func (r Refusal) String() string { return fmt.Sprintf("%s at %s: %v", r.Name, r.URL, r.Err) }

// Unwitnessed is the error of a publication without quorum. It wraps ErrUnwitnessed, and also ErrRolledBack or ErrForked
// if a witness answered that.
type Unwitnessed struct {
	Published bool // with Options.FailOpen: the checkpoint was published
	Refusals  []Refusal
}

func (e *Unwitnessed) Error() string {
	why := make([]string, len(e.Refusals))
	for i, r := range e.Refusals {
		why[i] = r.String()
	}
	return fmt.Sprintf("%v: %s", ErrUnwitnessed, strings.Join(why, "; "))
}

// Unwrap returns ErrUnwitnessed and the witnesses' errors.
func (e *Unwitnessed) Unwrap() []error {
	all := []error{ErrUnwitnessed}
	for _, r := range e.Refusals {
		all = append(all, r.Err)
	}
	return all
}

// Hint returns the remedy.
func (e *Unwitnessed) Hint() string {
	switch {
	case errors.Is(e, ErrRolledBack), errors.Is(e, ErrForked):
		return "a witness has cosigned more entries than this log has: was it restored from a copy? See docs/witness.md, recovery"
	case e.Published:
		return "the checkpoint was published without quorum, because of fail_open; the next checkpoint is cosigned when the witnesses answer again"
	}
	return "no entry is lost: the entry is in the log, and is published when enough witnesses answer"
}
