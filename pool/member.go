package pool

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// member is one sandbox.
//
//	Make
//	  | a caller waits
//	  +----------------+
//	  v                v   healthy
//	idle --Acquire--> checked ----> leased
//	  |                |              |
//	  | dead, surplus, | dead,        | Release, expired
//	  | old, Close     | unhealthy    |
//	  v                v              v
//	ending <--------------------------+
//	  |
//	  v  Destroy has succeeded
//	gone
//
// Close, when its context is done, moves every state to ending. No state leads back to idle, except that a sandbox
// that was meant for a caller that stopped waiting, and was not checked, becomes idle again.
type member struct {
	kind    *kind
	sandbox Sandbox
	memory  int64         // when it was made
	end     chan struct{} // closed when it is ending
	gone    chan struct{} // closed when it is gone, or will not be

	// Pool.mu guards the fields below.
	state   state
	since   time.Time // idle since
	expires time.Time // the lease
	holder  string    // of the lease
	stuck   bool      // Destroy has failed
	err     error     // of Destroy, when it is not repeated
}

type state int

const (
	idle state = iota
	checked
	leased
	ending
	gone
)

// Cause is the reason why a sandbox was destroyed.
type Cause string

// The causes.
const (
	Used      Cause = "used"      // its lease was released
	Expired   Cause = "expired"   // its lease was not renewed
	Died      Cause = "died"      // while it was idle, or before it was leased
	Unhealthy Cause = "unhealthy" // its health check failed
	Canceled  Cause = "canceled"  // the caller's context ended during the health check
	Surplus   Cause = "surplus"   // above the bound of its project
	Old       Cause = "old"       // longer idle than MaxAge
	Unwanted  Cause = "unwanted"  // no demand
	Pressure  Cause = "pressure"  // the host's memory
	Shutdown  Cause = "shutdown"  // Close
)

// Causes returns all causes.
func Causes() []Cause {
	return []Cause{Used, Expired, Died, Unhealthy, Canceled, Surplus, Old, Unwanted, Pressure, Shutdown}
}

// tend makes a sandbox, which k.making counts, and follows it until it is gone. Each sandbox has one goroutine in it.
func (p *Pool) tend(k *kind) {
	defer p.changed()
	m := p.make(k)
	if m == nil {
		return
	}
	m.watch(p)
	m.destroy(p)
}

// make makes a sandbox and offers it. It returns nil if that failed.
func (p *Pool) make(k *kind) *member {
	ctx, cancel := context.WithTimeout(p.work, p.opt.MakeTime)
	began := time.Now()
	sandbox, err := p.opt.Maker.Make(ctx, k.key)
	cancel()
	took := time.Since(began)
	defer p.changed()
	p.mu.Lock()
	defer p.mu.Unlock()
	k.making--
	if err != nil {
		if !p.closed {
			k.retry.failed(time.Now())
			p.opt.Meter.Fail()
			p.opt.Log.Warn("a warm sandbox could not be made", "project", k.key.Project, "tier", k.key.Tier, "err", err)
		}
		return nil
	}
	k.retry = retry{}
	m := &member{kind: k, sandbox: sandbox, memory: sandbox.Memory(), since: time.Now(), end: make(chan struct{}), gone: make(chan struct{})}
	if m.memory <= 0 {
		m.memory = k.key.Shape.Memory
	}
	if k.takes == 0 {
		k.takes = took
	}
	k.takes += (took - k.takes) / 4
	p.members[m] = true
	p.opt.Meter.Refill(took)
	p.offer(m)
	return m
}

// offer gives a sandbox to the caller that has waited longest, or makes it idle. The caller holds mu.
func (p *Pool) offer(m *member) {
	k := m.kind
	switch {
	case p.closed:
		p.end(m, Shutdown)
	case m.isDead():
		p.end(m, Died)
	case len(k.waiting) > 0:
		w := k.waiting[0]
		k.waiting = k.waiting[1:]
		p.waiting--
		m.state = checked
		w.answer <- answer{member: m}
	default:
		m.state = idle
		k.idle = append(k.idle, m)
		slices.SortStableFunc(k.idle, func(a, b *member) int { return a.since.Compare(b.since) })
	}
}

// watch returns when the sandbox is ending. It ends an idle sandbox that dies, and a lease that is not renewed.
func (m *member) watch(p *Pool) {
	dead := m.sandbox.Done()
	timer := time.NewTimer(p.opt.TTL)
	defer timer.Stop()
	for {
		select {
		case <-m.end:
			return
		case <-dead:
			dead = nil
			m.died(p)
		case <-timer.C:
			timer.Reset(m.expire(p))
		}
	}
}

// died ends a sandbox that has died while it was idle. In other states the caller of Acquire or the holder ends it.
func (m *member) died(p *Pool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m.state == idle {
		p.end(m, Died)
		p.changed()
	}
}

// expire ends a lease that has expired, and returns when to call it again.
func (m *member) expire(p *Pool) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m.state != leased {
		return p.opt.TTL // a lease that begins until then ends later
	}
	rest := time.Until(m.expires)
	if rest <= 0 {
		p.opt.Log.Warn("a lease was not renewed: its sandbox is destroyed", "project", m.kind.key.Project, "holder", m.holder)
		p.end(m, Expired)
	}
	return max(rest, time.Millisecond)
}

// end makes tend destroy a sandbox, if that has not begun. The caller holds mu.
func (p *Pool) end(m *member, cause Cause) {
	switch m.state {
	case ending, gone:
		return
	case idle:
		if i := slices.Index(m.kind.idle, m); i >= 0 {
			m.kind.idle = slices.Delete(m.kind.idle, i, i+1)
		}
	}
	m.state = ending
	if delete(p.young, m); len(p.young) == 0 && !p.settled.IsZero() {
		p.settle()
		p.changed()
	}
	close(m.end)
	p.opt.Meter.Destroy(string(cause))
}

// destroy calls Destroy until it succeeds, or until Close has stopped waiting: then one more time.
func (m *member) destroy(p *Pool) {
	wait := newBackOff()
	for {
		last := p.force.Err() != nil
		ctx, cancel := context.WithTimeout(p.base, p.opt.DestroyTime)
		err := m.sandbox.Destroy(ctx)
		cancel()
		if err == nil || last {
			p.remove(m, err)
			return
		}
		p.mu.Lock()
		m.stuck = true
		p.mu.Unlock()
		p.opt.Log.Warn("a sandbox could not be destroyed and will be tried again", "project", m.kind.key.Project, "err", err)
		timer := time.NewTimer(wait.NextBackOff())
		select {
		case <-timer.C:
		case <-p.force.Done():
			timer.Stop()
		}
	}
}

// remove forgets a sandbox that is destroyed, or that could not be.
func (p *Pool) remove(m *member, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.members, m)
	m.state = gone
	if err != nil {
		m.err = fmt.Errorf("destroy a sandbox of project %s: %w", m.kind.key.Project, err)
		p.left = append(p.left, m.err)
	}
	close(m.gone)
}

func (m *member) isDead() bool {
	select {
	case <-m.sandbox.Done():
		return true
	default:
		return false
	}
}

// retry delays Make after failures. The zero value is that of a key without a failure.
type retry struct {
	wait *backoff.ExponentialBackOff
	at   time.Time // of the next attempt
}

// failed counts a failure. Those of attempts that began before the last counted one do not add to the delay.
func (r *retry) failed(now time.Time) {
	if r.wait == nil {
		r.wait = newBackOff()
	}
	if !now.Before(r.at) {
		r.at = now.Add(r.wait.NextBackOff())
	}
}

// newBackOff returns delays from 1 s to 1 min, doubled each time, with a jitter of a half.
func newBackOff() *backoff.ExponentialBackOff {
	b := &backoff.ExponentialBackOff{InitialInterval: time.Second, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: time.Minute}
	b.Reset()
	return b
}
