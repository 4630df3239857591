package quota

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

// Bounds limit how many starts wait, and for how long. A zero field stands for its default.
type Bounds struct {
	Size      int           // of all tenants; default 4096
	PerTenant int           // of one tenant; default 1024
	Wait      time.Duration // of one start; default 2 min
}

func (b Bounds) withDefaults() Bounds {
	return Bounds{cmp.Or(b.Size, 4096), cmp.Or(b.PerTenant, 1024), cmp.Or(b.Wait, 2*time.Minute)}
}

const (
	// maxProjects is the number of a tenant's projects that have sandboxes or starts that wait.
	maxProjects = 1024
	// sweepEvery is the shortest time between removals of tenants and projects that use nothing.
	sweepEvery = time.Minute
	// fullShare is the cost of a sandbox that needs the whole host.
	fullShare = 1 << 20
)

// Request describes a start. Tenant is the one for which the caller has authenticated the user.
type Request struct {
	Tenant, Project string
	CPUs            int64
	Memory          int64 // in bytes
	// Wait is the longest time for which the start waits, if it is shorter than that of the queue; 0: that of the queue.
	Wait time.Duration
}

// Queue grants starts. Its methods are safe for concurrent use. It has no goroutines: a timer runs while the next change is due
// to the passing of time.
type Queue struct {
	config Config
	host   Limits // of all sandboxes together
	clock  clock
	ledger *ledger // nil: tokens are not kept

	mu      sync.Mutex // guards the fields below, and those of tenants, projects, places and leases that are not constant
	tenants map[string]*tenant
	use     usage  // of the host
	ring    ring   // of tenants
	waiting int    // places in state waiting
	arrived uint64 // places so far
	swept   time.Time
	closed  bool
	alarm   *alarm // nil if none is set
	// ready has the tenants whose next start is allowed by all limits except those of the host; the one whose turn it is comes
	// first. asleep has the tenants that wait for a time, the earliest first.
	ready, asleep tenants

	alarms sync.WaitGroup // alarms that are set or run
}

// tenant has the projects of a tenant.
type tenant struct {
	name     string
	limits   Limits
	use      usage
	turn     turn // among tenants
	waiting  int
	projects map[string]*project
	active   []*project // those with starts that wait
	ring     ring       // of projects
	next     *project   // whose first start is the tenant's next one; nil if the limits of no project allow one
	wake     time.Time  // when a limit of the tenant or of a project allows more; zero: unknown

	ready, asleep int // places in the heaps of the queue
}

// project has the starts of a project that wait, in order of arrival.
type project struct {
	tenant  *tenant
	name    string
	limits  Limits
	use     usage
	turn    turn // among the projects of the tenant
	waiting []*Place
}

// New returns a queue for a host of the size config.Host, whose CPUs and Memory are required. The caller must call Close.
func New(config Config) (*Queue, error) {
	h := config.Host
	if h.CPUs <= 0 || h.Memory <= 0 || h.Sandboxes < 0 || h.CPUs > math.MaxInt64/fullShare {
		return nil, errors.New("quota: the host needs CPUs and memory")
	}
	config.Queue = config.Queue.withDefaults()
	if b := config.Queue; b.Size < 0 || b.PerTenant < 0 || b.Wait < 0 {
		return nil, errors.New("quota: a bound of the queue is negative")
	}
	q := &Queue{config: config, host: h.limits(), clock: system{}, tenants: map[string]*tenant{}}
	q.ready = tenants{less: func(a, b *tenant) bool { return q.ring.before(&a.turn, &b.turn) }, index: func(t *tenant) *int { return &t.ready }}
	q.asleep = tenants{less: func(a, b *tenant) bool { return a.wake.Before(b.wake) }, index: func(t *tenant) *int { return &t.asleep }}
	return q, nil
}

// Open is like New, and keeps the LLM tokens of the day in a file, so that they count after a restart. Only one queue may use the file.
func Open(config Config, path string) (*Queue, error) {
	q, err := New(config)
	if err != nil {
		return nil, err
	}
	l, err := openLedger(path, q.clock.Now())
	if err != nil {
		return nil, err
	}
	for o, tokens := range l.sums {
		_ = q.Charge(o.tenant, o.project, tokens) // it reports what is used up, which counts now
	}
	q.ledger = l
	return q, nil
}

// Acquire waits until the start is granted. The lease counts until Release. The error of a start that is not granted is an
// *Error, ErrClosed, or the cause of ctx. It is returned immediately if the start exceeds a limit by itself, if too many starts
// wait, or if a rate does not allow it within the time for which it can wait.
func (q *Queue) Acquire(ctx context.Context, r Request) (*Lease, error) {
	p, err := q.Enter(ctx, r)
	if err != nil {
		return nil, err
	}
	return p.Wait(ctx)
}

// Enter is the first half of Acquire, for callers that show the position while they wait. It does not block. The caller must
// call Wait on the place that it returns.
func (q *Queue) Enter(ctx context.Context, r Request) (*Place, error) {
	if r.CPUs < 1 || r.Memory < 1 || r.Wait < 0 {
		return nil, fmt.Errorf("a start needs at least 1 CPU and 1 byte of memory, not %d and %d, and no negative time to wait", r.CPUs, r.Memory)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, ErrClosed
	}
	now := q.settle()
	defer q.setAlarm(now)
	q.sweep(now)
	p, fits := q.projectOf(r.Tenant, r.Project)
	if !fits {
		l := lack{quota: Waiting, limit: maxProjects, used: maxProjects, want: 1}
		return nil, q.newError(p, OfTenant, l, p.tenant.waiting+1, now.Add(sweepEvery), nil)
	}
	if err := q.refuse(ctx, p, &r, now); err != nil {
		return nil, err
	}
	return q.add(p, r, now)
}

// refuse returns the error of a start that does not enter the queue.
func (q *Queue) refuse(ctx context.Context, p *project, r *Request, now time.Time) error {
	t := p.tenant
	for _, s := range q.scopes(p) {
		if l := s.limits.exceeds(r); l.quota != "" {
			return q.newError(p, s.scope, l, t.waiting+1, time.Time{}, nil)
		}
	}
	last := now.Add(q.wait(r))
	if d, ok := ctx.Deadline(); ok && d.Before(last) {
		last = d
	}
	ahead := map[Scope]int{OfTenant: t.waiting, OfProject: len(p.waiting)}
	for _, s := range q.scopes(p) {
		if l := s.use.waits(s.limits, ahead[s.scope]+1, now); l.until.After(last) {
			return q.newError(p, s.scope, l, t.waiting+1, l.until, ErrLate)
		}
	}
	return nil
}

// wait returns the longest time for which a start waits.
func (q *Queue) wait(r *Request) time.Duration {
	if r.Wait > 0 {
		return min(r.Wait, q.config.Queue.Wait)
	}
	return q.config.Queue.Wait
}

// add lets a start wait, and grants it if it can begin now. If too many wait then, it refuses one.
func (q *Queue) add(p *project, r Request, now time.Time) (*Place, error) {
	t := p.tenant
	q.arrived++
	w := &Place{queue: q, project: p, request: r, cost: q.cost(&r), number: q.arrived, since: now, deadline: now.Add(q.wait(&r)), done: make(chan struct{})}
	if t.waiting == 0 {
		q.ring.enter(&t.turn)
	}
	if len(p.waiting) == 0 {
		t.ring.enter(&p.turn)
		t.active = append(t.active, p)
	}
	p.waiting = append(p.waiting, w)
	t.waiting++
	q.waiting++
	q.update(t, now)
	q.dispatch(now)
	switch {
	case t.waiting > q.config.Queue.PerTenant:
		l := lack{quota: Waiting, limit: int64(q.config.Queue.PerTenant), used: int64(t.waiting - 1), want: 1}
		q.drop(w, q.newError(p, OfTenant, l, t.waiting, q.use.ends(1, now), nil), now)
	case q.waiting > q.config.Queue.Size:
		last := q.longest(t).newest()
		q.drop(last, q.newError(last.project, OfHost, lack{quota: Waiting}, last.project.tenant.waiting, q.use.ends(1, now), nil), now)
	}
	if w.state == refused {
		return nil, w.err
	}
	return w, nil
}

// longest returns the tenant with the most starts that wait; in doubt it is t. So a tenant cannot use up the places of others.
func (q *Queue) longest(t *tenant) *tenant {
	longest := t
	for _, o := range q.tenants {
		if o.waiting > longest.waiting || o.waiting == longest.waiting && longest != t && o.name < longest.name {
			longest = o
		}
	}
	return longest
}

// newest returns the last place of the tenant by arrival.
func (t *tenant) newest() *Place {
	var last *Place
	for _, p := range t.active {
		if w := p.waiting[len(p.waiting)-1]; last == nil || w.number > last.number {
			last = w
		}
	}
	return last
}

// cost returns the share of the host that a start needs: of its CPUs or of its memory, whichever is more.
func (q *Queue) cost(r *Request) int64 {
	cpus := r.CPUs * fullShare / q.host.CPUs
	memory := int64(float64(r.Memory) / float64(q.host.Memory) * fullShare)
	return max(1, cpus, memory)
}

// Close refuses the starts that wait. Leases can still be released.
func (q *Queue) Close() {
	q.mu.Lock()
	q.closed = true
	now := q.clock.Now()
	for _, t := range q.tenants {
		for t.waiting > 0 {
			q.drop(t.newest(), ErrClosed, now)
		}
	}
	q.setAlarm(now)
	ledger := q.ledger
	q.ledger = nil
	q.mu.Unlock()
	q.alarms.Wait()
	if ledger != nil {
		ledger.close()
	}
}
