package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/privsep"
)

// Started is a process of a session.
type Started struct {
	done chan struct{} // closed when exit and err are set
	exit channel.Exit
	err  error
}

// Done is closed when the process has ended.
func (p *Started) Done() <-chan struct{} { return p.done }

// Exit returns how the process ended. An error means that it was ended, or could not be started, by Custody.
func (p *Started) Exit() (channel.Exit, error) {
	<-p.done
	return p.exit, p.err
}

// started are the processes of a session, in the process that owns the run.
type started struct {
	serving chan struct{} // receives an element when processes can be started

	mu   sync.Mutex // guards the fields below
	live map[string]*Started
	over bool
}

func newStarted() *started {
	return &started{serving: make(chan struct{}, 1), live: map[string]*Started{}}
}

// errSessionOver is the error of processes of which the worker did not report the end.
var errSessionOver = errors.New("the sandbox has ended")

// add adds a process that is being started.
func (s *started) add(name string) (*Started, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over:
		return nil, errSessionOver
	case s.live[name] != nil:
		return nil, fmt.Errorf("there is a process %.80q already", name)
	}
	p := &Started{done: make(chan struct{})}
	s.live[name] = p
	return p, nil
}

// end sets how a process ended. It reports whether there is such a process.
func (s *started) end(name string, exit channel.Exit, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.live[name]
	if p == nil {
		return false
	}
	delete(s.live, name)
	p.exit, p.err = exit, err
	close(p.done)
	return true
}

// close ends what the worker has not reported.
func (s *started) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for name, p := range s.live {
		delete(s.live, name)
		p.err = errSessionOver
		close(p.done)
	}
}

// handlers returns the calls with which a worker reports about its session.
func (s *started) handlers(causes func() []error) map[string]privsep.Handler {
	return map[string]privsep.Handler{
		callServing: privsep.Handle(func(context.Context, none) (any, []*os.File, error) {
			select {
			case s.serving <- struct{}{}:
				return none{}, nil, nil
			default:
				return nil, nil, errors.New("the session was reported before")
			}
		}),
		callExited: privsep.Handle(func(_ context.Context, e exited) (any, []*os.File, error) {
			if !s.end(e.Name, e.Exit, e.Err.err(causes())) {
				return nil, nil, errors.New("no such process was started")
			}
			return none{}, nil, nil
		}),
	}
}

// serve runs Serve, and then ends the session.
func (s *Session) serve(do func(context.Context, *Session)) {
	do(s.ctx, s)
	ctx, cancel := context.WithTimeout(s.ctx, callTime)
	defer cancel()
	if err := s.call(ctx, callEnd, endCall{s.paused.Load()}, nil); err != nil && s.ctx.Err() == nil {
		s.run.Events.Problem(fmt.Errorf("end the session: %w", err))
	}
}

// Start starts a process in a session. The files are its standard streams: stdin is read, and what it prints is written, redacted, to the
// other two. The caller keeps its own copies and can close them when Start has returned. ctx bounds only the start.
func (s *Session) Start(ctx context.Context, p Process, stdin, stdout, stderr *os.File) (*Started, error) {
	started, err := s.run.started.add(p.Name)
	if err != nil {
		return nil, err
	}
	config, err := privsep.Memory("process", p)
	if err == nil {
		defer config.Close()
		err = s.call(ctx, callStart, none{}, nil, config, stdin, stdout, stderr)
	}
	if err != nil {
		s.run.started.end(p.Name, channel.Exit{}, err)
		return nil, fmt.Errorf("start the process: %w", err)
	}
	return started, nil
}

// Signal sends a signal to the process group of a process.
func (s *Session) Signal(ctx context.Context, name string, sig syscall.Signal) error {
	return s.call(ctx, callSignalProcess, processCall{Name: name, Signal: sig}, nil)
}

// Resize sets the size of a process's terminal.
func (s *Session) Resize(ctx context.Context, name string, size channel.Winsize) error {
	return s.call(ctx, callResizeProcess, processCall{Name: name, Size: size}, nil)
}
