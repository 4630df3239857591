package command

import (
	"errors"
	"fmt"
	"io"

	"github.com/custody-project/custody/doctor/remedy"
	"github.com/custody-project/custody/internal/console"
)

// UsageError is an error in how a command was called. Its hint is the command's help.
type UsageError struct{ err error }

// Usage returns err as a UsageError.
func Usage(err error) error { return &UsageError{err} }

// Error implements error.
func (e *UsageError) Error() string { return e.err.Error() }

// Unwrap returns the error.
func (e *UsageError) Unwrap() error { return e.err }

// Misuse is an error in a call, with the command that was called.
type Misuse struct {
	Err     error
	Command string // such as "custody key rotate"
}

// Error implements error.
func (m *Misuse) Error() string { return m.Err.Error() }

// Unwrap returns the error.
func (m *Misuse) Unwrap() error { return m.Err }

// Hint returns which help to read.
func (m *Misuse) Hint() string {
	if m.Command == "custody" {
		return "see 'custody --help' for the list of commands"
	}
	return fmt.Sprintf("see '%s --help'", m.Command)
}

// withHelp adds the command to the UsageError that it returned.
func withHelp(err error, command string) error {
	if u := (*UsageError)(nil); errors.As(err, &u) {
		return &Misuse{err, command}
	}
	return err
}

// NewMessages returns messages that are written to out. command returns the words of the command line, such as "custody policy set".
func NewMessages(out io.Writer, command func() string) *console.Messages {
	return &console.Messages{Out: out, Name: "custody", Describe: func(err error) (text, hint string) {
		err = withHelp(err, command())
		return remedy.Text(err), remedy.Of(err)
	}}
}
