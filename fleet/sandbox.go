package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/quota"
	"github.com/custody-project/custody/run"
)

// State is the state of a sandbox.
type State string

// The states of a sandbox.
const (
	Promised State = "promised" // it starts when it is first used
	Queued   State = "queued"   // it waits for its turn
	Starting State = "starting"
	Live     State = "live"
	Pausing  State = "pausing"  // its processes are suspended, its state is being stored
	Paused   State = "paused"   // it has no machine, and continues when it is used
	Archived State = "archived" // it is paused, and its state is in the archive
	Ending   State = "ending"
	Ended    State = "ended"
)

// Sandbox is one sandbox of a fleet. It is safe for concurrent use.
//
//	          first use               turn               the guest serves
//	promised ----------> queued ---------------> starting ---------------> live
//	    \                   \                        |                    ^ |  \
//	     \ Destroy, expired  \ Destroy, no turn      | failed    failed   | |   \ Destroy, idle, expired, failed
//	      \                   \                      v                    | v    v
//	       +-------------------+------------------> ended <--- ending <---|-+----+
//	                                                  ^                   | |
//	                                                  | Destroy, expired  | | Pause
//	                                                  +---- paused <---- pausing
//	                                                          |
//	                                                          +-- Resume, use --> queued; if it fails: paused
type Sandbox struct {
	ID      string
	Created time.Time
	latest  time.Time // to which it can be extended
	fleet   *Fleet
	request Request
	terms   Terms

	ctx    context.Context // done when the sandbox is to end; its cause is the reason
	cancel context.CancelCauseFunc
	gone   chan struct{}   // closed when the sandbox has ended
	pauses chan chan error // requests to pause, with where the result is sent

	// using is held for reading while a process is started, and for writing while the sandbox is paused or continues.
	using     sync.RWMutex
	following sync.WaitGroup // the processes whose output is read
	// sharing is held for reading while others start from the stored state, and for writing while this one does.
	sharing sync.RWMutex

	mu        sync.Mutex // guards the fields below
	state     State
	start     *start
	runs      []string // IDs, the latest last
	before    []string // the runs, until the fork, of the sandboxes that it was forked from
	rested    *rested  // nil unless there is a stored state that the next run continues from
	unlivened error    // why a run did not continue from it
	place     *quota.Place
	session   *run.Live
	processes map[string]*Process
	order     []*Process // by start
	running   int
	calls     int // that are being carried out
	called    int // number of calls that have begun
	files     int // operations on files that are being carried out, but watches
	watches   int // of directories
	idle      alarm
	expires   time.Time
	expiry    Timer
	due       Timer // of the next transition of its lifecycle; nil: none is planned
	err       error // why it ended; nil: as it was asked to
}

// start is one start of a machine for the sandbox: the first, or one after a pause.
type start struct {
	wanted chan struct{} // closed by begin
	begun  bool          // wanted is closed
	done   chan struct{} // closed when the sandbox is live, or the start has failed
	err    error         // why it has failed; set before done is closed
	over   chan struct{} // closed when the run has ended
	former *start        // whose run was paused; nil for the first
}

func newStart() *start {
	return &start{wanted: make(chan struct{}), done: make(chan struct{}), over: make(chan struct{})}
}

// finish ends the start.
func (b *start) finish(err error) {
	b.err = err
	close(b.done)
}

// alarm is a timer for a time that it knows. It may fire before.
type alarm struct {
	Timer
	clock Clock
	at    time.Time
}

// lookTime is how often the processes of a sandbox are examined, which have it end later if they compute.
const lookTime, minLook = 30 * time.Second, time.Second

// Reset starts the timer again, so that it fires at the latest in d.
func (a *alarm) Reset(d time.Duration) {
	a.at = a.clock.Now().UTC().Add(d)
	a.Timer.Reset(min(d, lookTime))
}

// Reasons for the end of a sandbox.
var (
	errDestroyed = errors.New("it was destroyed")
	errIdle      = errors.New("it was idle")
	errExpired   = errors.New("its time was over")
)

func newSandbox(f *Fleet, id string, r Request, t Terms) *Sandbox {
	s := &Sandbox{
		ID: id, Created: f.config.Clock.Now().UTC(), fleet: f, request: r.clone(), terms: t, gone: make(chan struct{}), pauses: make(chan chan error),
		state: Promised, start: newStart(), processes: map[string]*Process{},
	}
	s.ctx, s.cancel = context.WithCancelCause(f.ctx)
	s.latest = s.Created.Add(t.Time)
	limit := t.Time
	if r.Time > 0 {
		limit = min(limit, r.Time)
	}
	s.expires = s.Created.Add(limit)
	clock := f.config.Clock
	s.expiry = clock.AfterFunc(limit, func() { s.cancel(errExpired) })
	s.idle = alarm{clock.AfterFunc(s.idleTime(), life{s}.expireIdle), clock, s.Created.Add(s.idleTime())}
	return s
}

func (s *Sandbox) idleTime() time.Duration {
	idle, limit := cmp.Or(s.request.Idle, s.terms.Lifecycle.Pause, s.terms.Idle, s.fleet.config.Idle), cmp.Or(s.terms.Lifecycle.Pause, s.terms.Idle)
	if limit > 0 {
		return min(idle, limit)
	}
	return idle
}

// begin lets the sandbox start, and returns the start that is to come, or the latest.
func (s *Sandbox) begin() *start {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.start.begun {
		return s.start
	}
	s.start.begun = true
	if s.state == Promised {
		s.state = Queued
		s.fleet.config.Meter.Save(time.Since(s.Created))
	}
	close(s.start.wanted)
	return s.start
}

// live carries out the sandbox's life.
func (s *Sandbox) live() {
	err := s.carryOut()
	for (pausing{s}).rests() {
		err = s.carryOut()
	}
	life{s}.discardState()
	s.mu.Lock()
	if s.state == Promised {
		s.fleet.config.Meter.Save(time.Since(s.Created))
	}
	s.state = Ended
	s.err = s.reason(err)
	s.mu.Unlock()
	s.discard(nil)
	s.fleet.over(s)
	close(s.gone)
}

// reason returns why the sandbox ended, nil if it was asked to.
func (s *Sandbox) reason(err error) error {
	cause := context.Cause(s.ctx)
	switch {
	case errors.Is(cause, errDestroyed), errors.Is(cause, errIdle), errors.Is(cause, errExpired):
		return nil
	case s.fleet.ctx.Err() != nil:
		return errClosed
	}
	return err
}

// carryOut carries out the next run of the sandbox when it is wanted.
func (s *Sandbox) carryOut() error {
	s.mu.Lock()
	start := s.start
	s.mu.Unlock()
	select {
	case <-start.wanted:
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
	err := life{s}.carryOutRun(start)
	pausing{s}.settle(start, err)
	return err
}

func (s life) carryOutRun(start *start) error {
	lease, err := s.takeTurn()
	if err != nil {
		return err
	}
	defer lease.Release()
	s.set(Starting)
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(s.ctx))
	defer cancel(nil)
	stop := context.AfterFunc(s.ctx, func() {
		select {
		case <-start.done: // serve returns, and the run ends in order
		default:
			cancel(context.Cause(s.ctx))
		}
	})
	defer stop()
	s.mu.Lock()
	id, from := s.ID, s.rested.resume()
	if from != nil && !from.Fork {
		id = host.NewRunID(time.Now())
	}
	s.runs = append(s.runs, id)
	s.mu.Unlock()
	if from != nil && !from.Fork {
		s.sharing.Lock()
		defer s.sharing.Unlock()
		if err := s.fetch(s.ctx); err != nil {
			return err
		}
	}
	res, err := s.fleet.config.Runner.Run(ctx, id, s.request, s.allowance(lease), from, s.serve)
	if res.Late != nil {
		s.fleet.config.Problem(fmt.Errorf("sandbox %s: %w", s.ID, res.Late))
	}
	if errors.Is(res.Err, run.ErrPaused) {
		return pausing(s).adopt(id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(err, res.Err, s.unlivened)
}

// allowance returns what the sandbox may use.
func (s *Sandbox) allowance(l *quota.Lease) (a Allowance) {
	a.DiskRate, a.NetworkRate = l.Rates()
	a.Charge = func(tokens int64) (why string, until time.Time) {
		err := l.Charge(tokens)
		over := new(quota.Error)
		if errors.As(err, &over) {
			return over.Error(), over.Retry
		}
		if err != nil && !errors.Is(err, quota.ErrClosed) {
			s.fleet.config.Problem(fmt.Errorf("sandbox %s: keep the LLM tokens of the day: %w", s.ID, err))
		}
		return "", time.Time{}
	}
	return a
}

// takeTurn waits for the turn of the sandbox.
func (s *Sandbox) takeTurn() (*quota.Lease, error) {
	if s.place == nil { // it was promised
		if err := s.enter(); err != nil {
			return nil, err
		}
	}
	began := time.Now()
	lease, err := s.place.Wait(s.ctx)
	if err != nil {
		s.fleet.refused(err)
		return nil, err
	}
	s.fleet.config.Meter.Wait(time.Since(began))
	return lease, nil
}

// enter takes a place in the queue. It does not block. Only Create and then live call it.
func (s *Sandbox) enter() error {
	place, err := s.fleet.config.Queue.Enter(s.ctx, quota.Request{
		Tenant: s.request.Tenant, Project: s.terms.Project, CPUs: int64(s.terms.CPUs), Memory: s.terms.Memory,
	})
	if err != nil {
		s.fleet.refused(err)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.place = place
	if s.state != Paused || s.start.begun {
		s.state = Queued
	}
	return nil
}

// discard ends a sandbox that does not live.
func (s *Sandbox) discard(err error) {
	s.cancel(err)
	s.idle.Stop()
	s.expiry.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.due != nil {
		s.due.Stop()
	}
}

func (s *Sandbox) set(state State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = state
}

// serve makes the sandbox live until it is to end, or is paused.
func (s *Sandbox) serve(ctx context.Context, l *run.Live) {
	if err := (pausing{s}).enliven(ctx, l); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unlivened = err
		return
	}
	s.rest()
	for {
		select {
		case <-s.ctx.Done():
			s.set(Ending)
			return
		case <-ctx.Done():
			s.set(Ending)
			return
		case answer := <-s.pauses:
			err := pausing{s}.pause(ctx, l)
			answer <- err
			if err == nil {
				return
			}
		}
	}
}

// Ready starts the sandbox if it is only promised or paused, and returns when it is live.
func (s *Sandbox) Ready(ctx context.Context) error {
	start := s.begin()
	select {
	case <-start.done:
		return start.err
	case <-s.gone:
		return s.endError()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// endError returns the error for a sandbox that has ended.
func (s *Sandbox) endError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if over := new(quota.Error); errors.As(s.err, &over) {
		return over
	}
	if s.err != nil {
		return &Error{ErrEnded, fmt.Sprintf("the sandbox %s has ended: %v", s.ID, s.err)}
	}
	return &Error{ErrEnded, fmt.Sprintf("the sandbox %s has ended", s.ID)}
}

// Destroy ends the sandbox, and returns when its record is closed.
func (s *Sandbox) Destroy(ctx context.Context) error {
	s.cancel(errDestroyed)
	select {
	case <-s.gone:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Extend sets how much longer the sandbox lives from now on, at most as long as its project allows.
func (s *Sandbox) Extend(d time.Duration) (until time.Time, err error) {
	if d <= 0 {
		return until, invalid("the time must be positive")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	switch until = now.Add(d); {
	case s.state == Ended || !s.expiry.Stop():
		return s.expires, &Error{ErrEnded, fmt.Sprintf("the sandbox %s has ended", s.ID)}
	case until.After(s.latest):
		s.expiry.Reset(s.expires.Sub(now))
		return s.expires, invalid("the project lets a sandbox live for %v: it can be extended until %s", s.terms.Time, s.latest.Format(time.RFC3339))
	}
	s.expires = until.UTC()
	s.expiry.Reset(d)
	return s.expires, nil
}

// Call keeps the sandbox from being idle until the returned function is called.
func (s *Sandbox) Call() (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	s.called++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.calls--
		s.idle.Reset(s.idleTime())
	})
}

// rest starts the time in which the sandbox may be idle again.
func (s *Sandbox) rest() { s.Call()() }

// quietTime bounds the question for how long the processes of a sandbox have done nothing.
const quietTime = 30 * time.Second

// expireIdle ends the sandbox if it is idle: there is no call, and its processes do nothing.
func (s life) expireIdle() {
	s.mu.Lock()
	called := s.called
	ask := s.state == Live && s.calls == 0 && s.running > 0
	left := s.idle.at.Sub(s.fleet.config.Clock.Now()) // time in which it may be idle
	s.mu.Unlock()
	if ask {
		if left = s.idleTime() - quiet(s.Sandbox); left > 0 {
			left = max(left, minLook)
		}
	}
	if out := s.isIdle(called, left); out {
		s.idleOut()
	}
}

// isIdle reports whether the sandbox has been idle for long enough, and otherwise starts the time again. It is not if there were more
// calls than called, or if it may be idle for longer, left.
func (s life) isIdle(called int, left time.Duration) (out bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.calls > 0 || s.called != called: // the last one starts the time again
	case s.state != Promised && s.state != Live:
		s.idle.Reset(s.idleTime())
	case left > 0:
		s.idle.Reset(left)
	default:
		out = true
	}
	return out
}

// quiet returns for how long the processes have done nothing, 0 if that is not known, as while the sandbox is paused.
func quiet(s *Sandbox) time.Duration {
	ctx, cancel := context.WithTimeout(s.ctx, quietTime)
	defer cancel()
	s.mu.Lock()
	l := s.session
	s.mu.Unlock()
	d, err := l.Quiet(ctx)
	if err != nil {
		return 0
	}
	return d
}
