// Package service carries out runs for the users of a host, who need no privileges: a server that listens on a unix socket, and
// its client.
//
//	client (any user of the socket's group)                  Server
//	  run, signal, resize, cancel      --------------------> session, run.Job
//	  terminal <-- attach, detach, notice, problem --------  run.Options
//	  stdin, stdout  <============= pipes ===============>   run.Console
//	                            privsep
//
// The socket is of the type SOCK_SEQPACKET. The kernel names the user at its other end. The server limits the sizes of requests, and how many
// clients and runs there are, of each user and in all. It assumes that a client is hostile: one that violates the protocol loses its
// connection, and its run is cancelled as if the client had been killed. The server makes all pipes itself, so that a client can neither
// block it nor pass it a terminal or a file.
//
// The service does not ask whether to trust a project file: a run is of a registered project, which the file can only narrow, or asks for
// no more than the defaults.
package service

import (
	"syscall"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/run"
)

// The calls of a client.
const (
	callRun    = "run"
	callSignal = "signal"
	callResize = "resize"
	callCancel = "cancel"
)

// The calls of the server during a run.
const (
	callNotice   = "notice"
	callProgress = "progress"
	callProblem  = "problem"
	callAttach   = "attach"
	callDetach   = "detach"
	callRecords  = "records"
	callFiles    = "files"
)

type (
	none       struct{}
	signalCall struct{ Signal syscall.Signal }
	cancelCall struct{ Reason string }

	// attached answers the call attach, with which three pipes come: the client's ends of stdin, stdout and stderr.
	attached struct {
		Window *channel.Winsize // of the steps' terminal; nil: they have none
		Term   string
		Live   bool
	}

	// measured answers the call files, with which a run.FileSpec comes in memory.
	measured struct {
		Size   channel.Size
		Failed *Failure
	}

	// outcome is how a run ended.
	outcome struct {
		ID, Tier  string
		ExitCode  int
		Err, Late *Failure
		Unbegun   *Failure // why no run began
	}
)

// Failure is an error of the server, with what the user can do about it.
type Failure struct{ Text, Advice string }

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

// outcomeOf returns the outcome of a result of run.Job.
func outcomeOf(r run.Result, err error) outcome {
	return outcome{ID: r.ID, Tier: r.Tier, ExitCode: r.ExitCode, Err: failureOf(r.Err), Late: failureOf(r.Late), Unbegun: failureOf(err)}
}

// result returns the result of the run, or why none began.
func (o outcome) result() (run.Result, error) {
	if o.Unbegun != nil {
		return run.Result{}, o.Unbegun
	}
	return run.Result{ID: o.ID, Tier: o.Tier, ExitCode: o.ExitCode, Err: o.Err.asError(), Late: o.Late.asError()}, nil
}
