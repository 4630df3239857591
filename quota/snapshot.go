package quota

import (
	"cmp"
	"slices"
	"time"
)

// Snapshot is the state of a queue at one time.
type Snapshot struct {
	Host    Use
	Size    Host
	Bounds  Bounds
	Tenants []TenantUse // by name: those that use something, and have not been removed yet
	config  *Config
}

// Use is what is in use of the limits of the host, a tenant or a project.
type Use struct {
	Sandboxes, CPUs, Memory int64
	Starts                  int64 // that count at present for StartsPerMinute
	Tokens                  int64 // today
	Waiting                 int
	Oldest                  time.Time // when the first of those that wait has arrived; zero if none waits
	// Lacks is the quota because of which the next start waits, and Of whose it is. Empty if none waits.
	Lacks Quota
	Of    Scope
}

// TenantUse is what a tenant uses.
type TenantUse struct {
	Tenant string
	Use
	Limits   Limits
	Projects []ProjectUse // by name
}

// ProjectUse is what a project uses.
type ProjectUse struct {
	Project string
	Use
	Limits Limits
}

// Snapshot returns the present state.
func (q *Queue) Snapshot() Snapshot {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.settle()
	defer q.setAlarm(now)
	all := Snapshot{Host: q.use.shown(q.host, now), Size: q.config.Host, Bounds: q.config.Queue, config: &q.config}
	for _, t := range q.tenants {
		shown := q.shownTenant(t, now)
		all.Host.Waiting += shown.Waiting
		all.Host.Oldest = earlier(all.Host.Oldest, shown.Oldest)
		all.Tenants = append(all.Tenants, shown)
	}
	if first := q.ready.first(); first != nil {
		all.Host.Lacks, all.Host.Of = q.use.lacks(q.host, &first.next.waiting[0].request, now).quota, OfHost
	}
	slices.SortFunc(all.Tenants, func(a, b TenantUse) int { return cmp.Compare(a.Tenant, b.Tenant) })
	return all
}

// Of returns what a tenant uses, and its limits even if it uses nothing.
func (s *Snapshot) Of(tenant string) TenantUse {
	for _, t := range s.Tenants {
		if t.Tenant == tenant {
			return t
		}
	}
	limits, _ := s.config.Of(tenant, "")
	return TenantUse{Tenant: tenant, Limits: limits}
}

func (q *Queue) shownTenant(t *tenant, now time.Time) TenantUse {
	shown := TenantUse{Tenant: t.name, Use: t.use.shown(t.limits, now), Limits: t.limits}
	for _, p := range t.projects {
		use := p.use.shown(p.limits, now)
		if len(p.waiting) > 0 {
			use.Waiting, use.Oldest = len(p.waiting), p.waiting[0].since
			use.Lacks, use.Of = q.lacking(p.waiting[0], now)
		}
		shown.Waiting += use.Waiting
		shown.Oldest = earlier(shown.Oldest, use.Oldest)
		shown.Projects = append(shown.Projects, ProjectUse{Project: p.name, Use: use, Limits: p.limits})
	}
	if len(t.active) > 0 {
		shown.Lacks, shown.Of = q.lacking(t.nextOr(t.active[0].waiting[0]), now)
	}
	slices.SortFunc(shown.Projects, func(a, b ProjectUse) int { return cmp.Compare(a.Project, b.Project) })
	return shown
}

// lacking returns the quota because of which a start waits.
func (q *Queue) lacking(w *Place, now time.Time) (Quota, Scope) {
	e := q.why(w, now, nil)
	return e.Quota, e.Scope
}

func (u *usage) shown(l Limits, now time.Time) Use {
	s := Use{Sandboxes: u.sandboxes, CPUs: u.cpus, Memory: u.memory, Tokens: u.tokens.on(now)}
	if l.StartsPerMinute > 0 {
		s.Starts = u.starts.taken(l.StartsPerMinute, now)
	}
	return s
}

// earlier returns the earlier time; a zero time does not count.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
