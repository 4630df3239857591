package quota

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"
)

// Place is the place of a start in the queue. Its methods are safe for concurrent use.
//
//	Enter --> waiting -- its turn, and room --> granted -- Wait ------------> leased -- Release --> released
//	             |                                 `-- Wait, ctx is done --> refused, its room is free
//	             `-- too long, ctx is done, too many wait, Close --> refused
type Place struct {
	queue    *Queue
	project  *project
	request  Request
	cost     int64
	number   uint64 // by arrival
	since    time.Time
	deadline time.Time
	done     chan struct{} // closed when the state is no longer waiting

	state state // Queue.mu guards it, and the fields below
	lease *Lease
	err   error // of refused
}

type state int

const (
	waiting state = iota
	granted
	leased
	refused
)

// Wait waits until the start is granted or refused, and returns what Acquire returns. When ctx is done it gives up the place.
// Another call returns the same.
func (w *Place) Wait(ctx context.Context) (*Lease, error) {
	limited, cancel := context.WithDeadlineCause(ctx, w.deadline, ErrLate)
	defer cancel()
	select {
	case <-w.done:
	case <-limited.Done():
	}
	q := w.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.settle()
	defer q.setAlarm(now)
	switch {
	case w.state == waiting:
		q.drop(w, q.why(w, now, context.Cause(limited)), now)
	case w.state == granted && ctx.Err() != nil:
		w.state, w.err = refused, context.Cause(ctx)
		w.lease.end(now)
	case w.state == granted:
		w.state = leased
	}
	if w.state == refused {
		return nil, w.err
	}
	return w.lease, nil
}

// Position returns the place among the waiting starts of the tenant, by arrival: 1 is the first. It is 0 if the start does
// not wait any more.
func (w *Place) Position() int {
	w.queue.mu.Lock()
	defer w.queue.mu.Unlock()
	return w.position()
}

// Since returns when the start has entered the queue.
func (w *Place) Since() time.Time { return w.since }

// Lacks returns the quota for which the start waits, its position, and when it can begin. It is nil if the start does not wait any more.
func (w *Place) Lacks() *Error {
	q := w.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.settle()
	defer q.setAlarm(now)
	if w.state != waiting {
		return nil
	}
	return q.why(w, now, nil)
}

func (w *Place) position() int {
	if w.state != waiting {
		return 0
	}
	n := 1
	for _, p := range w.project.tenant.active {
		before, _ := slices.BinarySearchFunc(p.waiting, w.number, func(o *Place, number uint64) int {
			return cmp.Compare(o.number, number)
		})
		n += before
	}
	return n
}

// why returns the error for a start that waits, and gives up because of the cause.
func (q *Queue) why(w *Place, now time.Time, cause error) *Error {
	p, t := w.project, w.project.tenant
	position := w.position()
	for _, s := range []struct {
		scoped
		ahead int // starts of the scope that come before this one
		first *Place
	}{
		{scoped{OfProject, p.limits, &p.use}, slices.Index(p.waiting, w), p.waiting[0]},
		{scoped{OfTenant, t.limits, &t.use}, position - 1, t.nextOr(w)},
	} {
		if l := s.use.lacks(s.limits, &s.first.request, now); l.quota != "" {
			return q.newError(p, s.scope, l, position, s.use.retry(s.limits, l, s.ahead+1, now), cause)
		}
	}
	blocked := w
	if first := q.ready.first(); first != nil {
		blocked = first.next.waiting[0]
	}
	l := q.use.lacks(q.host, &blocked.request, now)
	return q.newError(p, OfHost, l, position, q.use.ends(min(q.waiting, position*len(q.ready.list)), now), cause)
}

// nextOr returns the next start of the tenant, or w if there is none.
func (t *tenant) nextOr(w *Place) *Place {
	if t.next != nil {
		return t.next.waiting[0]
	}
	return w
}

// retry returns when the nth start from now on can begin.
func (u *usage) retry(limits Limits, l lack, n int, now time.Time) time.Time {
	if l.until.IsZero() {
		return u.ends(n, now)
	}
	return later(u.waits(limits, n, now).until, l.until)
}

// newError returns the error about a limit. Of the host's it does not show what is in use.
func (q *Queue) newError(p *project, s Scope, l lack, position int, retry time.Time, cause error) *Error {
	e := &Error{Quota: l.quota, Scope: s, Tenant: p.tenant.name, Project: p.name, Retry: retry, Position: position, Err: cause}
	if s != OfHost {
		e.Limit, e.InUse, e.Want = l.limit, l.used, l.want
	}
	return e
}

// Lease is a start that was granted. Its methods are safe for concurrent use.
type Lease struct {
	queue   *Queue
	project *project
	request Request
	since   time.Time
	ended   bool // Queue.mu guards it
}

// Release ends the lease: the sandbox does not count any more. It can be called again.
func (l *Lease) Release() {
	q := l.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.settle()
	l.end(now)
	q.setAlarm(now)
}

// end ends the lease. The caller holds Queue.mu.
func (l *Lease) end(now time.Time) {
	if l.ended {
		return
	}
	l.ended = true
	for _, s := range l.queue.scopes(l.project) {
		s.use.end(&l.request, now.Sub(l.since))
	}
	l.queue.update(l.project.tenant, now)
	l.queue.dispatch(now)
}

// Charge adds LLM tokens that the sandbox has used, as Queue.Charge does.
func (l *Lease) Charge(tokens int64) error {
	return l.queue.Charge(l.request.Tenant, l.request.Project, tokens)
}

// Rates returns the rates of the sandbox's disk and network in bytes per second: the lower one of the tenant's and the
// project's; 0 is no limit.
func (l *Lease) Rates() (disk, network int64) {
	t, p := l.project.tenant.limits, l.project.limits
	return lower(t.DiskRate, p.DiskRate), lower(t.NetworkRate, p.NetworkRate)
}

func lower(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Charge adds LLM tokens that a tenant's project has used today, also those before the start of this process. If those of the
// day are used up then, it returns an *Error, and the caller denies further LLM API calls until the time that it names. With 0
// tokens it only checks. Another error means that the tokens count, but could not be kept for after a restart.
func (q *Queue) Charge(tenant, project string, tokens int64) error {
	if tokens < 0 {
		return errors.New("a negative number of tokens was charged")
	}
	q.mu.Lock()
	now := q.settle()
	ledger, over := q.ledger, q.charge(tenant, project, tokens, now)
	q.mu.Unlock()
	var kept error
	if ledger != nil && tokens > 0 {
		kept = ledger.add(owner{tenant, project}, tokens, now)
	}
	return errors.Join(over, kept)
}

// charge is Charge without the ledger. The caller holds mu.
func (q *Queue) charge(tenant, project string, tokens int64, now time.Time) error {
	p, _ := q.projectOf(tenant, project) // one project too many: only the tenant is charged
	var err error
	for _, s := range q.scopes(p) {
		s.use.tokens.add(tokens, now)
		if used := s.use.tokens.on(now); s.limits.TokensPerDay > 0 && used >= s.limits.TokensPerDay && err == nil {
			err = q.newError(p, s.scope, lack{quota: Tokens, limit: s.limits.TokensPerDay, used: used}, 0, tomorrow(now), nil)
		}
	}
	q.update(p.tenant, now)
	q.dispatch(now) // another start may be the next one now
	q.setAlarm(now)
	return err
}
