package pool_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/custody-project/custody/pool"
)

// arrivals calls Acquire every so often, releases what it gets, and returns the share of calls that got a sandbox.
func arrivals(t *testing.T, p *pool.Pool, key pool.Key, every time.Duration, n int) float64 {
	hits := 0
	for range n {
		if l, err := p.Acquire(t.Context(), key, ""); err == nil {
			hits++
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		pass(every)
	}
	return float64(hits) / float64(n)
}

// TestDemand: the number of idle sandboxes follows the demand, up to the bound and down to none.
func TestDemand(t *testing.T) {
	bound := func(n int) func(*world, *pool.Options) {
		return func(w *world, opt *pool.Options) {
			opt.MaxIdle = func(string) int { return n }
			opt.Concurrent = 8
			w.takes = 4 * time.Second
		}
	}
	for _, c := range []struct {
		every       time.Duration
		bound, idle int
	}{
		{2 * time.Minute, 2, 1}, // rarely: one
		{time.Second, 2, 2},     // often: the bound
		{time.Second, 20, 6},    // 4 arrive while one is made: 4 and their root
		{5 * time.Second, 20, 2},
	} {
		t.Run(fmt.Sprintf("every %s, at most %d", c.every, c.bound), func(t *testing.T) {
			run(t, bound(c.bound), func(t *testing.T, w *world, p *pool.Pool) {
				arrivals(t, p, shop(), c.every, int(15*time.Minute/c.every))
				got := arrivals(t, p, shop(), c.every, 50)
				if c.bound == 20 && got < 0.99 {
					t.Errorf("only %.2f of the calls got a sandbox", got)
				}
				pass(10 * time.Second)
				if s := p.Stats(); s.Idle != c.idle {
					t.Errorf("%+v, want %d idle", s, c.idle)
				}
				pass(12 * time.Minute)
				if s := p.Stats(); s.Idle == 0 {
					t.Error("demand is forgotten too early")
				}
				pass(4 * time.Minute)
				if s := p.Stats(); s.Idle != 0 || s.Keys != 0 {
					t.Errorf("without demand: %+v", s)
				}
			})
		})
	}
}

// TestProjects: the bound is one of a project, which its keys share; another project has its own.
func TestProjects(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, p *pool.Pool) {
		large, second, other := shop(), shop(), shop()
		large.Shape.Memory, second.Template, other.Project = 512*mib, "sha256:2", "other"
		for range 100 {
			for _, k := range []pool.Key{shop(), other} {
				arrivals(t, p, k, time.Second, 1)
			}
		}
		pass(10 * time.Second)
		if s := p.Stats(); s.Idle != 4 {
			t.Errorf("%+v", s)
		}
		warm(t, p, large) // the second place of the busy key becomes that of the new one
		if s := p.Stats(); s.Idle != 4 || w.counted("destroy surplus") != 1 {
			t.Errorf("%+v, %v", s, w.counts)
		}
		warm(t, p, second) // no place: the two busier ones have them
		miss(t, p, second, pool.NoneWarm)
		get(t, p, large)
		get(t, p, shop())
		get(t, p, other)
	})
}

// TestAge: an idle sandbox is replaced when it is old.
func TestAge(t *testing.T) {
	run(t, func(_ *world, opt *pool.Options) { opt.MaxAge = 5 * time.Minute }, func(t *testing.T, w *world, p *pool.Pool) {
		warm(t, p, shop())
		first := w.alive()[0]
		pass(4 * time.Minute)
		if first.isDestroyed() {
			t.Error("destroyed early")
		}
		pass(2 * time.Minute)
		if !first.isDestroyed() || w.counted("destroy old") != 1 {
			t.Errorf("%v", w.counts)
		}
		if l := get(t, p, shop()); l.Sandbox() == pool.Sandbox(first) {
			t.Error("the old sandbox was leased")
		}
	})
}

// TestPressure: with too little memory the pool shrinks, the oldest first, and does not grow until there is clearly enough.
func TestPressure(t *testing.T) {
	run(t, func(w *world, _ *pool.Options) {
		w.frail = func(b *box) { b.lingers = 5 * time.Second } // no more are destroyed meanwhile
	}, func(t *testing.T, w *world, p *pool.Pool) {
		for i := range 4 {
			k := shop()
			k.Project = fmt.Sprint(i)
			warm(t, p, k)
		}
		all := w.alive()
		if len(all) != 4 {
			t.Fatalf("%d are warm", len(all))
		}
		w.set(func() { w.available = 512*mib - w.memory - 1 }) // that of two is missing
		pass(10 * time.Second)
		for i, b := range all {
			if gone := b.isDestroyed(); gone != (i < 2) {
				t.Errorf("sandbox %d is destroyed: %t", i, gone)
			}
		}
		pass(time.Minute)
		if n := w.made(); n != 4 {
			t.Errorf("%d are made again under pressure", n-4)
		}
		w.set(func() { w.available = 2 << 30 })
		pass(20 * time.Second)
		if s := p.Stats(); s.Idle != 4 {
			t.Errorf("after the pressure: %+v", s)
		}
	})
}

// TestCommitted: memory that sandboxes in the making and idle ones can use, as much as their shape has, is not available for another.
func TestCommitted(t *testing.T) {
	run(t, func(w *world, _ *pool.Options) { w.available = (512 + 64 + 310) * mib }, func(t *testing.T, w *world, p *pool.Pool) {
		other := shop()
		other.Template = "sha256:2"
		miss(t, p, shop(), pool.NoPool)
		miss(t, p, other, pool.NoPool)
		pass(time.Second)
		miss(t, p, other, pool.NoMemory)
		pass(10 * time.Second)
		miss(t, p, other, pool.NoMemory)
		if s := p.Stats(); s.Idle != 1 {
			t.Errorf("%+v", s)
		}
		w.set(func() { w.available += 256 * mib })
		pass(10 * time.Second)
		if s := p.Stats(); s.Idle != 2 || w.most != 1 {
			t.Errorf("%+v, %d were made concurrently", s, w.most)
		}
	})
}

// TestBackOff: a maker that fails is called again after longer and longer delays, one call at a time; then all is as before.
func TestBackOff(t *testing.T) {
	run(t, func(w *world, _ *pool.Options) { w.broken, w.takes = errors.New("no template"), 0 }, func(t *testing.T, w *world, p *pool.Pool) {
		miss(t, p, shop(), pool.NoPool)
		for range 600 {
			arrivals(t, p, shop(), time.Second, 1)
		}
		for i := 3; i < len(w.attempts); i++ {
			// 1 s, doubled up to 1 min, with a jitter of a half; the pool decides once per second
			least := min(30*time.Second, time.Second/2<<(i-1))
			if gap := w.attempts[i].Sub(w.attempts[i-1]); gap < least || gap > 91*time.Second {
				t.Errorf("attempt %d is %s after the one before, want at least %s", i, gap, least)
			}
		}
		if n := len(w.attempts); n < 10 || n > 25 {
			t.Errorf("%d attempts", n)
		}
		miss(t, p, shop(), pool.Failing)
		w.set(func() { w.broken = nil })
		pass(2 * time.Minute)
		w.set(func() { w.takes = time.Second })
		get(t, p, shop())
		for range 3 {
			go p.Acquire(t.Context(), shop(), "", pool.Wait(time.Minute))
		}
		synctest.Wait()
		if s := p.Stats(); s.Making != 2 {
			t.Errorf("after the fault %d are made concurrently", s.Making)
		}
		pass(10 * time.Second)
		get(t, p, shop())
	})
}

// TestMakeTime: a Make that hangs ends at its limit, and counts as a failure.
func TestMakeTime(t *testing.T) {
	run(t, func(w *world, _ *pool.Options) { w.takes = time.Hour }, func(t *testing.T, w *world, p *pool.Pool) {
		miss(t, p, shop(), pool.NoPool)
		pass(2*time.Minute + time.Millisecond)
		if w.counted("fail") != 1 {
			t.Errorf("%v", w.counts)
		}
	})
}

// TestDestroyFails: Destroy is called until it succeeds. Sandboxes that cannot be destroyed stop the making of others.
func TestDestroyFails(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, p *pool.Pool) {
		broken := errors.New("busy")
		warm(t, p, shop())
		w.set(func() { w.frail = func(b *box) { b.undying = broken } })
		pass(16 * time.Minute)
		for range 20 {
			if l, err := p.Acquire(t.Context(), shop(), "", pool.Wait(10*time.Second)); err == nil {
				short, cancel := context.WithTimeout(t.Context(), time.Second)
				if err := l.Release(short); err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				cancel()
			}
			pass(10 * time.Second)
		}
		if s := p.Stats(); s.Stuck != s.Ending || s.Stuck < 2 || s.Stuck > 5 {
			t.Errorf("%+v", s)
		}
		stuck := w.alive()
		w.set(func() {
			w.frail = nil
			for _, b := range stuck {
				if b.undying = nil; b.tries < 2 && b.tries > 0 {
					t.Errorf("only %d attempts to destroy", b.tries)
				}
			}
		})
		pass(2 * time.Minute)
		if s := p.Stats(); s.Stuck != 0 || s.Idle == 0 {
			t.Errorf("after the fault: %+v", s)
		}
	})
}

// TestClose: Close waits for leases and for what is being made; at the end of its context it ends them.
func TestClose(t *testing.T) {
	for _, force := range []bool{false, true} {
		t.Run(fmt.Sprint("force ", force), func(t *testing.T) {
			run(t, nil, func(t *testing.T, w *world, p *pool.Pool) {
				warm(t, p, shop())
				l := get(t, p, shop())
				pass(time.Second) // another is being made
				refused := make(chan error, 1)
				go func() {
					_, err := p.Acquire(t.Context(), shop(), "", pool.Wait(time.Minute))
					refused <- err
				}()
				synctest.Wait()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				closed := make(chan error, 1)
				go func() { closed <- p.Close(ctx) }()
				var empty *pool.EmptyError
				if err := <-refused; !errors.As(err, &empty) || empty.Reason != pool.Closed {
					t.Errorf("the caller that waits gets %v", err)
				}
				for range 100 {
					pass(10 * time.Second)
					if err := l.Renew(); err != nil {
						t.Fatal(err)
					}
				}
				if len(closed) > 0 || len(w.alive()) != 1 {
					t.Errorf("Close returned: %v, %d sandboxes", len(closed) > 0, len(w.alive()))
				}
				if force {
					cancel()
				} else if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
				if err := <-closed; err != nil {
					t.Error(err)
				}
				<-l.Done()
			})
		})
	}
}

// TestCloseNames: Close does not wait forever for a sandbox that cannot be destroyed, and reports it.
func TestCloseNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.frail = func(b *box) { b.undying = errors.New("device busy") }
		p, err := pool.New(t.Context(), w.options())
		if err != nil {
			t.Fatal(err)
		}
		warm(t, p, shop())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if err := p.Close(ctx); err == nil || !strings.Contains(err.Error(), "device busy") || !strings.Contains(err.Error(), "shop") {
			t.Errorf("Close: %v", err)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("it took %s", took)
		}
	})
}

// TestSettle: when a lease begins, and during the check before it, the pool waits before it makes the next sandbox, also if none is left. It
// makes it soon, also if leases keep beginning, and immediately when the lease has ended or a caller gets none.
func TestSettle(t *testing.T) {
	run(t, func(w *world, opt *pool.Options) {
		opt.Settle, opt.MaxIdle = 300*time.Millisecond, func(string) int { return 2 }
		w.frail = func(b *box) { b.slow = 10 * time.Millisecond } // keep runs during the check
	}, func(t *testing.T, w *world, p *pool.Pool) {
		arrivals(t, p, shop(), time.Second, 100)
		pass(10 * time.Second)
		get(t, p, shop())
		pass(200 * time.Millisecond)
		if s := p.Stats(); s.Idle != 1 || s.Making != 0 {
			t.Errorf("before the lease has settled: %+v", s)
		}
		pass(100 * time.Millisecond)
		if s := p.Stats(); s.Making != 1 {
			t.Errorf("after that: %+v", s)
		}
		pass(10 * time.Second)
		get(t, p, shop())
		pass(50 * time.Millisecond)
		get(t, p, shop())
		pass(50 * time.Millisecond)
		if s := p.Stats(); s.Idle != 0 || s.Making != 0 {
			t.Errorf("without an idle one: %+v", s)
		}
		miss(t, p, shop(), pool.NoneWarm)
		pass(0)
		if s := p.Stats(); s.Making == 0 {
			t.Errorf("when a caller got none: %+v", s)
		}
		pass(10 * time.Second)
		l := get(t, p, shop())
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		pass(0)
		if s := p.Stats(); s.Making != 1 {
			t.Errorf("after the end of the only new lease: %+v", s)
		}
	})
}
