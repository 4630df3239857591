package fleet

import (
	"errors"
	"fmt"
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

func invalid(format string, args ...any) error {
	return &Error{ErrInvalid, fmt.Sprintf(format, args...)}
}
func unknown(format string, args ...any) error {
	return &Error{ErrUnknown, fmt.Sprintf(format, args...)}
}
func conflict(format string, args ...any) error {
	return &Error{ErrConflict, fmt.Sprintf(format, args...)}
}
