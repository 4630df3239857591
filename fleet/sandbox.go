package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

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
	Ending   State = "ending"
	Ended    State = "ended"
)

// Sandbox is one sandbox of a fleet. It is safe for concurrent use.
//
//	          first use               turn               the guest serves
//	promised ----------> queued ---------------> starting ---------------> live
//	    \                   \                        |                      |
//	     \ Destroy, expired  \ Destroy, no turn      | failed               | Destroy, idle, expired, failed
//	      \                   \                      v                      v
//	       +-------------------+------------------> ended <----- ending <----+
type Sandbox struct {
	ID      string
	Created time.Time
	latest  time.Time // to which it can be extended
	fleet   *Fleet
	request Request
	terms   Terms

	ctx    context.Context // done when the sandbox is to end; its cause is the reason
	cancel context.CancelCauseFunc
	wanted chan struct{} // closed by begin
	served chan struct{} // closed when the sandbox is live
	gone   chan struct{} // closed when the sandbox has ended
	begun  sync.Once

	mu        sync.Mutex // guards the fields below
	state     State
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
	expiry    *time.Timer
	err       error // why it ended; nil: as it was asked to
}

// alarm is a timer for a time that it knows. It may fire before.
type alarm struct {
	*time.Timer
	at time.Time
}

// lookTime is how often the processes of a sandbox are examined, which have it end later if they compute.
const lookTime, minLook = 30 * time.Second, time.Second

// Reset starts the timer again, so that it fires at the latest in d.
func (a *alarm) Reset(d time.Duration) {
	a.at = time.Now().UTC().Add(d)
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
		ID: id, Created: time.Now().UTC(), fleet: f, request: r.clone(), terms: t, wanted: make(chan struct{}), served: make(chan struct{}), gone: make(chan struct{}),
		state: Promised, processes: map[string]*Process{},
	}
	s.ctx, s.cancel = context.WithCancelCause(f.ctx)
	s.latest = s.Created.Add(t.Time)
	limit := t.Time
	if r.Time > 0 {
		limit = min(limit, r.Time)
	}
	s.expires = s.Created.Add(limit)
	s.expiry = time.AfterFunc(limit, func() { s.cancel(errExpired) })
	s.idle = alarm{time.AfterFunc(s.idleTime(), s.expireIdle), time.Now().UTC().Add(s.idleTime())}
	return s
}

func (s *Sandbox) idleTime() time.Duration {
	idle, limit := cmp.Or(s.request.Idle, s.terms.Idle, s.fleet.config.Idle), s.terms.Idle
	if limit > 0 {
		return min(idle, limit)
	}
	return idle
}

// begin lets the sandbox start.
func (s *Sandbox) begin() {
	s.begun.Do(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.state == Promised {
			s.state = Queued
			s.fleet.config.Meter.Save(time.Since(s.Created))
		}
		close(s.wanted)
	})
}

// live carries out the sandbox's life.
func (s *Sandbox) live() {
	err := s.carryOut()
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

func (s *Sandbox) carryOut() error {
	select {
	case <-s.wanted:
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
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
		case <-s.served: // serve returns, and the run ends in order
		default:
			cancel(context.Cause(s.ctx))
		}
	})
	defer stop()
	res, err := s.fleet.config.Runner.Run(ctx, s.ID, s.request, s.allowance(lease), s.serve)
	if res.Late != nil {
		s.fleet.config.Problem(fmt.Errorf("sandbox %s: %w", s.ID, res.Late))
	}
	return errors.Join(err, res.Err)
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
	s.state, s.place = Queued, place
	return nil
}

// discard ends a sandbox that does not live.
func (s *Sandbox) discard(err error) {
	s.cancel(err)
	s.idle.Stop()
	s.expiry.Stop()
}

func (s *Sandbox) set(state State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = state
}

// serve makes the sandbox live until it is to end.
func (s *Sandbox) serve(ctx context.Context, l *run.Live) {
	s.mu.Lock()
	s.state, s.session = Live, l
	s.mu.Unlock()
	close(s.served)
	s.rest()
	select {
	case <-s.ctx.Done():
	case <-ctx.Done():
	}
	s.set(Ending)
}

// Ready starts the sandbox if it is only promised, and returns when it is live.
func (s *Sandbox) Ready(ctx context.Context) error {
	s.begin()
	select {
	case <-s.served:
		return nil
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
func (s *Sandbox) expireIdle() {
	s.mu.Lock()
	called := s.called
	ask := s.state == Live && s.calls == 0 && s.running > 0
	left := time.Until(s.idle.at) // time in which it may be idle
	s.mu.Unlock()
	if ask {
		if left = s.idleTime() - quiet(s); left > 0 {
			left = max(left, minLook)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.calls > 0 || s.called != called: // the last one starts the time again
	case s.state == Queued || s.state == Starting:
		s.idle.Reset(s.idleTime())
	case left > 0:
		s.idle.Reset(left)
	default:
		s.cancel(errIdle)
	}
}

// quiet returns for how long the processes have done nothing, 0 if that is not known, as while the sandbox is paused.
func quiet(s *Sandbox) time.Duration {
	ctx, cancel := context.WithTimeout(s.ctx, quietTime)
	defer cancel()
	d, err := s.session.Quiet(ctx)
	if err != nil {
		return 0
	}
	return d
}
