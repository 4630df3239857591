package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/custody-project/custody/state"
	"github.com/custody-project/custody/state/lifecycle"
)

// Clock is what the lifecycle of sandboxes follows.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f in its own goroutine after a time, as time.AfterFunc does.
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is that of a Clock; see time.Timer.
type Timer interface {
	Stop() bool
	Reset(d time.Duration) bool
}

// realClock is that of the host.
type realClock struct{}

// Now implements Clock.
func (realClock) Now() time.Time { return time.Now() }

// AfterFunc implements Clock.
func (realClock) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }

// Transition is a change of a sandbox that no caller asked for.
type Transition struct {
	Tenant, Sandbox, Run string
	Action               lifecycle.Action
	Reason               string
}

// againTime is after which time a transition that has failed is tried again.
const againTime = time.Minute

// life carries out the lifecycle of a sandbox that is paused or archived, and deletes one that has lived for as long as it may. What state a sandbox has is in
// its file (pausedSandbox), which is written before what the former state needs is removed. So a process that is killed leaves one of these,
// which the next one continues with:
//
//	paused:   the state is here; there can be a copy in the archive, which is replaced or removed
//	archived: the state is in the archive; there can be one here, which is removed
type life struct{ *Sandbox }

// plan sets the timer for the next transition. The caller holds mu.
func (s life) plan() {
	if s.due != nil {
		s.due.Stop()
	}
	now := s.fleet.config.Clock.Now()
	if action, at := lifecycle.Next(s.terms.Lifecycle, s.status(), now); action != lifecycle.None {
		s.due = s.fleet.config.Clock.AfterFunc(at.Sub(now), func() { s.fleet.work.Go(s.act) })
	}
}

// status describes the sandbox. The caller holds mu. An idle sandbox is paused by expireIdle.
func (s life) status() lifecycle.Status {
	st := lifecycle.Status{State: lifecycle.Running, Created: s.Created}
	switch {
	case s.state == Ended:
		st.State = lifecycle.Deleted
	case s.rested != nil && s.rested.Archived:
		st.State, st.Paused = lifecycle.Archived, s.rested.At
	case s.rested != nil:
		st.State, st.Paused = lifecycle.Paused, s.rested.At
	}
	return st
}

// act carries out the transition that is due.
func (s life) act() {
	s.mu.Lock()
	now := s.fleet.config.Clock.Now()
	action, at := lifecycle.Next(s.terms.Lifecycle, s.status(), now)
	if s.ctx.Err() != nil || at.After(now) {
		if s.ctx.Err() == nil {
			s.plan()
		}
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	switch action {
	case lifecycle.Delete:
		s.record(lifecycle.Delete, "its time is over")
		s.cancel(errExpired)
	case lifecycle.Archive:
		err := s.archive()
		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil {
			s.fleet.config.Problem(fmt.Errorf("archive the sandbox %s: %w", s.ID, err))
			s.due = s.fleet.config.Clock.AfterFunc(againTime, func() { s.fleet.work.Go(s.act) })
			return
		}
		s.plan()
	}
}

// record reports a transition.
func (s life) record(a lifecycle.Action, reason string) {
	t := Transition{Tenant: s.request.Tenant, Sandbox: s.ID, Action: a, Reason: reason}
	s.mu.Lock()
	if n := len(s.runs); n > 0 {
		t.Run = s.runs[n-1]
	}
	s.mu.Unlock()
	if record := s.fleet.config.Record; record != nil {
		if err := record(context.WithoutCancel(s.ctx), t); err != nil {
			s.fleet.config.Problem(fmt.Errorf("record the %s of sandbox %s: %w", a, s.ID, err))
		}
	}
}

// errNoArchive means that the host has none.
var errNoArchive = errors.New("this host has no archive for paused sandboxes: name one in host.yaml under paused.archive")

// archive moves the stored state to the archive. If the sandbox is used meanwhile, it stays here.
func (s life) archive() error {
	if s.fleet.config.Archive == nil {
		return errNoArchive
	}
	s.sharing.Lock()
	defer s.sharing.Unlock()
	s.mu.Lock()
	start, r := s.start, s.rested
	if r == nil || r.fork || r.Archived || start.begun || s.ctx.Err() != nil {
		s.mu.Unlock()
		return nil
	}
	deadline := s.terms.Lifecycle.Deadline(s.status())
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-start.wanted:
			cancel()
		case <-stop:
		}
	}()
	if err := s.fleet.config.Archive.Put(ctx, s.request, r.Run, deadline); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	s.mu.Lock()
	archived := *r
	archived.Archived = true
	err := pausing(s).keep(archived)
	if err == nil {
		s.rested, s.state = &archived, Archived
		s.plan()
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	s.record(lifecycle.Archive, fmt.Sprintf("paused since %s", r.At.Format(time.RFC3339)))
	return s.fleet.config.Runner.Discard(context.WithoutCancel(ctx), s.request.Tenant, r.Run)
}

// fetch brings an archived state back. The caller holds sharing.
func (s life) fetch(ctx context.Context) error {
	s.mu.Lock()
	r := s.rested
	s.mu.Unlock()
	if r == nil || !r.Archived {
		return nil
	}
	a := s.fleet.config.Archive
	if a == nil {
		return errNoArchive
	}
	saved, err := a.Fetch(ctx, s.request.Tenant, r.Run)
	if err != nil {
		return err
	}
	fetched := *r
	fetched.Archived = false
	fetched.Saved.Size, fetched.Saved.Expires = saved.Size, saved.Expires
	s.mu.Lock()
	if err = pausing(s).keep(fetched); err == nil {
		s.rested = &fetched
		if s.state == Archived {
			s.state = Paused
			s.plan()
		}
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if err := a.Delete(ctx, s.request.Tenant, r.Run); err != nil { // it is removed with the sandbox, or expires
		s.fleet.config.Problem(fmt.Errorf("sandbox %s: %w", s.ID, err))
	}
	return nil
}

// discardState removes the stored state of a sandbox that has ended, wherever it is. When the service ends, it stays.
func (s life) discardState() {
	s.mu.Lock()
	r := s.rested
	s.mu.Unlock()
	if r == nil || r.fork || s.fleet.ctx.Err() != nil {
		return
	}
	ctx := context.WithoutCancel(s.ctx)
	err := s.fleet.config.Runner.Discard(ctx, s.request.Tenant, r.Run)
	if a := s.fleet.config.Archive; a != nil {
		err = errors.Join(err, a.Delete(ctx, s.request.Tenant, r.Run))
	} else if r.Archived {
		err = errors.Join(err, errNoArchive)
	}
	if err == nil {
		err = s.fleet.paused.remove(s.ID)
	}
	if err != nil { // the next start tries again
		s.fleet.config.Problem(fmt.Errorf("remove the stored state of sandbox %s: %w", s.ID, err))
	}
}

// found returns what there is of a paused sandbox after a restart: it finishes the transition in which the process before was killed.
func (f revival) found(ctx context.Context, k *pausedSandbox) (there bool, err error) {
	tenant, run := k.Request.Tenant, k.Rested.Run
	if k.Rested.Archived {
		return true, f.config.Runner.Discard(ctx, tenant, run)
	}
	saved, err := f.config.Runner.Stored(ctx, tenant, run)
	if errors.Is(err, state.ErrNotFound) {
		return false, f.paused.remove(k.ID)
	}
	k.Rested.Saved = saved // the file has none if the process was killed after it had stored the state
	return true, err
}

// idleOut ends the sandbox because it is idle, or pauses it if its project wants that.
func (s life) idleOut() {
	if s.terms.Lifecycle.Pause == 0 || s.Info().State != Live {
		s.cancel(errIdle)
		return
	}
	s.fleet.work.Go(func() {
		s.record(lifecycle.Pause, "it was idle")
		if err := s.Pause(s.ctx); err != nil && s.ctx.Err() == nil {
			s.fleet.config.Problem(fmt.Errorf("pause the idle sandbox %s: %w", s.ID, err))
			s.rest()
		}
	})
}
