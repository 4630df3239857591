package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/run"
)

// maxProcesses bounds the processes of a sandbox that are remembered, and maxRunning those that run.
const (
	maxProcesses = 10000
	maxRunning   = 256
)

// Process is a process of a sandbox. It is safe for concurrent use.
//
//	Start --> running --exits, is killed, or the sandbox ends--> ended
type Process struct {
	Name    string // of its step in the record
	Started time.Time
	Command run.Command
	sandbox *Sandbox
	process *run.Process
	stdin   *input
	outputs map[string]*Output // by stream: stdout and stderr, or tty
	begun   bool               // false if it was suspended before it started; set by follow, and read while nothing follows
	done    chan struct{}      // closed when the fields below are set

	exit  channel.Exit
	err   error
	ended time.Time
}

// use returns when the sandbox is live, and keeps it from being paused until leave is called.
func (s pausing) use(ctx context.Context) (leave func(), err error) {
	for {
		if err := s.Ready(ctx); err != nil {
			return nil, err
		}
		s.using.RLock()
		if state := s.Info().State; state != Pausing && state != Paused && state != Archived {
			return s.using.RUnlock, nil
		}
		s.using.RUnlock() // it was paused meanwhile
	}
}

// Start starts a process, and the sandbox if it is only promised. ctx bounds only the start. Without stdin the process has no input.
func (s *Sandbox) Start(ctx context.Context, c run.Command, stdin bool) (*Process, error) {
	defer s.Call()()
	leave, err := pausing{s}.use(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := s.reserve(); err != nil {
		return nil, err
	}
	p, err := s.launch(ctx, c, stdin)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.running--
		return nil, err
	}
	s.running-- // which add counts
	pausing{s}.add(p)
	return p, nil
}

// reserve counts one more process.
func (s *Sandbox) reserve() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.state != Live:
		return &Error{ErrEnded, fmt.Sprintf("the sandbox %s has ended", s.ID)}
	case s.running >= maxRunning:
		return conflict("%d processes run in the sandbox: wait until one ends", maxRunning)
	case len(s.processes) >= maxProcesses:
		return conflict("the sandbox has had %d processes, as many as it can have: create another one", maxProcesses)
	}
	s.running++
	return nil
}

// launch starts a process.
func (s *Sandbox) launch(ctx context.Context, c run.Command, withInput bool) (*Process, error) {
	p := newProcess(s, c)
	if !withInput {
		p.stdin.Close()
	}
	err := p.connect(func(stdin, stdout, stderr *os.File) (err error) {
		p.process, err = s.session.Start(ctx, c, stdin, stdout, stderr)
		return err
	})
	if wrong := new(run.CommandError); errors.As(err, &wrong) {
		return nil, invalid("%v", wrong)
	}
	if err != nil {
		return nil, lost(s, err)
	}
	p.Name = p.process.Name
	return p, nil
}

func newProcess(s *Sandbox, c run.Command) *Process {
	p := &Process{Command: c, Started: time.Now().UTC(), sandbox: s, begun: true, stdin: &input{}, outputs: map[string]*Output{}, done: make(chan struct{})}
	for _, name := range p.streams() {
		p.outputs[name] = newOutput(s.ctx.Done())
	}
	return p
}

// streams returns the names of its outputs.
func (p *Process) streams() []string {
	if p.Command.Terminal != nil {
		return []string{"tty", "stderr"}
	}
	return []string{"stdout", "stderr"}
}

// connect makes pipes for the standard streams, calls start with the ends of the process, and reads the outputs from then on.
func (p *Process) connect(start func(stdin, stdout, stderr *os.File) error) (err error) {
	var theirs, ours []*os.File
	defer func() {
		closeFiles(theirs)
		if err != nil {
			closeFiles(ours)
		}
	}()
	for i := range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		if i == 0 {
			r, w = w, r
		}
		ours, theirs = append(ours, r), append(theirs, w)
	}
	if err := start(theirs[0], theirs[1], theirs[2]); err != nil {
		return err
	}
	p.stdin.resume(ours[0])
	p.sandbox.following.Add(1)
	p.sandbox.fleet.work.Go(func() {
		defer p.sandbox.following.Done()
		p.follow(ours[1:])
	})
	return nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// follow reads the output of the process until its end, or until it is suspended.
func (p *Process) follow(reads []*os.File) {
	var all sync.WaitGroup
	for i, name := range p.streams() {
		all.Go(func() {
			defer reads[i].Close()
			p.outputs[name].readFrom(reads[i])
		})
	}
	all.Wait()
	exit, err := p.process.Exit()
	if errors.Is(err, run.ErrPaused) {
		p.begun = !errors.Is(err, run.ErrNotBegun)
		return
	}
	p.end(exit, err)
}

// end sets how the process ended.
func (p *Process) end(exit channel.Exit, err error) {
	for _, o := range p.outputs {
		o.end()
	}
	p.exit, p.err = exit, err
	p.ended = time.Now().UTC()
	p.stdin.Close()
	close(p.done)
	s := p.sandbox
	s.mu.Lock()
	s.running--
	s.mu.Unlock()
	s.rest()
}

// Process returns a process of the sandbox.
func (s *Sandbox) Process(name string) (*Process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.processes[name]; p != nil {
		return p, nil
	}
	return nil, unknown("the sandbox has no process %.80q", name)
}

// Processes returns the processes of the sandbox in the order of their start.
func (s *Sandbox) Processes() []*Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.order)
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit returns how the process ended, and when. An error means that Custody ended it or could not start it. It waits for the end.
func (p *Process) Exit() (channel.Exit, time.Time, error) {
	<-p.done
	return p.exit, p.ended, p.err
}

// Attend keeps the sandbox from being idle until the returned function is called: a client waits for the process.
func (p *Process) Attend() (done func()) { return p.sandbox.Call() }

// Output returns an output of the process: stdout, stderr or tty.
func (p *Process) Output(stream string) (*Output, error) {
	if o := p.outputs[stream]; o != nil {
		return o, nil
	}
	return nil, unknown("the process has no output %.20q", stream)
}

// Signal sends a signal to the process's group.
func (p *Process) Signal(ctx context.Context, sig syscall.Signal) error {
	defer p.sandbox.Call()()
	if p.over() {
		return conflict("the process %s has ended", p.Name)
	}
	leave, err := pausing{p.sandbox}.use(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return p.process.Signal(ctx, sig)
}

// Resize sets the size of the process's terminal.
func (p *Process) Resize(ctx context.Context, size channel.Winsize) error {
	defer p.sandbox.Call()()
	if p.Command.Terminal == nil {
		return conflict("the process %s has no terminal", p.Name)
	}
	if p.over() {
		return conflict("the process %s has ended", p.Name)
	}
	leave, err := pausing{p.sandbox}.use(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return p.process.Resize(ctx, size)
}

func (p *Process) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Write writes to the input of the process. It waits until the process has read enough, at most until ctx is done.
func (p *Process) Write(ctx context.Context, b []byte) (int, error) {
	defer p.sandbox.Call()()
	if p.over() {
		return 0, errInputClosed
	}
	if err := p.sandbox.Ready(ctx); err != nil {
		return 0, err
	}
	return p.stdin.write(ctx, b)
}

// CloseInput ends the input of the process.
func (p *Process) CloseInput() error {
	p.stdin.Close()
	return nil
}
