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

// TestUsedOnce: the pool learns a key from the first call, then it has a sandbox, which is destroyed after its use.
func TestUsedOnce(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, p *pool.Pool) {
		warm(t, p, shop())
		seen := map[pool.Sandbox]bool{}
		for range 5 {
			l := get(t, p, shop())
			if b := l.Sandbox().(*box); seen[b] || b.key != shop() {
				t.Errorf("used before: %t; its key is %+v", seen[b], b.key)
			}
			seen[l.Sandbox()] = true
			if err := errors.Join(l.Release(t.Context()), l.Release(t.Context())); err != nil {
				t.Error(err)
			}
			if !l.Sandbox().(*box).isDestroyed() {
				t.Error("Release returns before the sandbox is destroyed")
			}
			if err := l.Renew(); err != pool.ErrEnded {
				t.Errorf("Renew after Release: %v", err)
			}
			<-l.Done()
			pass(10 * time.Second)
		}
		if w.counted("hit") != 5 || w.counted("miss no_pool") != 1 || w.counted("destroy used") != 5 {
			t.Errorf("%v", w.counts)
		}
	})
}

// TestReasons: a call without a sandbox gets the reason, with and without waiting.
func TestReasons(t *testing.T) {
	lend := func(t *testing.T, w *world, p *pool.Pool) {
		for p.Stats().Idle > 0 {
			get(t, p, shop())
		}
	}
	for _, c := range []struct {
		name    string
		options func(*world, *pool.Options)
		prepare func(*testing.T, *world, *pool.Pool)
		reason  pool.Reason
		waits   pool.Reason // with Wait; "" if that succeeds
	}{
		{"in use", nil, lend, pool.NoneWarm, ""},
		{"slow maker", nil, func(t *testing.T, w *world, p *pool.Pool) {
			w.set(func() { w.takes = 100 * time.Second })
			lend(t, w, p)
		}, pool.NoneWarm, pool.NoneWarm},
		{"no pool for the project", func(_ *world, opt *pool.Options) {
			opt.MaxIdle = func(project string) int { return 0 }
		}, nil, pool.NoPool, pool.NoPool},
		{"memory", nil, func(t *testing.T, w *world, p *pool.Pool) {
			w.set(func() { w.available = 520 * mib })
			pass(time.Second)
			lend(t, w, p)
		}, pool.NoMemory, pool.NoMemory},
		{"unknown memory", nil, func(t *testing.T, w *world, p *pool.Pool) {
			w.set(func() { w.blind = errors.New("no /proc") })
			lend(t, w, p)
		}, pool.NoMemory, pool.NoMemory},
		{"failing", nil, func(t *testing.T, w *world, p *pool.Pool) {
			w.set(func() { w.broken = errors.New("no template") })
			lend(t, w, p)
			pass(30 * time.Second)
			for range 1000 { // between two attempts
				if p.Stats().Making == 0 {
					break
				}
				pass(100 * time.Millisecond)
			}
		}, pool.Failing, pool.Failing},
		{"too many wait", func(_ *world, opt *pool.Options) { opt.MaxWaiting = 1 }, func(t *testing.T, w *world, p *pool.Pool) {
			w.set(func() { w.takes = 100 * time.Second })
			lend(t, w, p)
			go p.Acquire(t.Context(), shop(), "first", pool.Wait(time.Minute))
			synctest.Wait()
		}, pool.NoneWarm, pool.QueueFull},
		{"closed", nil, func(t *testing.T, w *world, p *pool.Pool) {
			if err := p.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}, pool.Closed, pool.Closed},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, c.options, func(t *testing.T, w *world, p *pool.Pool) {
				warm(t, p, shop())
				if c.prepare != nil {
					c.prepare(t, w, p)
				}
				synctest.Wait()
				began := time.Now()
				miss(t, p, shop(), c.reason)
				if waited := time.Since(began); waited != 0 {
					t.Errorf("it waited %s without Wait", waited)
				}
				if c.waits == "" {
					get(t, p, shop(), pool.Wait(20*time.Second))
				} else {
					miss(t, p, shop(), c.waits, pool.Wait(20*time.Second))
				}
			})
		})
	}
}

// TestTooManyKeys: the number of keys is bounded; a key without demand makes room.
func TestTooManyKeys(t *testing.T) {
	run(t, func(_ *world, opt *pool.Options) { opt.MaxKeys = 1 }, func(t *testing.T, w *world, p *pool.Pool) {
		other := shop()
		other.Project = "other"
		warm(t, p, shop())
		warm(t, p, other)
		miss(t, p, other, pool.NoPool, pool.Wait(time.Minute))
		pass(20 * time.Minute)
		if s := p.Stats(); s.Keys != 0 || s.Idle != 0 {
			t.Errorf("after a time without demand: %+v", s)
		}
		warm(t, p, other)
		get(t, p, other)
		miss(t, p, shop(), pool.NoPool)
	})
}

// TestDead: callers do not notice dead and unhealthy sandboxes: they get another, or the reason why there is none.
func TestDead(t *testing.T) {
	const count = 5
	many := func(_ *world, opt *pool.Options) { opt.MaxIdle = func(string) int { return count } }
	fill := func(t *testing.T, p *pool.Pool) {
		warm(t, p, shop())
		for range 500 { // a great demand
			if l, err := p.Acquire(t.Context(), shop(), ""); err == nil {
				l.Release(t.Context())
			}
		}
		pass(10 * time.Second)
	}
	for _, c := range []struct {
		name  string
		hurt  func(*box)
		cause string
	}{
		{"dead", func(b *box) { // without a health check that hangs
			close(b.dead)
			b.slow = 300 * time.Millisecond
			b.sick = errors.New("no answer")
		}, "died"},
		{"unhealthy", func(b *box) { b.sick = errors.New("no answer") }, "unhealthy"},
		{"hangs", func(b *box) { b.slow = time.Hour }, "unhealthy"},
		{"dies during the check", func(b *box) {
			b.slow = 500 * time.Millisecond
			time.AfterFunc(100*time.Millisecond, b.die)
		}, "died"},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, many, func(t *testing.T, w *world, p *pool.Pool) {
				fill(t, p)
				all := w.alive()
				if len(all) != count {
					t.Fatalf("%d are warm", len(all))
				}
				w.set(func() { w.takes = time.Hour }) // no other is made
				before := w.counted("destroy " + c.cause)
				for _, b := range all[:len(all)-1] {
					w.set(func() { c.hurt(b) })
				}
				began := time.Now()
				l := get(t, p, shop())
				if waited := time.Since(began); c.name == "dead" && waited != 0 {
					t.Errorf("dead sandboxes are checked for %s", waited)
				}
				if l.Sandbox() != pool.Sandbox(all[len(all)-1]) {
					t.Error("a hurt sandbox was leased")
				}
				synctest.Wait()
				if n := w.counted("destroy "+c.cause) - before; n != len(all)-1 {
					t.Errorf("%d of %d were destroyed as %s: %v", n, len(all)-1, c.cause, w.counts)
				}
				miss(t, p, shop(), pool.NoneWarm)
			})
		})
	}
}

// TestIdleDies: an idle sandbox that dies is replaced before anyone asks for it.
func TestIdleDies(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, p *pool.Pool) {
		warm(t, p, shop())
		b := w.alive()[0]
		b.die()
		synctest.Wait()
		if !b.isDestroyed() {
			t.Error("a dead sandbox is not removed")
		}
		pass(10 * time.Second)
		get(t, p, shop())
	})
}

// TestLease: heartbeats keep a lease, also of a sandbox that has died; without them it ends after its TTL.
func TestLease(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, p *pool.Pool) {
		warm(t, p, shop())
		pass(17 * time.Second)
		l := get(t, p, shop())
		b := l.Sandbox().(*box)
		for i := range 20 {
			pass(29 * time.Second)
			if err := l.Renew(); err != nil {
				t.Fatal(err)
			}
			if i == 10 {
				b.die()
			}
		}
		last := time.Now()
		pass(29 * time.Second)
		select {
		case <-l.Done():
			t.Error("the lease has ended early")
		default:
		}
		<-l.Done()
		synctest.Wait()
		if after := b.destroyed.Sub(last); after != 30*time.Second {
			t.Errorf("destroyed after %s", after)
		}
		if err := l.Renew(); err != pool.ErrEnded {
			t.Errorf("Renew: %v", err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("Release: %v", err)
		}
		if w.counted("destroy expired") != 1 {
			t.Errorf("%v", w.counts)
		}
	})
}

// TestWait: callers that wait are served in their order, and may wait for more than the pool may keep idle.
func TestWait(t *testing.T) {
	run(t, func(_ *world, opt *pool.Options) { opt.Concurrent = 1 }, func(t *testing.T, w *world, p *pool.Pool) {
		const callers = 9
		order := make(chan int, callers)
		for i := range callers {
			go func() {
				get(t, p, shop(), pool.Wait(time.Minute))
				order <- i
			}()
			pass(time.Millisecond)
		}
		if s := p.Stats(); s.Waiting != callers || s.Making != 1 {
			t.Errorf("%+v", s)
		}
		for i := range callers {
			if got := <-order; got != i {
				t.Errorf("caller %d is served as number %d", got, i)
			}
		}
		if w.counted("wait") != callers || w.counted("hit") != callers {
			t.Errorf("%v", w.counts)
		}
	})
}

// TestWaitEnds: a caller that stops waiting loses no sandbox; a check that a caller ends costs one.
func TestWaitEnds(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, p *pool.Pool) {
		for range 30 { // whether the end or the sandbox is first is random
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // as long as Make takes
			l, err := p.Acquire(ctx, shop(), "", pool.Wait(time.Minute))
			if err == nil {
				err = l.Release(t.Context())
			}
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			cancel()
			for p.Stats().Idle > 0 {
				get(t, p, shop()).Release(t.Context())
			}
			pass(0)
			if s := p.Stats(); s.Leased != 0 {
				t.Fatalf("%d sandboxes are lost", s.Leased)
			}
		}
		pass(10 * time.Second)
		before, canceled := p.Stats().Idle, w.counted("destroy canceled")
		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		for _, b := range w.alive() {
			w.set(func() { b.slow = time.Second / 2 })
		}
		for range 3 {
			if _, err := p.Acquire(short, shop(), ""); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}
		synctest.Wait()
		if n := w.counted("destroy canceled") - canceled; before == 0 || n != 1 {
			t.Errorf("%d were idle, %d are lost", before, n)
		}
	})
}

// TestCloseDuringCheck: a sandbox that is being checked when Close begins is not leased.
func TestCloseDuringCheck(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, p *pool.Pool) {
		warm(t, p, shop())
		w.set(func() { w.boxes[0].slow = 500 * time.Millisecond })
		var done sync.WaitGroup
		done.Go(func() { miss(t, p, shop(), pool.Closed) })
		synctest.Wait()
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
		done.Wait()
	})
}

// TestForgottenKey: a key without demand is not forgotten while a caller of it has not got its answer.
func TestForgottenKey(t *testing.T) {
	run(t, func(w *world, opt *pool.Options) {
		opt.Quiet, opt.CheckTime = 3*time.Second, 10*time.Second
		first := true
		w.frail = func(b *box) {
			if first {
				b.slow, b.sick = 8*time.Second, errors.New("no answer")
			}
			first = false
		}
	}, func(t *testing.T, w *world, p *pool.Pool) {
		miss(t, p, shop(), pool.NoPool)
		pass(2500 * time.Millisecond)
		get(t, p, shop(), pool.Wait(time.Minute))
		if w.counted("destroy unhealthy") != 1 || w.counted("destroy unwanted") != 1 {
			t.Errorf("%v", w.counts)
		}
	})
}

// TestOptions: a pool without its parts, or with negative numbers, is refused.
func TestOptions(t *testing.T) {
	w := newWorld(t)
	for _, opt := range []pool.Options{{}, {Maker: w}, {Available: w.Available}, {Maker: w, Available: w.Available, TTL: -1}} {
		if _, err := pool.New(t.Context(), opt); err == nil {
			t.Errorf("accepted: %+v", opt)
		}
	}
}
