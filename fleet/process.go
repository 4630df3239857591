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
	done    chan struct{}      // closed when the fields below are set

	exit  channel.Exit
	err   error
	ended time.Time
}

// Start starts a process, and the sandbox if it is only promised. ctx bounds only the start. Without stdin the process has no input.
func (s *Sandbox) Start(ctx context.Context, c run.Command, stdin bool) (*Process, error) {
	defer s.Call()()
	if err := s.Ready(ctx); err != nil {
		return nil, err
	}
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
	s.processes[p.Name] = p
	s.order = append(s.order, p)
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

// launch starts a process with pipes.
func (s *Sandbox) launch(ctx context.Context, c run.Command, withInput bool) (p *Process, err error) {
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	p = &Process{Command: c, Started: time.Now().UTC(), sandbox: s, outputs: map[string]*Output{}, done: make(chan struct{})}
	in, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	theirs, p.stdin = append(theirs, in), &input{file: w}
	if !withInput {
		p.stdin.Close()
	}
	names := []string{"stdout", "stderr"}
	if c.Terminal != nil {
		names[0] = "tty"
	}
	var reads []*os.File
	for _, name := range names {
		r, w, err := os.Pipe()
		if err != nil {
			p.discard(reads)
			return nil, err
		}
		theirs, reads = append(theirs, w), append(reads, r)
		p.outputs[name] = newOutput(s.ctx.Done())
	}
	if p.process, err = s.session.Start(ctx, c, theirs[0], theirs[1], theirs[2]); err != nil {
		p.discard(reads)
		if wrong := new(run.CommandError); errors.As(err, &wrong) {
			return nil, invalid("%v", wrong)
		}
		return nil, lost(s, err)
	}
	p.Name = p.process.Name
	s.fleet.work.Go(func() { p.follow(names, reads) })
	return p, nil
}

// discard closes the pipes of a process that did not start.
func (p *Process) discard(reads []*os.File) {
	p.stdin.Close()
	for _, f := range reads {
		f.Close()
	}
}

// follow reads the output of the process until its end.
func (p *Process) follow(names []string, reads []*os.File) {
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() {
			defer reads[i].Close()
			p.outputs[name].readFrom(reads[i])
			p.outputs[name].end()
		})
	}
	all.Wait()
	p.exit, p.err = p.process.Exit()
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
	return p.stdin.write(ctx, b)
}

// CloseInput ends the input of the process.
func (p *Process) CloseInput() error { return p.stdin.Close() }

// input is the writing end of a process's input.
type input struct {
	writing sync.Mutex // held during a write, so that writes are not mixed
	file    *os.File
}

func (i *input) write(ctx context.Context, b []byte) (int, error) {
	i.writing.Lock()
	defer i.writing.Unlock()
	if err := i.file.SetWriteDeadline(time.Time{}); err != nil {
		return 0, conflict("the input of the process is closed")
	}
	stop := context.AfterFunc(ctx, func() { i.file.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	n, err := i.file.Write(b)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, context.Cause(ctx)
	case errors.Is(err, os.ErrClosed), errors.Is(err, syscall.EPIPE):
		return n, conflict("the input of the process is closed")
	}
	return n, err
}

// Close implements io.Closer.
func (i *input) Close() error {
	if err := i.file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
