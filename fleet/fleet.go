package fleet

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/quota"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/state/lifecycle"
)

// Runner carries out the run of a sandbox. See Runs.
type Runner interface {
	// Check returns what the sandbox of a request needs and how long it may live, or an error if the request is refused.
	Check(ctx context.Context, r Request) (Terms, error)
	// Run carries out the run with this ID within the allowance, which continues from a paused one if from is set. It calls serve when
	// processes can be started, and returns when the run's record is closed.
	Run(ctx context.Context, id string, r Request, a Allowance, from *run.Resume, serve func(context.Context, *run.Live)) (run.Result, error)
	// Parent describes the closed record of a run that was paused.
	Parent(ctx context.Context, run string) (audit.Parent, error)
	// Stored describes the stored state of a run that was paused. The error is state.ErrNotFound if there is none.
	Stored(ctx context.Context, tenant, run string) (run.Saved, error)
	// Discard removes the stored state of a run that was paused. It is no error if there is none.
	Discard(ctx context.Context, tenant, run string) error
}

// Allowance is what the quotas let a sandbox use while it lives.
type Allowance struct {
	DiskRate, NetworkRate int64 // bytes per second; 0: no limit
	// Charge is called with LLM tokens that the sandbox has used; see run.Options.
	Charge func(tokens int64) (why string, until time.Time)
}

// Terms are what the sandbox of a request needs, and its limits.
type Terms struct {
	Project  string
	Template string
	CPUs     int
	Memory   int64 // bytes
	// Lifecycle is when the sandbox is paused, archived and deleted.
	Lifecycle lifecycle.Policy
	Time      time.Duration
	Idle      time.Duration // 0: no limit
}

// Config configures a Fleet. Runner and Queue must be set.
type Config struct {
	Runner Runner
	Queue  *quota.Queue // Open sets it
	// Tokens is the path of the file in which Open's queue keeps the LLM tokens of the day; empty: they do not outlive the process.
	Tokens string
	// Paused is the directory in which paused sandboxes are kept; empty: they end with the process.
	Paused string
	// Archive is where the states of sandboxes go that are paused for long; nil: nowhere.
	Archive Archive
	// Record gets the transitions of sandboxes that no caller asked for, before they happen; nil: nothing does.
	Record func(context.Context, Transition) error
	Clock  Clock // nil: that of the host
	// Idle is how long a sandbox without calls lives, whose processes do nothing, if its request names no time; 0: 5 min.
	Idle time.Duration
	// Keep is how long a sandbox is known after its end; 0: 10 min.
	Keep time.Duration
	// Meter counts what happens to the sandboxes; nil: nothing does.
	Meter Meter
	// Problem receives errors that no caller gets. nil: they are dropped.
	Problem func(error)
}

// The defaults of Config.
const (
	defaultIdle = 5 * time.Minute
	defaultKeep = 10 * time.Minute
)

// Bounds of what a tenant can make the host remember.
const (
	maxOf    = 10000 // sandboxes of a tenant that have not ended
	maxEnded = 1000  // and that have
	maxKey   = 256   // bytes
)

// Fleet is the live sandboxes of a host. It is safe for concurrent use.
//
//	New --> open --Close--> closed: all sandboxes have ended
type Fleet struct {
	config Config
	paused pausedDir
	ctx    context.Context // done when the fleet is closed
	cancel context.CancelFunc
	work   sync.WaitGroup // the sandboxes

	mu        sync.Mutex // guards the fields below
	closed    bool
	sandboxes map[string]*Sandbox // by ID
	sessions  map[key]*Sandbox    // that have not ended, by session key
	attempts  map[key]*Sandbox    // by idempotency key
	forkings  map[key]*forking    // forks by idempotency key
	adoptions map[key]bool        // runs of tenants that are being adopted
	lives     map[string]int      // number of sandboxes that have not ended, by tenant
	ended     map[string][]string // IDs of sandboxes that have ended, by tenant, in that order
}

// key is the key of a session, of one project of a tenant, or of an attempt, of a tenant.
type key struct{ tenant, project, name string }

func sessionOf(s *Sandbox) key { return key{s.request.Tenant, s.terms.Project, s.request.Session} }
func attemptOf(s *Sandbox) key { return key{tenant: s.request.Tenant, name: s.request.Idempotency} }

// New returns a fleet with the sandboxes that are paused.
func New(c Config) *Fleet {
	c.Idle, c.Keep = cmp.Or(c.Idle, defaultIdle), cmp.Or(c.Keep, defaultKeep)
	if c.Clock == nil {
		c.Clock = realClock{}
	}
	if c.Meter == nil {
		c.Meter = noMeter{}
	}
	if c.Problem == nil {
		c.Problem = func(error) {}
	}
	f := &Fleet{config: c, paused: pausedDir(c.Paused), sandboxes: map[string]*Sandbox{}, sessions: map[key]*Sandbox{}, attempts: map[key]*Sandbox{}, forkings: map[key]*forking{}, adoptions: map[key]bool{}, lives: map[string]int{}, ended: map[string][]string{}}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	if err := (revival{f}).restore(f.ctx); err != nil {
		c.Problem(err)
	}
	return f
}

// Close ends all sandboxes and returns when their records are closed. Later calls fail.
func (f *Fleet) Close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.cancel()
	f.work.Wait()
}

// Create makes a sandbox, or returns the one that the request's session or idempotency key names. It does not wait until the sandbox is
// live. A *quota.Error means that it has no place in the queue. made reports whether the sandbox is a new one.
func (f *Fleet) Create(ctx context.Context, r Request) (s *Sandbox, made bool, err error) {
	if err := r.check(); err != nil {
		return nil, false, err
	}
	terms, err := f.config.Runner.Check(ctx, r)
	if err != nil {
		return nil, false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, false, &Error{ErrEnded, "the service is shutting down: try again later"}
	}
	if s, err := f.existing(r, terms); s != nil || err != nil {
		return s, false, err
	}
	s = newSandbox(f, host.NewRunID(time.Now()), r, terms)
	err = f.admit(s)
	if err == nil && !r.Lazy {
		err = s.enter()
	}
	if err != nil {
		s.discard(err)
		return nil, false, err
	}
	f.register(s)
	if !r.Lazy {
		s.begin()
	}
	f.work.Go(s.live)
	return s, true, nil
}

// admit returns an error if the fleet takes no more sandboxes of the tenant. The caller holds mu.
func (f *Fleet) admit(s *Sandbox) error {
	if f.closed {
		return &Error{ErrEnded, "the service is shutting down: try again later"}
	}
	if f.lives[s.request.Tenant] >= maxOf {
		return conflict("the tenant has %d sandboxes, promised and paused ones included: destroy some first", maxOf)
	}
	return nil
}

// register adds a sandbox. The caller holds mu.
func (f *Fleet) register(s *Sandbox) {
	r := s.request
	f.lives[r.Tenant]++
	f.sandboxes[s.ID] = s
	if r.Session != "" {
		f.sessions[sessionOf(s)] = s
	}
	if r.Idempotency != "" {
		f.attempts[attemptOf(s)] = s
	}
}

// existing returns the sandbox that the keys of a request name, nil if there is none. The caller holds mu.
func (f *Fleet) existing(r Request, t Terms) (*Sandbox, error) {
	if r.Idempotency != "" {
		if s := f.attempts[key{tenant: r.Tenant, name: r.Idempotency}]; s != nil {
			if !s.request.same(r) {
				return nil, conflict("the idempotency key was used for another request: use a new key")
			}
			return s, nil
		}
	}
	if r.Session == "" {
		return nil, nil
	}
	s := f.sessions[key{r.Tenant, t.Project, r.Session}]
	if s == nil || s.ctx.Err() != nil { // none, or one that ends
		return nil, nil
	}
	if !s.request.sameShape(r) {
		return nil, conflict("the session %q has a sandbox of another template or with other settings", r.Session)
	}
	return s, nil
}

// Get returns a sandbox of a tenant.
func (f *Fleet) Get(tenant, id string) (*Sandbox, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sandboxes[id]
	if s == nil || s.request.Tenant != tenant {
		return nil, unknown("there is no sandbox %.80q", id)
	}
	return s, nil
}

// List returns the sandboxes of a tenant, in the order of their creation.
func (f *Fleet) List(tenant string) []*Sandbox {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []*Sandbox
	for _, id := range slices.Sorted(maps.Keys(f.sandboxes)) { // an ID begins with its time
		if s := f.sandboxes[id]; s.request.Tenant == tenant {
			list = append(list, s)
		}
	}
	return list
}

// over is called when a sandbox has ended.
func (f *Fleet) over(s *Sandbox) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if k := sessionOf(s); f.sessions[k] == s {
		delete(f.sessions, k)
	}
	tenant := s.request.Tenant
	if f.lives[tenant]--; f.lives[tenant] == 0 {
		delete(f.lives, tenant)
	}
	f.ended[tenant] = append(f.ended[tenant], s.ID)
	for len(f.ended[tenant]) > maxEnded {
		f.forget(f.ended[tenant][0])
	}
	if f.closed {
		return
	}
	time.AfterFunc(f.config.Keep, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.forget(s.ID)
	})
}

// forget removes a sandbox that has ended. The caller holds mu.
func (f *Fleet) forget(id string) {
	s := f.sandboxes[id]
	if s == nil {
		return
	}
	delete(f.sandboxes, id)
	if k := attemptOf(s); f.attempts[k] == s {
		delete(f.attempts, k)
	}
	tenant := s.request.Tenant
	f.ended[tenant] = slices.DeleteFunc(f.ended[tenant], func(other string) bool { return other == id })
	if len(f.ended[tenant]) == 0 {
		delete(f.ended, tenant)
	}
}

// errClosed is why sandboxes are ended with the fleet.
var errClosed = errors.New("the service is shutting down")

// Open returns a fleet with a queue for the quotas of a host. The returned function ends both.
func Open(q quota.Config, c Config) (f *Fleet, end func(), err error) {
	if q.Host, err = Size(q.Host); err != nil {
		return nil, nil, err
	}
	if c.Tokens == "" {
		c.Queue, err = quota.New(q)
	} else {
		c.Queue, err = quota.Open(q, c.Tokens)
	}
	if err != nil {
		return nil, nil, err
	}
	f = New(c)
	return f, func() {
		f.Close()
		c.Queue.Close()
	}, nil
}
