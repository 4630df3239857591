package quota_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/custody-project/custody/quota"
)

// TestOracle compares the queue with the oracle, over random starts, ends, charges and callers that give up.
func TestOracle(t *testing.T) {
	granted, refused := 0, 0
	for seed := range uint64(24) {
		synctest.Test(t, func(t *testing.T) {
			g, r := compare(t, rand.New(rand.NewPCG(seed, 7)), 400)
			granted, refused = granted+g, refused+r
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if granted < 1000 || refused < 300 {
		t.Errorf("%d grants and %d refusals: too few to compare", granted, refused)
	}
}

// randomLimits returns limits of which each is set with a probability of one half. A start of a bucket takes whole seconds.
func randomLimits(r *rand.Rand) (l quota.Limits) {
	for _, f := range []func(){
		func() { l.Sandboxes = 1 + r.Int64N(5) }, func() { l.CPUs = 3 + r.Int64N(8) }, func() { l.Memory = (4 + r.Int64N(20)) * gib },
		func() { l.StartsPerMinute = []int64{2, 5, 6, 12, 20, 30}[r.IntN(6)] }, func() { l.TokensPerDay = 1 + r.Int64N(5000) },
	} {
		if r.IntN(2) == 0 {
			f()
		}
	}
	return l
}

func randomConfig(r *rand.Rand) quota.Config {
	c := quota.Config{
		Host:  quota.Host{CPUs: 4 + r.Int64N(12), Memory: (8 + r.Int64N(40)) * gib, Sandboxes: r.Int64N(10)},
		Queue: quota.Bounds{Size: 4 + r.IntN(12), PerTenant: 3 + r.IntN(5), Wait: 24 * time.Hour},
		// With fewer limits some tenants compete for the host only.
		Tenants: map[string]quota.Entry{"a": {}, "b": {}},
	}
	if r.IntN(2) == 0 {
		c.Tenant, c.Project = randomLimits(r), randomLimits(r)
		c.Tenants["b"] = quota.Entry{Limits: randomLimits(r), Projects: map[string]quota.Limits{"x": randomLimits(r)}}
	}
	return c
}

func compare(t *testing.T, r *rand.Rand, steps int) (granted, refused int) {
	o := &oracle{config: randomConfig(r), debts: map[owner]debt{}, entries: map[owner]int{}}
	q := begin(t, o.config)
	defer q.Close()
	time.Sleep(24*time.Hour - 4*time.Minute) // about half of the steps are on the next day
	for range steps {
		switch n := r.IntN(12); {
		case n < 5:
			w := &wish{Request: quota.Request{Tenant: names()[r.IntN(4)], Project: []string{"x", "y", "z"}[r.IntN(3)], CPUs: 1 + r.Int64N(4), Memory: (1 + r.Int64N(8)) * gib}}
			p, err := q.Enter(t.Context(), w.Request)
			w.place = p
			lost := o.enter(w)
			if (lost == w) != (err != nil) {
				t.Fatalf("%+v: %v, the oracle refuses %+v", w, err, lost)
			}
			if lost != nil {
				lost.dropped = true
				refused++
			}
		case n < 6:
			if w := pick(r, o.starts, "waits"); w != nil {
				giveUp(t, o, w)
				refused++
			}
		case n < 8:
			if w := pick(r, o.starts, "runs"); w != nil {
				w.lease.Release()
				o.end(w, "ended")
			}
		case n < 9:
			c := charge{owner{names()[r.IntN(4)], []string{"x", "y", "z"}[r.IntN(3)]}, time.Now().UTC().Format(time.DateOnly), r.Int64N(500)}
			_ = q.Charge(c.tenant, c.project, c.tokens) // TestTokens has the errors
			o.charges = append(o.charges, c)
			o.settle()
		default:
			pass(o, 1+r.IntN(10))
		}
		check(t, q, o)
		if t.Failed() {
			t.FailNow()
		}
	}
	return len(o.granted), refused
}

// pass lets seconds pass.
func pass(o *oracle, seconds int) {
	for range seconds {
		time.Sleep(time.Second)
		synctest.Wait() // alarms of this second
		o.settle()
	}
}

func pick(r *rand.Rand, list []*wish, state string) *wish {
	var some []*wish
	for _, w := range list {
		if w.state == state {
			some = append(some, w)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return some[r.IntN(len(some))]
}

// giveUp ends the waiting of a start.
func giveUp(t *testing.T, o *oracle, w *wish) {
	scope, lack := o.why(w)
	position := w.place.Position()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := w.place.Wait(ctx)
	var e *quota.Error
	if !errors.As(err, &e) || e.Scope != scope || e.Quota != lack || e.Position != position || !errors.Is(err, context.Canceled) || e.Retry.IsZero() {
		t.Errorf("it waited because of %+v, want %s of the %s, place %d", e, lack, scope, position)
	}
	o.end(w, "refused")
}

// check compares the state of each start, and what is in use.
func check(t *testing.T, q *quota.Queue, o *oracle) {
	var use quota.Use
	for _, w := range o.starts {
		if w.place == nil { // it was refused immediately
			continue
		}
		want := 0
		switch w.state {
		case "waits":
			want = slices.Index(o.waiting(owner{w.Tenant, "*"}), w) + 1
			use.Waiting++
		case "runs":
			use.Sandboxes, use.CPUs, use.Memory = use.Sandboxes+1, use.CPUs+w.CPUs, use.Memory+w.Memory
		}
		if got := w.place.Position(); got != want {
			lease, err := w.place.Wait(t.Context())
			t.Fatalf("%+v %s has place %d, want %d: %+v, %v; %+v", w.Request, w.state, got, want, lease, err, o.config)
		}
		if w.state == "runs" && w.lease == nil || w.dropped && w.place != nil {
			var err error
			w.lease, err = w.place.Wait(t.Context())
			if (err != nil) != w.dropped {
				t.Fatalf("%+v: %v", w.Request, err)
			}
		}
	}
	o.starts = slices.DeleteFunc(o.starts, func(w *wish) bool { return w.state == "refused" || w.state == "ended" })
	got := q.Snapshot().Host
	if got.Sandboxes != use.Sandboxes || got.CPUs != use.CPUs || got.Memory != use.Memory || got.Waiting != use.Waiting {
		t.Fatalf("in use: %+v, want %+v", got, use)
	}
}
