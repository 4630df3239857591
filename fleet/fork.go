package fleet

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/custody-project/custody/host"
)

// maxForks bounds the sandboxes of one Fork.
const maxForks = 64

// Fork makes n sandboxes that continue from the state of s, with its processes and files, each in a run of its own. A sandbox that is live
// is paused for that, and continues then; one that is paused stays paused. Fork returns when all are live. After an error there are none. The metadata replaces that of s if
// it is not nil.
func (f *Fleet) Fork(ctx context.Context, s *Sandbox, n int, caller string, metadata map[string]string) (forks []*Sandbox, err error) {
	if n < 1 || n > maxForks {
		return nil, invalid("a sandbox cannot be forked into %d: give a number from 1 to %d", n, maxForks)
	}
	r := s.request.clone()
	r.Caller, r.Session, r.Idempotency, r.Lazy = caller, "", "", false
	if metadata != nil {
		r.Metadata = metadata
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	live := s.Info().State == Live
	if live {
		if err := s.Pause(ctx); err != nil {
			return nil, err
		}
	}
	if err := (life{s}).unarchive(ctx); err != nil {
		return nil, err
	}
	s.sharing.RLock()
	for range n {
		var fork *Sandbox
		if fork, err = f.fork(s, r); err != nil {
			break
		}
		forks = append(forks, fork)
	}
	f.work.Go(func() { // the state is shared until all have started
		defer s.sharing.RUnlock()
		for _, fork := range forks {
			_ = fork.Ready(context.WithoutCancel(ctx)) // its error is that of the next Ready
		}
	})
	for _, fork := range forks {
		err = errors.Join(err, fork.Ready(ctx))
	}
	if err != nil {
		for _, fork := range forks {
			fork.cancel(errDestroyed)
		}
	}
	if live {
		err = errors.Join(err, s.Ready(ctx))
	}
	return forks, err
}

// unarchive brings the state back if it is in the archive.
func (s life) unarchive(ctx context.Context) error {
	s.sharing.Lock()
	defer s.sharing.Unlock()
	return s.fetch(ctx)
}

// fork makes one sandbox that continues from the state of s.
func (f *Fleet) fork(s *Sandbox, r Request) (*Sandbox, error) {
	fork := newSandbox(f, host.NewRunID(time.Now()), r, s.terms)
	if err := (pausing{s}).bequeath(fork); err != nil {
		fork.discard(err)
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.admit(fork)
	if err == nil {
		err = fork.enter()
	}
	if err != nil {
		fork.discard(err)
		return nil, err
	}
	f.register(fork)
	fork.begin()
	f.work.Go(fork.live)
	return fork, nil
}

// bequeath gives a fork the state of s and its processes.
func (s pausing) bequeath(fork *Sandbox) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != Paused || s.rested == nil {
		return conflict("the sandbox %s is %s: only one that is live or paused can be forked", s.ID, s.state)
	}
	rested := *s.rested
	rested.fork, rested.Left = true, time.Until(fork.expires)
	rested.Resumed.MachineID, rested.Resumed.Hostname = "", ""
	fork.rested, fork.before = &rested, slices.Concat(s.before, s.runs)
	for _, p := range s.livingProcesses() {
		pausing{fork}.inherit(p)
	}
	return nil
}

// inherit adds a copy of a process that is suspended.
func (s pausing) inherit(p *Process) {
	own := newProcess(s.Sandbox, p.Command)
	own.Name, own.Started, own.begun = p.Name, p.Started, p.begun
	for name, o := range p.outputs {
		own.outputs[name].start = o.length()
	}
	if p.stdin.isClosed() {
		own.stdin.Close()
	}
	s.add(own)
}

// add adds a process that runs. The caller holds mu, unless nothing else uses s.
func (s pausing) add(p *Process) {
	s.processes[p.Name] = p
	s.order = append(s.order, p)
	s.running++
}

// refusedStart returns the error of a start that has failed because of cause.
func (s pausing) refusedStart(cause error) error {
	if s.rested.fork {
		return because(ErrConflict, cause, "the sandbox %s could not be made from the state of another one: %v", s.ID, cause)
	}
	return because(ErrConflict, cause, "the sandbox %s does not continue, and stays paused: %v", s.ID, cause)
}
