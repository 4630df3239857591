package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/sandbox"
)

// maxProcesses bounds the processes of a session that run at the same time.
const maxProcesses = 512

// errSessionEnds is why the processes of a session are ended with it.
var errSessionEnds error = sessionEnds{}

type sessionEnds struct{}

func (sessionEnds) Error() string        { return "the session ends" }
func (sessionEnds) Is(target error) bool { return target == context.Canceled }

// processes are the steps of a session, in its worker. Each is a step that the owner of the run starts.
//
//	newProcesses --serve--> open --end, or the run ends--> closed: all processes have ended
type processes struct {
	worker *worker
	end    chan error     // receives an element when the owner ends the session: ErrSuspended if it is paused
	steps  sync.WaitGroup // and connections to ports

	mu      sync.Mutex // guards the fields below
	sandbox *sandbox.Sandbox
	ctx     context.Context // nil unless the session is open
	live    map[string]*running
	tunnels int // connections to ports that are open or being made
	opened  int // and all that there were
}

// running is a process that runs.
type running struct {
	signals chan syscall.Signal
	resizes chan channel.Winsize
}

func newProcesses(w *worker) *processes {
	return &processes{worker: w, end: make(chan error, 1), live: map[string]*running{}}
}

// serve is the session. It returns when all processes have ended.
func (p *processes) serve(ctx context.Context, s *sandbox.Sandbox) error {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p.mu.Lock()
	p.sandbox, p.ctx = s, inner
	p.mu.Unlock()
	p.worker.reports.call(callServing, none{}, nil)
	var ended error
	select {
	case ended = <-p.end:
	case <-ctx.Done():
	}
	p.mu.Lock()
	p.ctx = nil
	p.mu.Unlock()
	cancel(errSessionEnds)
	p.steps.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return ended
}

// handlers returns the calls with which the owner controls the session.
func (p *processes) handlers() map[string]privsep.Handler {
	return map[string]privsep.Handler{
		callStart: p.start,
		callEnd: privsep.Handle(func(_ context.Context, c endCall) (any, []*os.File, error) {
			var ended error
			if c.Paused {
				ended = sandbox.ErrSuspended
			}
			select {
			case p.end <- ended:
			default:
			}
			return none{}, nil, nil
		}),
		callQuiet: privsep.Handle(func(ctx context.Context, _ none) (any, []*os.File, error) {
			s, err := p.worker.current()
			if err != nil {
				return nil, nil, err
			}
			quiet, err := s.Quiet(ctx)
			return quiet, nil, err
		}),
		callSignalProcess: privsep.Handle(func(ctx context.Context, c processCall) (any, []*os.File, error) {
			r, err := p.find(c.Name)
			if err == nil {
				err = send(ctx, r.signals, c.Signal)
			}
			return none{}, nil, err
		}),
		callResizeProcess: privsep.Handle(func(ctx context.Context, c processCall) (any, []*os.File, error) {
			r, err := p.find(c.Name)
			if err == nil {
				err = send(ctx, r.resizes, c.Size)
			}
			return none{}, nil, err
		}),
	}
}

func (p *processes) find(name string) (*running, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.live[name]; r != nil {
		return r, nil
	}
	return nil, fmt.Errorf("there is no process %.80q", name)
}

// maxCommand bounds the description of a process in bytes; the kernel of a guest bounds its arguments and environment to less.
const maxCommand = 4 << 20

// start starts a process, with a file that describes it and the three of its standard streams, and returns before it executes.
func (p *processes) start(_ context.Context, _ []byte, files []*os.File) (any, []*os.File, error) {
	if len(files) != 4 {
		closeFiles(files)
		return nil, nil, fmt.Errorf("the call has %d descriptors", len(files))
	}
	var c Process
	err := privsep.FromMemoryUpTo(maxCommand, files[0], &c)
	if err == nil {
		err = p.launch(c, files[1:])
	}
	if err != nil {
		closeFiles(files[1:])
	}
	return none{}, nil, err
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

func (p *processes) launch(c Process, files []*os.File) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ctx == nil:
		return errors.New("the session does not run")
	case p.live[c.Name] != nil:
		return fmt.Errorf("there is a process %.80q already", c.Name)
	case len(p.live) >= maxProcesses:
		return fmt.Errorf("%d processes run, which is the limit of a session", maxProcesses)
	}
	r := &running{make(chan syscall.Signal, 16), make(chan channel.Winsize, 1)}
	p.live[c.Name] = r
	ctx, s := p.ctx, p.sandbox
	p.steps.Go(func() {
		exit, err := s.Step(ctx, c.step(files, r))
		closeFiles(files)
		p.mu.Lock()
		delete(p.live, c.Name)
		p.mu.Unlock()
		p.worker.reports.call(callExited, exited{c.Name, exit, faultOf(err)}, nil)
	})
	return nil
}

// Process is a process to start in a session.
type Process struct {
	Name      string // the name of its step, which no other process of the session has
	Argv      audit.Texts
	Env, Vars audit.Texts // see sandbox.Step
	Dir, User audit.Text
	Secrets   []string
	Time      time.Duration // limit; 0: only the run's
	Terminal  *channel.Winsize
	Live      bool // see sandbox.Step
	// Attach continues a process that was suspended, with these offsets of its outputs; see sandbox.Step.
	Attach  bool
	Offsets [2]int64
}

// step returns the process as a step.
func (c Process) step(files []*os.File, r *running) sandbox.Step {
	return sandbox.Step{
		Name: c.Name, Session: true, Argv: c.Argv, Env: c.Env, Vars: c.Vars, Dir: string(c.Dir), User: string(c.User), Secrets: c.Secrets, Time: c.Time, TTY: c.Terminal,
		Live: c.Live, Attach: c.Attach, Offsets: c.Offsets, Stdin: files[0], Stdout: files[1], Stderr: files[2], Signals: r.signals, Resizes: r.resizes,
	}
}

// exited reports the end of a process.
type exited struct {
	Name string
	Exit channel.Exit
	Err  *fault
}
