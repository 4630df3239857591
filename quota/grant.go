package quota

import (
	"slices"
	"time"
)

// The methods in this file are called with Queue.mu held.

// settle brings the queue to the present, which it returns: limits that have waited for a time allow more.
func (q *Queue) settle() time.Time {
	now := q.clock.Now()
	for t := q.asleep.first(); t != nil && !t.wake.After(now); t = q.asleep.first() {
		q.update(t, now)
	}
	q.dispatch(now)
	return now
}

// update decides again which start of a tenant is its next one. It is called after each change of what the tenant uses, and of
// its starts that wait.
func (q *Queue) update(t *tenant, now time.Time) {
	t.next, t.wake = nil, time.Time{}
	for _, p := range t.active {
		l := p.use.lacks(p.limits, &p.waiting[0].request, now)
		if l.quota != "" {
			t.sleep(l.until)
		} else if t.next == nil || t.ring.before(&p.turn, &t.next.turn) {
			t.next = p
		}
	}
	ready := t.next != nil
	if ready {
		if l := t.use.lacks(t.limits, &t.next.waiting[0].request, now); l.quota != "" {
			t.sleep(l.until)
			ready = false
		}
	}
	q.ready.put(t, ready)
	q.asleep.put(t, !t.wake.IsZero())
}

// sleep sets the time at which the tenant is updated to until, unless that is earlier.
func (t *tenant) sleep(until time.Time) {
	if !until.IsZero() && (t.wake.IsZero() || until.Before(t.wake)) {
		t.wake = until
	}
}

// dispatch grants starts while the host has room for the one whose turn it is.
func (q *Queue) dispatch(now time.Time) {
	for t := q.ready.first(); t != nil; t = q.ready.first() {
		w := t.next.waiting[0]
		if l := q.use.lacks(q.host, &w.request, now); l.quota != "" {
			return
		}
		q.grant(w, now)
		q.update(t, now)
	}
}

func (q *Queue) grant(w *Place, now time.Time) {
	p, t := w.project, w.project.tenant
	q.ring.begin(&t.turn, w.cost)
	t.ring.begin(&p.turn, w.cost)
	for _, s := range q.scopes(p) {
		s.use.start(s.limits, &w.request, now)
	}
	w.lease = &Lease{queue: q, project: p, request: w.request, since: now}
	q.answer(w, granted)
}

// drop refuses a start that waits.
func (q *Queue) drop(w *Place, err error, now time.Time) {
	w.err = err
	q.answer(w, refused)
	q.update(w.project.tenant, now)
	q.dispatch(now)
}

// answer ends the waiting of a place. The caller updates the tenant.
func (q *Queue) answer(w *Place, s state) {
	p, t := w.project, w.project.tenant
	i := slices.Index(p.waiting, w)
	if i == 0 {
		p.waiting[0] = nil
		p.waiting = p.waiting[1:]
	} else {
		p.waiting = slices.Delete(p.waiting, i, i+1)
	}
	t.waiting--
	q.waiting--
	if len(p.waiting) == 0 {
		p.waiting = nil
		t.active = slices.DeleteFunc(t.active, func(o *project) bool { return o == p })
	}
	w.state = s
	close(w.done)
}

// scoped is a limit of one scope with its use.
type scoped struct {
	scope  Scope
	limits Limits
	use    *usage
}

// scopes returns the limits that a start of the project has to be within.
func (q *Queue) scopes(p *project) [3]scoped {
	return [3]scoped{{OfHost, q.host, &q.use}, {OfTenant, p.tenant.limits, &p.tenant.use}, {OfProject, p.limits, &p.use}}
}

// projectOf returns a project, which it adds if it is not there. If the tenant has too many the result is not added, and false.
func (q *Queue) projectOf(tenantName, name string) (*project, bool) {
	ofTenant, ofProject := q.config.Of(tenantName, name)
	t := q.tenants[tenantName]
	if t == nil {
		t = &tenant{name: tenantName, limits: ofTenant, projects: map[string]*project{}}
		q.tenants[tenantName] = t
	}
	p := t.projects[name]
	if p == nil {
		p = &project{tenant: t, name: name, limits: ofProject}
		if len(t.projects) >= maxProjects {
			return p, false
		}
		t.projects[name] = p
	}
	return p, true
}

// sweep forgets the debts of those that have nothing to start, and removes tenants and projects that use nothing. Tokens of a
// project without a limit of them are forgotten with it.
func (q *Queue) sweep(now time.Time) {
	if now.Sub(q.swept) < sweepEvery {
		return
	}
	q.swept = now
	if q.waiting == 0 {
		q.ring.rest()
	}
	for name, t := range q.tenants {
		if t.waiting == 0 {
			t.ring.rest()
		}
		for name, p := range t.projects {
			if len(p.waiting) == 0 && p.turn.paid < t.ring.round && p.use.unused(now, p.limits.TokensPerDay > 0) {
				delete(t.projects, name)
			}
		}
		if len(t.projects) == 0 && t.turn.paid < q.ring.round && t.use.unused(now, true) {
			delete(q.tenants, name)
		}
	}
}

// alarm calls settle at a time.
type alarm struct {
	at    time.Time
	timer stopper
}

// setAlarm sets the alarm to the time at which the first tenant wakes.
func (q *Queue) setAlarm(now time.Time) {
	var at time.Time
	if t := q.asleep.first(); t != nil {
		at = t.wake
	}
	if q.alarm != nil {
		if q.alarm.at.Equal(at) {
			return
		}
		if q.alarm.timer.Stop() {
			q.alarms.Done()
		}
		q.alarm = nil
	}
	if at.IsZero() || q.closed {
		return
	}
	a := &alarm{at: at}
	q.alarm = a
	q.alarms.Add(1)
	a.timer = q.clock.AfterFunc(at.Sub(now), func() {
		defer q.alarms.Done()
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.alarm == a {
			q.alarm = nil
		}
		q.setAlarm(q.settle())
	})
}
