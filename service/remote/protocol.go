// Package remote is the client of package service, and their protocol. It imports little, because each run through the service waits for the
// start of its client.
package remote

import (
	"strings"
	"syscall"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/run/caller"
)

// The calls of a client.
const (
	CallRun    = "run" // a Request in memory; it returns an Outcome
	CallSignal = "signal"
	CallResize = "resize"
	CallCancel = "cancel"
)

// The calls of the server during a run.
const (
	CallNotice   = "notice"
	CallProgress = "progress"
	CallProblem  = "problem"
	CallAttach   = "attach"
	CallDetach   = "detach"
	CallRecords  = "records"
	CallFiles    = "files"
)

type (
	// None is the argument, or the result, of a call that has none.
	None struct{}
	// SignalCall passes a signal on to the run's commands.
	SignalCall struct{ Signal syscall.Signal }
	// CancelCall cancels the run.
	CancelCall struct{ Reason string }

	// Attached answers the call attach, with which three pipes come: the client's ends of stdin, stdout and stderr.
	Attached struct {
		Window *channel.Winsize // of the steps' terminal; nil: they have none
		Term   string
		Live   bool
	}

	// Measured answers the call files, with which a caller.FileSpec comes in memory.
	Measured struct {
		Size   channel.Size
		Failed *Failure
	}

	// Outcome is how a run ended.
	Outcome struct {
		ID, Tier  string
		ExitCode  int
		Err, Late *Failure
		Unbegun   *Failure // why no run began
	}
)

// Failure is an error of the server, with what the user can do about it.
type Failure struct{ Text, Advice string }

// NewFailure returns a Failure whose texts fit into a message.
func NewFailure(text, advice string) *Failure { return &Failure{Clip(text), Clip(advice)} }

// maxText bounds the text of a message in bytes.
const maxText = 8 << 10

// Clip returns text as it fits into a message.
func Clip(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxText)], "?") }

// Error implements error.
func (f *Failure) Error() string { return f.Text }

// Hint returns what to do about it.
func (f *Failure) Hint() string { return f.Advice }

// asError returns nil for nil.
func (f *Failure) asError() error {
	if f == nil {
		return nil
	}
	return f
}

// result returns the result of the run, or why none began.
func (o Outcome) result() (caller.Result, error) {
	if o.Unbegun != nil {
		return caller.Result{}, o.Unbegun
	}
	return caller.Result{ID: o.ID, Tier: o.Tier, ExitCode: o.ExitCode, Err: o.Err.asError(), Late: o.Late.asError()}, nil
}
