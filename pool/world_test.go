package pool_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/custody-project/custody/pool"
)

const mib = 1 << 20

// world is a maker of sandboxes in memory, and the host that they use. The tests run in testing/synctest, whose clock it uses.
type world struct {
	t      *testing.T
	takes  time.Duration // Make
	memory int64         // of a sandbox

	mu        sync.Mutex // guards the fields below
	available int64
	blind     error // Available
	broken    error // Make
	frail     func(*box)
	boxes     []*box
	attempts  []time.Time
	making    int
	most      int // concurrent makes
	counts    map[string]int
}

// box is a sandbox in memory.
type box struct {
	world *world
	key   pool.Key
	dead  chan struct{}

	// world.mu guards the fields below.
	sick      error // Check
	slow      time.Duration
	undying   error // Destroy
	lingers   time.Duration
	tries     int
	destroyed time.Time
	holders   int
}

func newWorld(t *testing.T) *world {
	return &world{t: t, takes: 2 * time.Second, memory: 50 * mib, available: 10 << 30, counts: map[string]int{}}
}

func (w *world) Make(ctx context.Context, key pool.Key) (pool.Sandbox, error) {
	w.mu.Lock()
	w.attempts = append(w.attempts, time.Now())
	w.making++
	w.most = max(w.most, w.making)
	takes := w.takes
	w.mu.Unlock()
	var err error
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		err = ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.making--
	if err = errors.Join(err, w.broken); err != nil {
		return nil, err
	}
	b := &box{world: w, key: key, dead: make(chan struct{})}
	if w.frail != nil {
		w.frail(b)
	}
	w.boxes = append(w.boxes, b)
	w.available -= w.memory
	return b, nil
}

func (w *world) Available() (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.available, w.blind
}

// set changes the world.
func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// alive returns the sandboxes that are not destroyed, the oldest first.
func (w *world) alive() (all []*box) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.boxes {
		if b.destroyed.IsZero() {
			all = append(all, b)
		}
	}
	return all
}

func (w *world) made() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.boxes)
}

func (b *box) isDestroyed() bool {
	b.world.mu.Lock()
	defer b.world.mu.Unlock()
	return !b.destroyed.IsZero()
}

func (b *box) Done() <-chan struct{} { return b.dead }

func (b *box) Memory() int64 { return b.world.memory }

func (b *box) Check(ctx context.Context) error {
	b.world.mu.Lock()
	slow, sick := b.slow, b.sick
	b.world.mu.Unlock()
	select {
	case <-time.After(slow):
		return sick
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *box) Destroy(context.Context) error {
	b.world.mu.Lock()
	lingers := b.lingers
	b.world.mu.Unlock()
	time.Sleep(lingers)
	b.world.mu.Lock()
	defer b.world.mu.Unlock()
	if b.tries++; b.undying != nil {
		return b.undying
	}
	if !b.destroyed.IsZero() {
		b.world.t.Error("a sandbox is destroyed twice")
	}
	b.destroyed = time.Now()
	b.world.available += b.world.memory
	return nil
}

// die ends the sandbox as a crash does.
func (b *box) die() {
	b.world.mu.Lock()
	defer b.world.mu.Unlock()
	select {
	case <-b.dead:
	default:
		close(b.dead)
	}
}

// The methods of pool.Meter count in world.counts.

func (w *world) Hit()                 { w.count("hit") }
func (w *world) Miss(reason string)   { w.count("miss " + reason) }
func (w *world) Wait(time.Duration)   { w.count("wait") }
func (w *world) Refill(time.Duration) { w.count("refill") }
func (w *world) Fail()                { w.count("fail") }
func (w *world) Destroy(cause string) { w.count("destroy " + cause) }
func (w *world) count(what string)    { w.set(func() { w.counts[what]++ }) }
func (w *world) counted(s string) int { w.mu.Lock(); defer w.mu.Unlock(); return w.counts[s] }
func (w *world) options() pool.Options {
	return pool.Options{Maker: w, Available: w.Available, Meter: w, Concurrent: 2, Reserve: 512 * mib}
}

func shop() pool.Key {
	return pool.Key{Template: "sha256:1", Shape: pool.Shape{CPUs: 1, Memory: 256 * mib, Disk: 1 << 30}, Tier: "qemu-tcg", Project: "shop"}
}

// run runs a test with a pool in a bubble. At the end nothing may be left.
func run(t *testing.T, change func(*world, *pool.Options), test func(*testing.T, *world, *pool.Pool)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		opt := w.options()
		if change != nil {
			change(w, &opt)
		}
		p, err := pool.New(t.Context(), opt)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			finish(t, w, p)
			if w.most > opt.Concurrent {
				t.Errorf("%d were made concurrently", w.most)
			}
		}()
		test(t, w, p)
	})
}

// finish closes a pool without waiting for leases, and checks that nothing is left.
func finish(t *testing.T, w *world, p *pool.Pool) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.Close(ended); err != nil {
		t.Error(err)
	}
	if n := len(w.alive()); n > 0 {
		t.Errorf("%d sandboxes are left", n)
	}
	if s := p.Stats(); s.Idle+s.Leased+s.Making+s.Ending+s.Waiting+s.Stuck != 0 {
		t.Errorf("after Close: %+v", s)
	}
}

// get acquires a sandbox that must be there.
func get(t *testing.T, p *pool.Pool, key pool.Key, options ...pool.Option) *pool.Lease {
	t.Helper()
	l, err := p.Acquire(t.Context(), key, "test", options...)
	if err != nil {
		t.Fatal(err)
	}
	b := l.Sandbox().(*box)
	b.world.set(func() {
		if b.holders++; b.holders > 1 {
			t.Error("a sandbox has two holders")
		}
		if !b.destroyed.IsZero() {
			t.Error("a destroyed sandbox is leased")
		}
	})
	return l
}

// miss acquires a sandbox that must not be there.
func miss(t *testing.T, p *pool.Pool, key pool.Key, reason pool.Reason, options ...pool.Option) {
	t.Helper()
	l, err := p.Acquire(t.Context(), key, "test", options...)
	var empty *pool.EmptyError
	if !errors.As(err, &empty) || empty.Reason != reason {
		t.Fatalf("%v, %v; want %s", l, err, reason)
	}
}

// warm makes the pool learn a key, and waits until it has settled.
func warm(t *testing.T, p *pool.Pool, key pool.Key) {
	t.Helper()
	miss(t, p, key, pool.NoPool)
	pass(10 * time.Second)
}

// pass lets time pass, until nothing more happens.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
