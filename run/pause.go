package run

import (
	"context"
	"os"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/sandbox"
	"github.com/custody-project/custody/worker"
)

// ErrPaused means that a live run has ended because its sandbox was paused: its processes continue in another run.
var ErrPaused = sandbox.ErrSuspended

// ErrNotBegun is an ErrPaused of a process that has not started.
var ErrNotBegun = sandbox.ErrNotBegun

// ErrNotPaused means that a sandbox could not be paused and continues.
var ErrNotPaused = sandbox.ErrNotSuspended

// Resumed describes a sandbox that was paused; see sandbox.Resumed.
type Resumed = sandbox.Resumed

// Saved describes its stored state; see worker.Saved.
type Saved = worker.Saved

// Resume is what a live run continues from.
type Resume struct {
	Parent    audit.Parent // the run that was paused
	Resumed   Resumed
	Processes int64 // that there were
	Fork      bool  // see hostd.Resume
}

// Pausing pauses a live run and continues it. Its methods are those of worker.Session and worker.Sandbox with the same names.
//
//	Suspend --> Save --> Paused, and Serve returns: another run continues with Attach, Thaw, Continued
//	              | failed
//	              +--> Continue, Attach, Thaw
type Pausing struct{ Live *Live }

// Suspend suspends the processes.
func (p Pausing) Suspend(ctx context.Context) (Resumed, error) { return p.Live.session.Suspend(ctx) }

// Save stores the state of the sandbox, and about with it, in JSON.
func (p Pausing) Save(ctx context.Context, keep time.Duration, about []byte) (Saved, error) {
	return p.Live.job.sandbox.Save(ctx, keep, about)
}

// Continue ends the suspension after Save has failed.
func (p Pausing) Continue(ctx context.Context) error { return p.Live.session.Continue(ctx) }

// Thaw lets the processes run.
func (p Pausing) Thaw(ctx context.Context) error { return p.Live.session.Thaw(ctx) }

// Continued removes the stored state that the run has continued from.
func (p Pausing) Continued(ctx context.Context) error { return p.Live.job.sandbox.Continued(ctx) }

// Paused makes the run end as paused when Serve returns.
func (p Pausing) Paused() { p.Live.session.Paused() }

// Processes returns the number of processes that the run has had, those before it included.
func (p Pausing) Processes() int64 { return p.Live.count.Load() }

// Attach continues the process with this name, which Command started, with these offsets of its outputs, or starts it if it has not
// begun. What Start says about the files and errors holds.
func (p Pausing) Attach(ctx context.Context, name string, c Command, begun bool, offsets [2]int64, stdin, stdout, stderr *os.File) (*Process, error) {
	l := p.Live
	w, err := l.process(name, c)
	if err != nil {
		return nil, &CommandError{err}
	}
	w.Attach, w.Offsets = begun, offsets
	started, err := l.session.Start(ctx, w, stdin, stdout, stderr)
	if err != nil {
		return nil, err
	}
	return &Process{started, name, l}, nil
}
