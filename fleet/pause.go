package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/state"
	"github.com/custody-project/custody/state/archive"
	"github.com/custody-project/custody/state/lifecycle"
)

// rested is the stored state of a sandbox, which its next run continues from.
type rested struct {
	Run       string      // that was paused
	At        time.Time   // when
	Resumed   run.Resumed // of its guest
	Saved     run.Saved
	Processes int64         // that there were
	Archived  bool          // it is in the archive
	Left      time.Duration // that the sandbox may live from then on
	Parent    *audit.Parent // nil: the record of the run was not closed yet
	fork      bool          // the state is another sandbox's
}

// resume returns what a run continues from; nil for none.
func (r *rested) resume() *run.Resume {
	if r == nil {
		return nil
	}
	from := &run.Resume{Parent: audit.Parent{Run: r.Run}, Resumed: r.Resumed, Processes: r.Processes, Fork: r.fork}
	if r.Parent != nil {
		from.Parent = *r.Parent
	}
	return from
}

// pausing pauses a sandbox and continues it.
type pausing struct{ *Sandbox }

// Pause stores the state of a sandbox and ends its machine. It returns when the record of its run is closed. If the sandbox is about to start,
// Pause waits for that. After an error the sandbox continues, unless it has ended.
func (s *Sandbox) Pause(ctx context.Context) error {
	for {
		s.mu.Lock()
		start, former, state, begun := s.start, s.start.former, s.state, s.start.begun
		s.mu.Unlock()
		switch {
		case !begun && (state == Paused || state == Archived):
			return nil
		case state == Live:
			return pausing{s}.pauseStart(ctx, start)
		case state == Queued, state == Starting, state == Paused, state == Archived:
			if err := s.Ready(ctx); err != nil {
				return err
			}
		case state == Pausing:
			if err := (pausing{s}).await(ctx, former); err != nil {
				return err
			}
		default:
			return conflict("the sandbox %s is %s: only a live one can be paused", s.ID, state)
		}
	}
}

// pauseStart pauses the sandbox, which is live since that start.
func (s pausing) pauseStart(ctx context.Context, start *start) error {
	answer := make(chan error, 1)
	select {
	case s.pauses <- answer:
	case <-start.over: // another one has paused it
		return nil
	case <-s.gone:
		return s.endError()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-answer:
		if err != nil {
			return err
		}
	case <-s.gone:
		return s.endError()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return s.await(ctx, start)
}

// await returns when the run of a start that was paused has ended.
func (s pausing) await(ctx context.Context, start *start) error {
	select {
	case <-start.over:
		return nil
	case <-s.gone:
		return s.endError()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pause suspends the processes and stores the state. After an error the sandbox is live again, or is about to end.
func (s pausing) pause(ctx context.Context, l *run.Live) error {
	s.using.Lock()
	defer s.using.Unlock()
	s.mu.Lock()
	former := s.start
	s.state, s.start = Pausing, newStart()
	s.start.former = former
	live := s.livingProcesses()
	s.mu.Unlock()
	for _, p := range live {
		p.hold()
	}
	p := run.Pausing{Live: l}
	resumed, err := p.Suspend(ctx)
	if err != nil {
		for _, p := range live {
			p.release()
		}
		return s.unpaused(former, errors.Is(err, run.ErrNotPaused), err)
	}
	s.following.Wait()
	r := rested{Run: l.Run(), Resumed: resumed, Processes: p.Processes()}
	s.mu.Lock()
	r.At = s.fleet.config.Clock.Now().UTC()
	r.Left = s.expires.Sub(r.At)
	about, err := json.Marshal(s.described(r))
	if err == nil {
		err = s.keep(r)
	}
	s.mu.Unlock()
	if err == nil {
		r.Saved, err = p.Save(ctx, s.keepTime(), about)
	}
	if err != nil {
		err = errors.Join(err, s.fleet.paused.remove(s.ID))
		failed := p.Continue(ctx)
		if failed == nil {
			failed = s.attach(ctx, l, live)
		}
		return s.unpaused(former, failed == nil, errors.Join(err, failed))
	}
	p.Paused()
	if r.Saved.Files != "" {
		for _, p := range live {
			p.endPaused(r.Saved.Files)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rested = &r
	s.expiry.Stop()
	return nil
}

// livingProcesses returns the processes that run. The caller holds mu.
func (s pausing) livingProcesses() (live []*Process) {
	for _, p := range s.order {
		if !p.over() {
			live = append(live, p)
		}
	}
	return live
}

// hold makes those wait who write to the process, and those not who are behind with reading.
func (p *Process) hold() {
	p.stdin.hold()
	for _, o := range p.outputs {
		o.hurry(true)
	}
}

// endPaused ends a process that was not stored.
func (p *Process) endPaused(why string) {
	if !p.over() {
		p.end(channel.Exit{}, fmt.Errorf("it ended when the sandbox was paused: %s", why))
	}
}

// unpaused ends a pause that has failed because of cause: the sandbox is live again if its processes run, and ends otherwise.
func (s pausing) unpaused(former *start, runs bool, cause error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if runs {
		s.start.finish(nil)
		s.state, s.start = Live, former
		return because(ErrConflict, cause, "the sandbox %s is not paused and continues: %v", s.ID, cause)
	}
	s.cancel(cause)
	return because(ErrEnded, cause, "the sandbox %s could not be paused, and ends: %v", s.ID, cause)
}

// release ends hold.
func (p *Process) release() {
	p.stdin.resume(nil)
	for _, o := range p.outputs {
		o.hurry(false)
	}
}

// attach continues the processes that were suspended.
func (s pausing) attach(ctx context.Context, l *run.Live, live []*Process) error {
	p := run.Pausing{Live: l}
	for _, process := range live {
		if process.over() {
			continue
		}
		if err := process.attach(ctx, p); err != nil {
			return fmt.Errorf("continue process %s: %w", process.Name, err)
		}
	}
	return p.Thaw(ctx)
}

func (p *Process) attach(ctx context.Context, in run.Pausing) error {
	var offsets [2]int64
	for i, name := range p.streams() {
		offsets[i] = p.outputs[name].length()
		p.outputs[name].hurry(false)
	}
	return p.connect(func(stdin, stdout, stderr *os.File) (err error) {
		p.process, err = in.Attach(ctx, p.Name, p.Command, p.begun, offsets, stdin, stdout, stderr)
		return err
	})
}

// enliven makes the sandbox live in a run.
func (s pausing) enliven(ctx context.Context, l *run.Live) error {
	s.using.Lock()
	defer s.using.Unlock()
	s.mu.Lock()
	rested, live := s.rested, s.livingProcesses()
	s.mu.Unlock()
	if rested != nil {
		p := run.Pausing{Live: l}
		if rested.Saved.Files == "" {
			if err := s.attach(ctx, l, live); err != nil {
				return err
			}
		}
		err := p.Continued(ctx)
		if err == nil {
			err = s.fleet.paused.remove(s.ID)
		}
		if err != nil { // the processes run: the state that is left is removed when it expires
			s.fleet.config.Problem(fmt.Errorf("sandbox %s: %w", s.ID, err))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if rested != nil {
		now := s.fleet.config.Clock.Now().UTC()
		s.expires = now.Add(rested.Left)
		s.latest = s.latest.Add(now.Sub(rested.At))
		s.expiry.Reset(rested.Left)
	}
	s.state, s.session, s.rested = Live, l, nil
	life(s).plan()
	s.start.finish(nil)
	return nil
}

// keepTime is how long a state is stored that is made now.
func (s pausing) keepTime() time.Duration {
	now := s.fleet.config.Clock.Now()
	st := lifecycle.Status{State: lifecycle.Paused, Created: s.Created, Paused: now}
	return max(s.terms.Lifecycle.Deadline(st).Sub(now), time.Second)
}

// rests reports whether the sandbox is paused and not to end, after a run that has paused it, or has failed before it continued.
func (s pausing) rests() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.resting() {
		return false
	}
	s.place, s.start.former = nil, nil
	s.expires = s.terms.Lifecycle.Deadline(life(s).status())
	s.idle.Stop()
	life(s).plan()
	return true
}

// resting sets the state of a sandbox that is paused and not to end, and reports whether it is one. The caller holds mu.
func (s pausing) resting() bool {
	if s.rested == nil || s.rested.fork || s.ctx.Err() != nil {
		return false
	}
	s.state = Paused
	if s.rested.Archived {
		s.state = Archived
	}
	return true
}

// settle is called at the end of the run of a start.
func (s pausing) settle(start *start, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resting()
	close(start.over)
	if s.rested == nil || s.start != start {
		return
	}
	if err == nil {
		err = s.ctx.Err()
	}
	if errors.Is(err, state.ErrNotFound) || errors.Is(err, state.ErrExpired) || errors.Is(err, archive.ErrNotFound) { // it was removed, or continues on another host
		s.cancel(err)
	}
	start.finish(s.refusedStart(err))
	s.start = newStart()
}

// adopt keeps the description of the closed record of the run that was paused.
func (s pausing) adopt(run string) error {
	p, err := s.fleet.config.Runner.Parent(context.WithoutCancel(s.ctx), run)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rested.Parent = &p
	return s.keep(*s.rested)
}
