package channel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// ErrAnonymous means that the guest has no identity yet.
var ErrAnonymous = errors.New("the guest has no identity yet: nothing of a run can happen in it")

// errIdentified means that the guest has one.
var errIdentified = errors.New("the guest has its identity, which cannot be changed")

// assigned is the identity that the host has sent.
//
//	         Identify         the guest has answered
//	none ---------------> sent ---------------------> known
//	  |  an event                |  refused
//	  v                          v
//	ErrHostile                 the session ends
type assigned struct {
	done chan struct{} // closed when it is known

	mu     sync.Mutex // guards the fields below
	sent   bool
	name   string        // the run's ID
	offset time.Duration // how far the guest's clock is ahead of the host's
}

// known reports whether the guest has an identity.
func (a *assigned) known() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// run returns the run's ID, "" before the identity.
func (a *assigned) run() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.name
}

// send notes that an identity is sent.
func (a *assigned) send(run string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sent {
		return errIdentified
	}
	a.sent, a.name = true, run
	return nil
}

// set makes the identity known.
func (a *assigned) set(offset time.Duration) {
	a.mu.Lock()
	a.offset = offset
	a.mu.Unlock()
	close(a.done)
}

// await returns the offset of the guest's clock, for an event. An event before the identity is hostile: nothing is observed
// before, so that no run gets events of what happened earlier.
func (a *assigned) await(ctx context.Context) (time.Duration, error) {
	a.mu.Lock()
	sent := a.sent
	a.mu.Unlock()
	if !sent {
		return 0, hostile("an event before the guest had an identity")
	}
	select {
	case <-a.done:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.offset, nil
}

// Identify makes the guest the sandbox of a run, once. After an error the guest cannot be used, and the session ends.
func (c *Client) Identify(ctx context.Context, id Identity) error {
	if err := id.check(); err != nil {
		return fmt.Errorf("identify the guest: %w", err)
	}
	if err := c.identity.send(id.Run); err != nil {
		return fmt.Errorf("identify the guest: %w", err)
	}
	start := time.Now()
	r, err := c.ask(ctx, hello{Kind: streamIdentity, Identity: &id})
	if err == nil && !r.only(r.Clock != nil) {
		err = hostile("answer to the identity without the guest's clock")
	}
	if err != nil {
		c.end(err)
		return fmt.Errorf("identify the guest: %w", err)
	}
	end := time.Now()
	c.identity.set(r.Clock.Sub(start.Add(end.Sub(start) / 2))) // to within half the time that the exchange took
	return nil
}

// Rehearse runs a command as a warm-up, before the guest has an identity, and returns when it has ended. Its output is dropped, and
// nothing observes it. A program that the template does not have is no error.
func (c *Client) Rehearse(ctx context.Context, cmd Command) error {
	p, err := c.start(ctx, streamRehearse, cmd)
	if err != nil {
		return fmt.Errorf("rehearse %q: %w", cmd.Argv, err)
	}
	p.Stdin.Close()
	var output sync.WaitGroup
	for _, r := range []io.Reader{p.Stdout, p.Stderr} {
		if r != nil {
			output.Go(func() { io.Copy(io.Discard, r) })
		}
	}
	defer output.Wait()
	exit, err := p.Wait(ctx)
	if err != nil {
		c.end(err) // so that output ends
		return fmt.Errorf("rehearse %q: %w", cmd.Argv, err)
	}
	if exit.Code != 0 && exit.Code != 127 {
		return fmt.Errorf("rehearse %q: exit code %d %.500q", cmd.Argv, exit.Code, exit.Error)
	}
	return nil
}

// stage is how far the guest's session is.
//
//	 rehearse
//	   +--+
//	   |  v     identity, after the last rehearsal           applied
//	anonymous ------------------------------> identifying ------------> identified: commands, copies
//	                                            ^  |                      |
//	                                   identity |  +-- failed: pings      | suspend, park
//	                                            |      only               v
//	                                            +---------------------- parked
//
// The zero value is anonymous.
type stage struct {
	rehearsals sync.WaitGroup // that run

	mu    sync.Mutex // guards phase
	phase phase
}

type phase int

const (
	anonymous phase = iota
	identifying
	identified
	parked
)

// enter returns an error if a stream of this kind is not allowed now. The caller calls end when it has served the stream.
func (s *stage) enter(kind streamKind) (end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	end = func() {}
	switch {
	case kind == streamPing || kind == streamDrain:
	case kind == streamRehearse && s.phase == anonymous:
		s.rehearsals.Add(1)
		end = s.rehearsals.Done
	case kind == streamIdentity && (s.phase == anonymous || s.phase == parked):
		s.phase = identifying
	case kind == streamRehearse || kind == streamIdentity:
		err = errIdentified
	case s.phase != identified:
		err = ErrAnonymous
	}
	return end, err
}

// reached sets the phase.
func (s *stage) reached(p phase) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase = p
}

// identify applies the identity. Nothing is left of the rehearsals when it begins.
func (s *Server) identify(ctx context.Context, id Identity) report {
	s.stage.rehearsals.Wait()
	err := id.check()
	s.run = id.Run
	if err == nil && s.Identify != nil {
		err = s.Identify(ctx, id)
	}
	if err != nil {
		return report{Error: err.Error(), Done: true}
	}
	s.stage.reached(identified)
	clock := time.Now().UTC()
	return report{Clock: &clock}
}
