package quota_test

import (
	"cmp"
	"slices"
	"time"

	"github.com/custody-project/custody/quota"
)

// oracle is a slow queue that computes everything from lists of what has happened. Times are whole seconds.
type oracle struct {
	config  quota.Config
	starts  []*wish // all that have entered, in order of arrival
	granted []*wish // in order of their grants
	charges []charge
	debts   map[owner]debt // of tenants and of their projects
	entries map[owner]int  // when they began to wait
	entered int
	swept   time.Time
}

// debt is what an owner has to pay before the next start.
type debt struct {
	units int64
	since bool // it was paid in an earlier round
}

// owner is a tenant if project is "*", otherwise a project.
type owner struct{ tenant, project string }

// wish is a start.
type wish struct {
	quota.Request
	place   *quota.Place
	lease   *quota.Lease
	state   string // waits, runs, ended or refused
	began   time.Time
	dropped bool // it has lost its place to another tenant
}

type charge struct {
	owner
	day    string
	tokens int64
}

func (w *wish) of(o owner) bool {
	return w.Tenant == o.tenant && (o.project == "*" || w.Project == o.project)
}

func (o *oracle) limits(of owner) quota.Limits {
	tenant, project := o.config.Of(of.tenant, of.project)
	if of.project == "*" {
		return tenant
	}
	return project
}

// waiting returns the starts of an owner that wait.
func (o *oracle) waiting(of owner) (list []*wish) {
	for _, w := range o.starts {
		if w.state == "waits" && w.of(of) {
			list = append(list, w)
		}
	}
	return list
}

// lacks returns the quota of an owner that does not allow the start.
func (o *oracle) lacks(of owner, w *wish) quota.Quota {
	l, now := o.limits(of), time.Now()
	var sandboxes, cpus, memory, tokens int64
	for _, r := range o.starts {
		if r.state == "runs" && r.of(of) {
			sandboxes, cpus, memory = sandboxes+1, cpus+r.CPUs, memory+r.Memory
		}
	}
	for _, c := range o.charges {
		if c.tenant == of.tenant && (of.project == "*" || c.project == of.project) && c.day == now.UTC().Format(time.DateOnly) {
			tokens += c.tokens
		}
	}
	switch {
	case l.Sandboxes > 0 && sandboxes+1 > l.Sandboxes:
		return quota.Sandboxes
	case l.CPUs > 0 && cpus+w.CPUs > l.CPUs:
		return quota.CPUs
	case l.Memory > 0 && memory+w.Memory > l.Memory:
		return quota.Memory
	case l.TokensPerDay > 0 && tokens >= l.TokensPerDay:
		return quota.Tokens
	case l.StartsPerMinute > 0 && o.bucket(of, l.StartsPerMinute) < time.Minute/time.Duration(l.StartsPerMinute):
		return quota.Starts
	}
	return ""
}

// bucket returns how full the bucket of starts is, of a minute.
func (o *oracle) bucket(of owner, perMinute int64) time.Duration {
	level, at := time.Minute, time.Unix(0, 0)
	for _, w := range o.granted {
		if w.of(of) {
			level = min(time.Minute, level+w.began.Sub(at)) - time.Minute/time.Duration(perMinute)
			at = w.began
		}
	}
	return min(time.Minute, level+time.Since(at))
}

func (o *oracle) hostLacks(w *wish) quota.Quota {
	cpus, memory, sandboxes := w.CPUs, w.Memory, int64(1)
	for _, r := range o.starts {
		if r.state == "runs" {
			cpus, memory, sandboxes = cpus+r.CPUs, memory+r.Memory, sandboxes+1
		}
	}
	switch h := o.config.Host; {
	case h.Sandboxes > 0 && sandboxes > h.Sandboxes:
		return quota.Sandboxes
	case cpus > h.CPUs:
		return quota.CPUs
	case memory > h.Memory:
		return quota.Memory
	}
	return ""
}

// turn returns the owner with the least debt. Of those that have paid theirs in an earlier round, or have none, the one that has begun to
// wait first comes first, before the others in the order of their last starts.
func (o *oracle) turn(list []owner) (first owner, ok bool) {
	if len(list) == 0 {
		return owner{}, false
	}
	last := func(of owner) int {
		if o.debts[of].since {
			return 0
		}
		for i, w := range slices.Backward(o.granted) {
			if w.of(of) {
				return i + 1
			}
		}
		return 0
	}
	return slices.MinFunc(list, func(a, b owner) int {
		return cmp.Or(cmp.Compare(o.debts[a].units, o.debts[b].units), cmp.Compare(last(a), last(b)), cmp.Compare(o.entries[a], o.entries[b]))
	}), true
}

// nextOf returns the next start of a tenant, if a project allows one.
func (o *oracle) nextOf(tenant string) *wish {
	var list []owner
	for of := range o.entries {
		if of.tenant == tenant && of.project != "*" {
			if waiting := o.waiting(of); len(waiting) > 0 && o.lacks(of, waiting[0]) == "" {
				list = append(list, of)
			}
		}
	}
	of, ok := o.turn(list)
	if !ok {
		return nil
	}
	return o.waiting(of)[0]
}

// next returns the next start of all tenants.
func (o *oracle) next() *wish {
	var list []owner
	for of := range o.entries {
		if of.project == "*" {
			if w := o.nextOf(of.tenant); w != nil && o.lacks(of, w) == "" {
				list = append(list, of)
			}
		}
	}
	of, ok := o.turn(list)
	if !ok {
		return nil
	}
	return o.nextOf(of.tenant)
}

// settle grants starts.
func (o *oracle) settle() {
	if !slices.ContainsFunc(o.starts, func(w *wish) bool { return w.state == "waits" }) {
		return
	}
	for w := o.next(); w != nil && o.hostLacks(w) == ""; w = o.next() {
		w.state, w.began = "runs", time.Now()
		o.granted = append(o.granted, w)
		cost := max(1, w.CPUs*(1<<20)/o.config.Host.CPUs, w.Memory*(1<<20)/o.config.Host.Memory)
		o.pay(owner{w.Tenant, "*"}, cost, func(p owner) bool { return p.project == "*" })
		o.pay(owner{w.Tenant, w.Project}, cost, func(p owner) bool { return p.tenant == w.Tenant && p.project != "*" })
		o.forget(false)
	}
}

// pay gives as many units to all of a ring as the owner has debts, and then adds the cost to these.
func (o *oracle) pay(of owner, cost int64, ring func(owner) bool) {
	units := o.debts[of].units
	for other, d := range o.debts {
		if ring(other) && units > 0 {
			o.debts[other] = debt{max(0, d.units-units), d.since || d.units < units}
		}
	}
	o.debts[of] = debt{units: cost}
}

// forget removes what is only remembered while something waits: when it began to, and, once in a minute, debts.
func (o *oracle) forget(debts bool) {
	for of := range o.entries {
		if len(o.waiting(of)) == 0 {
			delete(o.entries, of)
		}
	}
	for of := range o.debts {
		tenants := of.project == "*"
		if debts && !slices.ContainsFunc(o.starts, func(w *wish) bool { return w.state == "waits" && (tenants || w.Tenant == of.tenant) }) {
			o.debts[of] = debt{since: true}
		}
	}
}

// enter adds a start. It returns the one that is refused, or nil.
func (o *oracle) enter(w *wish) *wish {
	if time.Since(o.swept) >= time.Minute {
		o.swept = time.Now()
		o.forget(true)
	}
	tenant, project := o.config.Of(w.Tenant, w.Project)
	for _, l := range []quota.Limits{tenant, project, {CPUs: o.config.Host.CPUs, Memory: o.config.Host.Memory}} {
		if l.CPUs > 0 && w.CPUs > l.CPUs || l.Memory > 0 && w.Memory > l.Memory {
			w.state = "refused"
			return w
		}
	}
	o.starts = append(o.starts, w)
	w.state = "waits"
	for _, of := range []owner{{w.Tenant, "*"}, {w.Tenant, w.Project}} {
		if _, ok := o.entries[of]; !ok {
			o.entered++
			o.entries[of] = o.entered
		}
	}
	o.settle()
	own, all, longest := len(o.waiting(owner{w.Tenant, "*"})), 0, owner{w.Tenant, "*"}
	for _, tenant := range names() {
		n := len(o.waiting(owner{tenant, "*"}))
		all += n
		if n > len(o.waiting(longest)) {
			longest = owner{tenant, "*"}
		}
	}
	switch {
	case own > o.config.Queue.PerTenant:
		o.end(w, "refused")
		return w
	case all > o.config.Queue.Size:
		list := o.waiting(longest)
		last := list[len(list)-1]
		o.end(last, "refused")
		return last
	}
	return nil
}

func (o *oracle) end(w *wish, state string) {
	w.state = state
	o.forget(false)
	o.settle()
}

// why returns the quota because of which a start waits.
func (o *oracle) why(w *wish) (quota.Scope, quota.Quota) {
	if l := o.lacks(owner{w.Tenant, w.Project}, o.waiting(owner{w.Tenant, w.Project})[0]); l != "" {
		return quota.OfProject, l
	}
	if l := o.lacks(owner{w.Tenant, "*"}, o.nextOf(w.Tenant)); l != "" {
		return quota.OfTenant, l
	}
	return quota.OfHost, o.hostLacks(o.next())
}

func names() []string { return []string{"a", "b", "c", "d"} }
