// Package remote lets a process without privileges control a machine that a privileged process has started (package privsep). The
// privileged process chooses the machine, starts it and confines it. The other one parses what the guest and the machine
// monitor send. It can start the machine once, end and remove it, and make the calls that the machine's driver adds.
package remote

import (
	"context"
	"errors"
	"os"
	"sync"

	"github.com/custody-project/custody/privsep"
)

// The calls of every machine.
const (
	callStart  = "vm-start"
	callKill   = "vm-kill"
	callWait   = "vm-wait"
	callQuote  = "vm-quote"
	callRemove = "vm-remove"
)

// Process is the process of a machine, with what confines it. Its methods are safe for concurrent use.
type Process interface {
	// Kill begins to end it.
	Kill()
	// Waited is closed when it has ended; End then describes how.
	Waited() <-chan struct{}
	End() string
	// Quote returns the end of its standard error, as a suffix for an error.
	Quote() string
	// Remove ends it, and returns when it and what it used have been removed. It is called once.
	Remove() error
}

// ErrStuck means that a killed process has not ended in time.
var ErrStuck = errors.New("does not end after SIGKILL: a system call hangs")

// Empty are the arguments, or the result, of a call that has none.
type Empty struct{}

// ended states how a process ended.
type ended struct{ State, Quote string }

// Started is a started process with what its machine's Process at the other end gets: a result, and files, which are closed here.
type Started[P Process] struct {
	Process P
	Result  any
	Files   []*os.File
}

// Server starts one machine for another process. It implements privsep.Server, and is safe for concurrent use.
//
//	NewServer --> idle --vm-start--> running --vm-remove, Close--> removed
//	                |                                                 ^
//	                +--a start that fails, Close----------------------+
type Server[P Process] struct {
	start    func(context.Context) (Started[P], error)
	handlers map[string]privsep.Handler

	mu      sync.Mutex // guards the fields below; held during the start and the removal
	over    bool       // there is no further start
	running bool       // process is valid
	process P
}

// NewServer returns the server of the machine that start starts. start leaves nothing if it returns an error.
func NewServer[P Process](start func(context.Context) (Started[P], error)) *Server[P] {
	s := &Server[P]{start: start, handlers: map[string]privsep.Handler{}}
	s.handlers[callStart] = privsep.Handle(func(ctx context.Context, _ Empty) (any, []*os.File, error) { return s.begin(ctx) })
	Add(s, callKill, func(_ context.Context, p P, _ Empty) (any, []*os.File, error) { p.Kill(); return Empty{}, nil, nil })
	Add(s, callWait, func(ctx context.Context, p P, _ Empty) (any, []*os.File, error) {
		select {
		case <-p.Waited():
			return ended{p.End(), p.Quote()}, nil, nil
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	})
	Add(s, callQuote, func(_ context.Context, p P, _ Empty) (any, []*os.File, error) { return p.Quote(), nil, nil })
	Add(s, callRemove, func(context.Context, P, Empty) (any, []*os.File, error) { return Empty{}, nil, s.Close() })
	return s
}

// Add adds a call that needs the started machine. do can be called concurrently, and after the machine's removal has begun. Add must not
// be called after Handlers.
func Add[P Process, T any](s *Server[P], name string, do func(ctx context.Context, p P, args T) (any, []*os.File, error)) {
	s.handlers[name] = privsep.Handle(func(ctx context.Context, args T) (any, []*os.File, error) {
		s.mu.Lock()
		p, running := s.process, s.running
		s.mu.Unlock()
		if !running {
			return nil, nil, errors.New("the machine has not been started, or was removed")
		}
		return do(ctx, p, args)
	})
}

// Handlers implements privsep.Server.
func (s *Server[P]) Handlers() map[string]privsep.Handler { return s.handlers }

// begin starts the machine.
func (s *Server[P]) begin(ctx context.Context) (any, []*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil, nil, errors.New("the machine was started or removed already")
	}
	s.over = true
	started, err := s.start(ctx)
	if err != nil {
		return nil, nil, err
	}
	s.process, s.running = started.Process, true
	return started.Result, started.Files, nil
}

// UsedMemory returns what the machine's process uses, see confine.UsedMemory.
func (s *Server[P]) UsedMemory() (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	used, ok := any(s.process).(interface{ UsedMemory() (int64, error) })
	if !s.running || !ok {
		return 0, errors.New("the machine does not run, or its memory is not known")
	}
	return used.UsedMemory()
}

// Close implements privsep.Server: it ends the machine, if it was started, and removes what it used.
func (s *Server[P]) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	running := s.running
	s.over, s.running = true, false
	if !running {
		return nil
	}
	return s.process.Remove()
}
