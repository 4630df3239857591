package worker

import (
	"context"
	"os"
	"syscall"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/notify"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/sandbox"
)

// The calls of a worker, in addition to those of the packages that it uses.
const (
	callLive      = "live"
	callEnded     = "ended"
	callNotice    = "notice"
	callProgress  = "progress"
	callProblem   = "problem"
	callStalled   = "stalled"
	callResumed   = "resumed"
	callCommitted = "committed"
	callSealed    = "sealed"
	callMasked    = "masked"
	callNotify    = "notify"
	callRoom      = "room"
	callCharge    = "charge"
	callServing   = "serving"
	callExited    = "exited"
)

// The calls of Run.
const (
	callCancel   = "cancel"
	callSignal   = "signal"
	callResize   = "resize"
	callPolicy   = "policy"
	callPause    = "pause"
	callResume   = "resume"
	callSnapshot = "snapshot"

	callStart         = "start"
	callEnd           = "end session"
	callQuiet         = "quiet"
	callSignalProcess = "signal process"
	callResizeProcess = "resize process"
)

type (
	none      struct{}
	committed struct {
		Records, Bytes int
		Took           time.Duration
		Durable        uint64
	}
	// outcome is how the run ended.
	outcome struct {
		ExitCode int
		Status   audit.Status
		Err      *fault
		Step     string
		Exit     channel.Exit
		Timeout  time.Duration // of the step that reached its limit; 0: none did
		Record   *fault        // why the record is not complete
		Unbegun  *fault        // why no run began
	}
	signalCall  struct{ Signal syscall.Signal }
	processCall struct {
		Name   string
		Signal syscall.Signal
		Size   channel.Winsize
	}
	snapshotCall struct{ EndStep bool }
	endCall      struct{ Paused bool }
	changed      struct {
		Generation       uint32
		Digest, Previous string
		Ended            int
	}
)

// Events receives what a run reports while it lives. Its methods are called concurrently.
type Events interface {
	// Notice and Progress get text for the user, Problem an error that does not end the run. Values of secrets are masked in them.
	Notice(text string)
	Progress(text string)
	Problem(err error)
	// Stalled is called when the record cannot be written, Resumed when it can be again.
	Stalled(err error)
	Resumed()
	// Committed is called when records have become durable, the last of them with the seq durable, Sealed when a segment was sealed.
	Committed(records, bytes int, took time.Duration, durable uint64)
	Sealed()
	// Masked is called with the number of values that were masked in an event.
	Masked(values int)
	Notify(m notify.Message)
	// Charge is called with LLM tokens that the run has used, if Config.Charged is set, also with 0. Until the time that it returns, if any,
	// the worker denies further LLM API calls; why is for the client.
	Charge(tokens int64) (why string, until time.Time)
	// Room returns an error while the host may not store more records.
	Room() error
}

// eventHandlers returns the calls with which a worker reports events.
func eventHandlers(e Events, causes func() []error) map[string]privsep.Handler {
	text := func(do func(string)) privsep.Handler {
		return privsep.Handle(func(_ context.Context, t string) (any, []*os.File, error) { do(t); return none{}, nil, nil })
	}
	failed := func(do func(error)) privsep.Handler {
		return privsep.Handle(func(_ context.Context, f fault) (any, []*os.File, error) {
			do(f.err(causes()))
			return none{}, nil, nil
		})
	}
	plain := func(do func() error) privsep.Handler {
		return privsep.Handle(func(context.Context, none) (any, []*os.File, error) { return none{}, nil, do() })
	}
	return map[string]privsep.Handler{
		callNotice: text(e.Notice), callProgress: text(e.Progress), callProblem: failed(e.Problem), callStalled: failed(e.Stalled),
		callResumed: plain(func() error { e.Resumed(); return nil }),
		callSealed:  plain(func() error { e.Sealed(); return nil }),
		callRoom:    plain(e.Room),
		callCommitted: privsep.Handle(func(_ context.Context, m committed) (any, []*os.File, error) {
			e.Committed(m.Records, m.Bytes, m.Took, m.Durable)
			return none{}, nil, nil
		}),
		callMasked: privsep.Handle(func(_ context.Context, n int) (any, []*os.File, error) { e.Masked(n); return none{}, nil, nil }),
		callCharge: privsep.Handle(func(_ context.Context, tokens int64) (any, []*os.File, error) {
			why, until := e.Charge(max(tokens, 0))
			return charged{why, until}, nil, nil
		}),
		callNotify: privsep.Handle(func(_ context.Context, m notify.Message) (any, []*os.File, error) {
			e.Notify(m)
			return none{}, nil, nil
		}),
	}
}

// Result is how a run ended.
type Result struct {
	sandbox.Result
	Record error // why the record is not complete; nil if it is
}

// result returns the result that a worker reports.
func (o outcome) result(causes []error) (Result, error) {
	if o.Unbegun != nil {
		return Result{}, o.Unbegun.err(causes)
	}
	r := Result{Result: sandbox.Result{ExitCode: o.ExitCode, Status: o.Status, Err: o.Err.err(causes), Step: o.Step, Exit: o.Exit}, Record: o.Record.err(causes)}
	if o.Timeout > 0 {
		r.Timeout = &sandbox.StepTimeout{Limit: o.Timeout}
	}
	return r, nil
}

// outcomeOf returns what a worker reports about its result.
func outcomeOf(r Result) outcome {
	o := outcome{ExitCode: r.ExitCode, Status: r.Status, Err: faultOf(r.Err), Step: r.Step, Exit: r.Exit, Record: faultOf(r.Record)}
	if r.Timeout != nil {
		o.Timeout = r.Timeout.Limit
	}
	return o
}
