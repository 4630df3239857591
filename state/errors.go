package state

import (
	"errors"
	"fmt"
	"io/fs"
)

// Errors of Claim and Share, in addition to BoundError.
var (
	// ErrNotFound: the run has no snapshot here.
	ErrNotFound = errors.New("no paused state is stored on this host")
	// ErrClaimed: another resume or fork, or a removal, has the snapshot.
	ErrClaimed = errors.New("the paused state is in use: wait until the other resume, fork or removal has ended")
	// ErrExpired: the snapshot's time has passed.
	ErrExpired = errors.New("the paused state has expired: start a new sandbox")
	// ErrAltered: the file is not what a Writer of this host wrote.
	ErrAltered = errors.New("the paused state was altered or is damaged: delete it and start a new sandbox")
	// ErrNoKey: the key that encrypted the snapshot is not here.
	ErrNoKey = errors.New("the key of the paused state is missing: restore the host's key file for paused states, or delete the state")
	// ErrNoPart: the snapshot has no part with this name.
	ErrNoPart = errors.New("the paused state has no such part")
)

// ErrBudget means that a snapshot does not fit into the host's budget for paused states.
var ErrBudget = errors.New("the host's disk budget for paused states is too small: raise it, or delete paused sandboxes")

// ErrBound means that a snapshot belongs to something else than what it is to be opened for. It is what a BoundError is, also in another process.
var ErrBound = errors.New("the paused state belongs to something else")

// Bound names a value of a Binding.
type Bound string

// The values that a snapshot is bound to.
const (
	BoundRun      Bound = "run"
	BoundTenant   Bound = "tenant"
	BoundProject  Bound = "project"
	BoundHost     Bound = "host"
	BoundTier     Bound = "tier"
	BoundTemplate Bound = "template"
	BoundBase     Bound = "base"
	BoundPolicy   Bound = "policy"
	BoundGroup    Bound = "group of hosts" // Binding.Host of an export
)

// BoundError is a snapshot that belongs to something else than what it is to be opened for. It does not contain the
// values, which may belong to another tenant.
type BoundError struct {
	Run  string
	What Bound
}

// Error implements error.
func (e *BoundError) Error() string {
	what := "another " + string(e.What)
	if e.What == BoundBase {
		what = "another snapshot of its template"
	}
	return fmt.Sprintf("the paused state of run %s belongs to %s", e.Run, what)
}

// Unwrap returns ErrBound.
func (e *BoundError) Unwrap() error { return ErrBound }

// Hint returns the remedy.
func (e *BoundError) Hint() string {
	switch e.What {
	case BoundHost:
		return "resume it on the host that paused it"
	case BoundGroup:
		return "resume it on a host of the group that archived it, with the same machine monitor"
	case BoundTier:
		return "resume it with the tier that it was paused with"
	case BoundTemplate, BoundBase:
		return "restore the template that it was paused with, or start a new sandbox"
	case BoundPolicy:
		return "resume it under the policy that it was paused with"
	}
	return "check which sandbox is meant"
}

// altered returns err if it is an error of the file system, and ErrAltered otherwise.
func altered(err error) error {
	var path *fs.PathError
	if err == nil || errors.As(err, &path) || errors.Is(err, ErrAltered) || errors.Is(err, ErrNoKey) {
		return err
	}
	return fmt.Errorf("%w (%w)", ErrAltered, err)
}
