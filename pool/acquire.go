package pool

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Reason is the reason why Acquire returned no sandbox.
type Reason string

// The reasons.
const (
	NoneWarm  Reason = "none_warm"  // all are in use, and others may be in the making
	NoMemory  Reason = "no_memory"  // and the host lacks the memory for another
	NoPool    Reason = "no_pool"    // the key was not known until now, or its project has no pool
	Failing   Reason = "failing"    // and the last could not be made; another attempt follows
	QueueFull Reason = "queue_full" // and too many callers wait
	Closed    Reason = "closed"     // the pool
)

// Reasons returns all reasons.
func Reasons() []Reason { return []Reason{NoneWarm, NoMemory, NoPool, Failing, QueueFull, Closed} }

// text describes the reason for people.
func (r Reason) text() string {
	switch r {
	case NoMemory:
		return "the host has too little memory for one"
	case NoPool:
		return "the host had no such run lately"
	case Failing:
		return "making one has failed"
	case QueueFull:
		return "too many callers wait for one"
	case Closed:
		return "the pool is closed"
	}
	return "all are in use"
}

// EmptyError is the error of Acquire when no warm sandbox can be had: the caller starts one without the pool.
type EmptyError struct{ Reason Reason }

// Error implements error.
func (e *EmptyError) Error() string { return fmt.Sprintf("no warm sandbox: %s", e.Reason.text()) }

// Option is an option of Acquire.
type Option func(*request)

type request struct{ wait time.Duration }

// Wait makes Acquire wait for a sandbox to be made, at most for d. It does not wait while none can be made.
func Wait(d time.Duration) Option { return func(r *request) { r.wait = d } }

// waiter is a caller that waits. It is in the queue of its kind until it gets an answer.
type waiter struct {
	answer chan answer // of capacity 1
}

// answer has a member that is checked, or an error.
type answer struct {
	member *member
	err    error
}

// Acquire returns a lease of a sandbox that has passed its health check in this call. No other call has returned that
// sandbox. One that is dead is destroyed, and the next is tried. holder names the caller in messages. Without a sandbox the
// error is an *EmptyError. Without Wait it does not wait for one to be made. If ctx is done the error is its cause.
func (p *Pool) Acquire(ctx context.Context, key Key, holder string, options ...Option) (*Lease, error) {
	var r request
	for _, option := range options {
		option(&r)
	}
	l, err := p.acquire(ctx, key, holder, r.wait)
	switch e := err.(type) {
	case nil:
		p.opt.Meter.Hit()
	case *EmptyError:
		p.opt.Meter.Miss(string(e.Reason))
	}
	return l, err
}

func (p *Pool) acquire(ctx context.Context, key Key, holder string, wait time.Duration) (*Lease, error) {
	k, err := p.arrive(key, wait > 0)
	if err != nil {
		return nil, err
	}
	defer p.leave(k)
	var late <-chan time.Time // when waiting ends
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		late = timer.C
	}
	for ctx.Err() == nil {
		m, w, err := p.take(k, wait > 0)
		if w != nil {
			m, err = p.await(ctx, k, w, late)
		}
		if err != nil {
			return nil, err
		}
		cause := p.check(ctx, m)
		if cause == "" {
			if l := p.lease(m, holder); l != nil {
				return l, nil
			}
			cause = Shutdown
		}
		p.discard(m, cause)
	}
	return nil, context.Cause(ctx)
}

// arrive counts demand for a key. It returns an error if the key has no pool; a key that is new gets one.
func (p *Pool) arrive(key Key, wait bool) (*kind, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, &EmptyError{Closed}
	}
	k, known := p.kinds[key]
	if p.opt.MaxIdle(key.Project) <= 0 || !known && len(p.kinds) >= p.opt.MaxKeys {
		return nil, &EmptyError{NoPool}
	}
	if !known {
		k = &kind{key: key, lack: NoneWarm}
		p.kinds[key] = k
	}
	k.last = time.Now()
	k.demand.add(k.last, p.opt.Window)
	p.changed()
	if !known && !wait {
		return nil, &EmptyError{NoPool}
	}
	k.callers++
	return k, nil
}

// leave is called at the end of a call for which arrive has returned a kind.
func (p *Pool) leave(k *kind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k.callers--
}

// take returns the oldest idle sandbox, which then belongs to the caller. If there is none, it returns a waiter if the
// caller waits, and otherwise an error.
func (p *Pool) take(k *kind, wait bool) (*member, *waiter, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.changed()
	for len(k.idle) > 0 {
		m := k.idle[0]
		if m.isDead() { // watch has not seen it yet
			p.end(m, Died)
			continue
		}
		k.idle = k.idle[1:]
		m.state = checked
		m.unsettle(p) // now, since the check may take longer than keep
		return m, nil, nil
	}
	switch {
	case p.closed:
		return nil, nil, &EmptyError{Closed}
	case !wait:
		p.settle() // there is more demand than the pool has
		return nil, nil, &EmptyError{k.lack}
	case p.waiting >= p.opt.MaxWaiting:
		return nil, nil, &EmptyError{QueueFull}
	}
	w := &waiter{answer: make(chan answer, 1)}
	k.waiting = append(k.waiting, w)
	p.waiting++
	return nil, w, nil
}

// await returns the answer for a waiter.
func (p *Pool) await(ctx context.Context, k *kind, w *waiter, late <-chan time.Time) (*member, error) {
	began := time.Now()
	defer func() { p.opt.Meter.Wait(time.Since(began)) }()
	var err error
	select {
	case a := <-w.answer:
		return a.member, a.err
	case <-late:
		err = &EmptyError{NoneWarm}
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(k.waiting, w); i >= 0 {
		k.waiting = slices.Delete(k.waiting, i, i+1)
		p.waiting--
		p.changed()
		return nil, err
	}
	a := <-w.answer // it was sent before the waiter left the queue
	if ctx.Err() != nil && a.member != nil {
		p.offer(a.member)
		p.changed()
		return nil, err
	}
	return a.member, a.err
}

// refuse answers all callers that wait for a kind. The caller holds mu.
func (p *Pool) refuse(k *kind, reason Reason) {
	for _, w := range k.waiting {
		w.answer <- answer{err: &EmptyError{reason}}
	}
	p.waiting -= len(k.waiting)
	k.waiting = nil
}

// check returns why the sandbox must not be used, or "".
func (p *Pool) check(ctx context.Context, m *member) Cause {
	limited, cancel := context.WithTimeout(ctx, p.opt.CheckTime)
	defer cancel()
	err := m.sandbox.Check(limited)
	switch {
	case ctx.Err() != nil:
		return Canceled
	case m.isDead():
		return Died
	case err != nil:
		p.opt.Log.Warn("a warm sandbox is not healthy", "project", m.kind.key.Project, "tier", m.kind.key.Tier, "err", err)
		return Unhealthy
	}
	return ""
}

// lease leases a sandbox that has been checked. It returns nil if the pool is closed.
func (p *Pool) lease(m *member, holder string) *Lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || m.state != checked {
		return nil
	}
	now := time.Now()
	m.state, m.holder, m.expires = leased, holder, now.Add(p.opt.TTL)
	m.unsettle(p)
	return &Lease{pool: p, member: m}
}

// unsettle is called when a caller gets a sandbox. It begins the time of Settle, unless it has begun. The caller holds mu.
func (m *member) unsettle(p *Pool) {
	if p.opt.Settle <= 0 {
		return
	}
	if p.settled.IsZero() {
		p.settled = time.Now().Add(p.opt.Settle)
		p.changed() // keep must wake then
	}
	p.young[m] = true
}

// settle ends the time of Settle. The caller holds mu, and makes keep decide.
func (p *Pool) settle() {
	p.settled = time.Time{}
	clear(p.young)
}

// discard ends a sandbox that was not leased.
func (p *Pool) discard(m *member, cause Cause) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(m, cause)
	p.changed()
}
