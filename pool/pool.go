// Package pool keeps warm sandboxes on a host, ready for runs.
//
// A warm sandbox is restored and awake, has its network and worker, and has no identity yet. The pool keeps some for each
// Key. Acquire returns a lease of one that passes its health check now. A sandbox is leased once, and destroyed when the
// lease ends: with Release, or when its TTL has passed without Renew, so that the sandbox of a caller that crashed is
// destroyed too.
//
// The pool learns keys from Acquire: the first one of a key finds no pool. How many sandboxes of a key are kept follows
// demand, see decide and rate. It is bounded by MaxIdle for each project, by the host's memory and by the number of
// sandboxes that are made concurrently. A failed Make is repeated after a delay that grows exponentially, with jitter.
//
// The pool has one goroutine for its decisions, and one for each sandbox from Make to Destroy. Close waits for all of them.
package pool

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"time"
)

// Key is a kind of sandbox. Two sandboxes with the same key are interchangeable.
type Key struct {
	Template string // identifies the template and its contents
	Shape    Shape
	Tier     string // isolation tier
	Project  string // the project whose runs may use it
}

// Shape is the size of a sandbox, and what else of it is fixed when it is made.
type Shape struct {
	CPUs   int
	Memory int64 // of the guest, in bytes
	Disk   int64 // in bytes
	// DiskRate and NetworkRate are limits in bytes per second; 0: none. HashOver is the size of files in bytes above which they are hashed.
	DiskRate, NetworkRate, HashOver int64
}

// Maker makes warm sandboxes.
type Maker interface {
	// Make returns a warm sandbox, or an error after it has removed everything that it has made so far. It returns soon
	// after ctx is done. It is called concurrently.
	Make(ctx context.Context, key Key) (Sandbox, error)
}

// Sandbox is a warm sandbox. Its methods are safe for concurrent use: Destroy can be called during Check.
type Sandbox interface {
	// Done is closed when the sandbox has died.
	Done() <-chan struct{}
	// Check returns an error if the sandbox is not fit for use. It returns soon after ctx is done.
	Check(ctx context.Context) error
	// Destroy removes the sandbox with everything that belongs to it, also if it has died. After an error it is called
	// again. It returns soon after ctx is done.
	Destroy(ctx context.Context) error
	// Memory is the memory of the host that the sandbox uses while it is idle, in bytes: less than that of its shape, or 0 if it is not known.
	// It does not block.
	Memory() int64
}

// Options configures a pool. Maker and Available are required. A zero value stands for the default.
type Options struct {
	Maker Maker
	// Available returns the memory of the host that new sandboxes can use, in bytes. While it returns an error, no
	// sandbox is made. It is called often, by one goroutine, and must not block.
	Available func() (int64, error)
	// Reserve is the memory that the pool leaves available. Below it, idle sandboxes are destroyed, the oldest first;
	// new ones are made only if Reserve and an eighth of it remain available. Default: 512 MiB.
	Reserve int64
	// MaxIdle returns how many idle sandboxes a project can have; 0 if it has no pool. It must not block or call the
	// pool. Default: 2 for each.
	MaxIdle func(project string) int

	// Settle is how long the pool waits at most after a caller has got a sandbox before it makes the next one: the run that begins then has
	// the processors. It waits no longer when that lease has ended, or when another caller got none. Default: it does not wait.
	Settle time.Duration

	Concurrent int           // sandboxes made concurrently; default: half of the processors, at least 1
	MaxKeys    int           // keys with a pool, further ones have none; default: 256
	MaxWaiting int           // callers of Acquire that wait; default: 1024
	TTL        time.Duration // of a lease; default: 30 s
	MaxAge     time.Duration // of an idle sandbox; default: 1 h
	Quiet      time.Duration // without demand, after which a key's sandboxes are destroyed; default: 15 min
	Window     time.Duration // over which demand is averaged; default: 3 min

	MakeTime    time.Duration // limit of one Make; default: 2 min
	CheckTime   time.Duration // limit of one Check; default: 1 s
	DestroyTime time.Duration // limit of one Destroy, which is repeated; default: 30 s
	Interval    time.Duration // between decisions if nothing happens; default: 1 s

	Meter Meter        // default: none
	Log   *slog.Logger // default: none
}

// withDefaults returns opt with defaults in place of zero values.
func (opt Options) withDefaults() Options {
	def(&opt.Reserve, 512<<20)
	def(&opt.Concurrent, max(1, runtime.GOMAXPROCS(0)/2))
	def(&opt.MaxKeys, 256)
	def(&opt.MaxWaiting, 1024)
	def(&opt.TTL, 30*time.Second)
	def(&opt.MaxAge, time.Hour)
	def(&opt.Quiet, 15*time.Minute)
	def(&opt.Window, 3*time.Minute)
	def(&opt.MakeTime, 2*time.Minute)
	def(&opt.CheckTime, time.Second)
	def(&opt.DestroyTime, 30*time.Second)
	def(&opt.Interval, time.Second)
	if opt.MaxIdle == nil {
		opt.MaxIdle = func(string) int { return 2 }
	}
	if opt.Meter == nil {
		opt.Meter = noMeter{}
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	return opt
}

func def[T int | int64 | time.Duration](v *T, value T) {
	if *v == 0 {
		*v = value
	}
}

// Pool is a pool of warm sandboxes. Its methods are safe for concurrent use.
type Pool struct {
	opt  Options
	base context.Context // carries the caller's values, is never done
	wake chan struct{}   // of capacity 1: something has changed

	work  context.Context // done when Close begins: nothing is made after that
	stop  context.CancelFunc
	force context.Context // done when Close stops waiting for leases
	hurry context.CancelFunc
	tasks sync.WaitGroup // keep and tend

	mu      sync.Mutex // guards the fields below, and those of kinds, members and leases
	kinds   map[Key]*kind
	members map[*member]bool // all sandboxes that exist
	waiting int              // callers that wait, of all kinds
	settled time.Time        // when the pool makes sandboxes again for which no caller waits; zero: it does now
	young   map[*member]bool // what callers have got since settled was set; empty if it is zero
	closed  bool
	left    []error // of sandboxes that could not be destroyed
}

// kind is what the pool knows about a key. Pool.mu guards it.
type kind struct {
	key     Key
	demand  rate
	last    time.Time     // of demand
	takes   time.Duration // to make one, averaged; 0 until the first is made
	idle    []*member     // the oldest first; empty while callers wait
	making  int
	waiting []*waiter // in order of arrival
	callers int       // calls of Acquire in progress
	retry   retry
	lack    Reason // why a wanted sandbox is not being made; NoneWarm if nothing prevents it
}

// New returns a pool that is empty. The caller must call Close. Make and Destroy get contexts with the values of ctx; the end
// of ctx does not close the pool.
func New(ctx context.Context, opt Options) (*Pool, error) {
	if opt.Maker == nil || opt.Available == nil {
		return nil, errors.New("pool: Maker and Available are required")
	}
	for _, n := range []int64{opt.Reserve, int64(opt.Concurrent), int64(opt.MaxKeys), int64(opt.MaxWaiting), int64(opt.TTL), int64(opt.MaxAge), int64(opt.Quiet),
		int64(opt.Window), int64(opt.Settle), int64(opt.MakeTime), int64(opt.CheckTime), int64(opt.DestroyTime), int64(opt.Interval)} {
		if n < 0 {
			return nil, errors.New("pool: an option is negative")
		}
	}
	p := &Pool{opt: opt.withDefaults(), base: context.WithoutCancel(ctx), wake: make(chan struct{}, 1), kinds: map[Key]*kind{}, members: map[*member]bool{}, young: map[*member]bool{}}
	p.work, p.stop = context.WithCancel(p.base)
	p.force, p.hurry = context.WithCancel(p.base)
	p.tasks.Go(p.keep)
	return p, nil
}

// Close stops making sandboxes, destroys the idle ones, and waits until all leases have ended, or until ctx is done: then
// it ends them. It returns when no sandbox is left, or with an error that names those that could not be destroyed. Acquire
// returns an EmptyError from then on.
func (p *Pool) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	for _, k := range p.kinds {
		p.refuse(k, Closed)
		for len(k.idle) > 0 {
			p.end(k.idle[0], Shutdown)
		}
	}
	p.mu.Unlock()
	p.stop()
	done := make(chan struct{})
	go func() { // ends before Close returns
		p.tasks.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		p.endAll()
		<-done
	}
	p.hurry()
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(p.left...)
}

// endAll ends all sandboxes, whatever their state is. Destroy is not repeated after that.
func (p *Pool) endAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for m := range p.members {
		p.end(m, Shutdown)
	}
	p.hurry()
}

// changed makes keep decide again.
func (p *Pool) changed() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}
