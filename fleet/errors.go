package fleet

import (
	"errors"
	"fmt"

	"github.com/custody-project/custody/sandbox"
)

// Errors of this package, to be found with errors.Is.
var (
	ErrUnknown  = errors.New("not found")
	ErrConflict = errors.New("conflict")
	ErrInvalid  = errors.New("invalid")
	ErrEnded    = errors.New("the sandbox has ended")
)

// Error is an error with one of the kinds above.
type Error struct {
	Kind error
	Text string
}

// Error implements error.
func (e *Error) Error() string { return e.Text }

// Unwrap returns the kind.
func (e *Error) Unwrap() error { return e.Kind }

// caused is an error with one of the kinds above, and its cause.
type caused struct {
	kind, cause error
	text        string
}

// Error implements error.
func (e *caused) Error() string { return e.text }

// Unwrap returns the kind and the cause.
func (e *caused) Unwrap() []error { return []error{e.kind, e.cause} }

// because returns an error of a kind with its cause.
func because(kind, cause error, format string, args ...any) error {
	return &caused{kind, cause, fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) error {
	return &Error{ErrInvalid, fmt.Sprintf(format, args...)}
}
func unknown(format string, args ...any) error {
	return &Error{ErrUnknown, fmt.Sprintf(format, args...)}
}
func conflict(format string, args ...any) error {
	return &Error{ErrConflict, fmt.Sprintf(format, args...)}
}

// lost returns the error of a call that failed because the sandbox has ended, or has lost its machine and is about to; otherwise err.
func lost(s *Sandbox, err error) error {
	if err == nil {
		return nil
	}
	for _, reason := range []error{sandbox.ErrSilent, sandbox.ErrVMDied} {
		if errors.Is(err, reason) {
			return &Error{ErrEnded, fmt.Sprintf("the sandbox %s has ended: %v", s.ID, reason)}
		}
	}
	if errors.Is(err, sandbox.ErrSuspended) {
		return conflict("the sandbox %s was paused meanwhile: try again", s.ID)
	}
	if s.ctx.Err() != nil {
		return &Error{ErrEnded, fmt.Sprintf("the sandbox %s has ended", s.ID)}
	}
	return err
}
