package fleet_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/fleet"
	"github.com/custody-project/custody/quota"
	"github.com/custody-project/custody/run"
)

const gib = 1 << 30

// modelled carries out runs without a VM. Each takes a second to start.
type modelled struct {
	life       func() time.Duration // of a sandbox that is not destroyed; nil: unlimited
	allowances chan fleet.Allowance
	idle       time.Duration // limits.idle of the project; 0: none
}

// Check implements fleet.Runner.
func (m *modelled) Check(_ context.Context, r fleet.Request) (fleet.Terms, error) {
	return fleet.Terms{Project: cmp.Or(r.Project, "web"), Template: "base", CPUs: 1, Memory: gib, Time: 24 * time.Hour, Idle: m.idle}, nil
}

// Run implements fleet.Runner.
func (m *modelled) Parent(context.Context, string) (audit.Parent, error) { return audit.Parent{}, nil }

func (m *modelled) Stored(context.Context, string, string) (run.Saved, error) {
	return run.Saved{}, nil
}

func (m *modelled) Discard(context.Context, string, string) error { return nil }

func (m *modelled) Run(ctx context.Context, _ string, _ fleet.Request, a fleet.Allowance, _ *run.Resume, serve func(context.Context, *run.Live)) (run.Result, error) {
	if m.allowances != nil {
		m.allowances <- a
	}
	if m.life != nil {
		c, cancel := context.WithTimeout(ctx, m.life())
		defer cancel()
		ctx = c
	}
	serve(ctx, nil)
	return run.Result{}, nil
}

// openModel opens a fleet of modelled sandboxes, in a bubble of synctest.
func openModel(t *testing.T, m *modelled, q quota.Config, tokens string) (f *fleet.Fleet, end func()) {
	t.Helper()
	q.Host = quota.Host{CPUs: cmp.Or(q.Host.CPUs, 64), Memory: cmp.Or(q.Host.Memory, 64*gib)}
	f, end, err := fleet.Open(q, fleet.Config{Runner: m, Idle: 12 * time.Hour, Keep: time.Nanosecond, Tokens: tokens, Problem: func(err error) { t.Error(err) }})
	check(t, err)
	return f, end
}

// create creates a sandbox that is live, or waits.
func create(t *testing.T, f *fleet.Fleet, tenant string) *fleet.Sandbox {
	t.Helper()
	s, _, err := f.Create(t.Context(), fleet.Request{Tenant: tenant})
	check(t, err)
	synctest.Wait()
	return s
}

// TestQuotas: each quota of a tenant and of a project lets two sandboxes live, and a third one waits, says for what, and lives later.
func TestQuotas(t *testing.T) {
	for _, c := range []struct {
		quota quota.Quota
		limit quota.Limits
	}{
		{quota.Sandboxes, quota.Limits{Sandboxes: 2}}, {quota.CPUs, quota.Limits{CPUs: 2}}, {quota.Memory, quota.Limits{Memory: 2 * gib}},
		{quota.Starts, quota.Limits{StartsPerMinute: 2}},
	} {
		for scope, config := range map[quota.Scope]quota.Config{quota.OfTenant: {Tenant: c.limit}, quota.OfProject: {Project: c.limit}} {
			t.Run(fmt.Sprintf("%s of a %s", c.quota, scope), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f, end := openModel(t, &modelled{}, config, "")
					defer end()
					first, second, third := create(t, f, "acme"), create(t, f, "acme"), create(t, f, "acme")
					other := create(t, f, "beta")
					for _, s := range []*fleet.Sandbox{first, second, other} {
						if i := s.Info(); i.State != fleet.Live {
							t.Errorf("a sandbox within the quotas is %+v", i)
						}
					}
					i := third.Info()
					if i.State != fleet.Queued || i.Quota != c.quota || i.Position != 1 || !i.Expected.After(time.Now()) {
						t.Errorf("a sandbox over quota is %+v", i)
					}
					if c.quota == quota.Starts {
						time.Sleep(time.Until(i.Expected))
					} else {
						check(t, first.Destroy(t.Context()))
					}
					synctest.Wait()
					if i := third.Info(); i.State != fleet.Live || i.Quota != "" || i.Position != 0 {
						t.Errorf("after the end of another one it is %+v", i)
					}
				})
			})
		}
	}
}

// TestRefused: a start that waits too long, or for which the queue has no place, is refused with quota, position and time of retry.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, end := openModel(t, &modelled{}, quota.Config{Tenant: quota.Limits{Sandboxes: 1}, Queue: quota.Bounds{PerTenant: 1, Wait: time.Minute}}, "")
		defer end()
		create(t, f, "acme")
		waits := create(t, f, "acme")
		refused := func(err error, want quota.Quota, position int) {
			t.Helper()
			over := new(quota.Error)
			if !errors.As(err, &over) || over.Quota != want || over.Position != position || !over.Retry.After(time.Now()) {
				t.Errorf("refused with %+v", err)
			}
		}
		_, _, err := f.Create(t.Context(), fleet.Request{Tenant: "acme", Idempotency: "k"})
		refused(err, quota.Waiting, 2)
		refused(waits.Ready(t.Context()), quota.Sandboxes, 1)
		if n := len(f.List("acme")); n > 2 {
			t.Errorf("%d sandboxes are left", n)
		}
	})
}

// TestIdleTime: a sandbox that does nothing ends after the time of its request, at most that of its project, which is also the default.
func TestIdleTime(t *testing.T) {
	for name, c := range map[string]struct{ project, request, want time.Duration }{
		"neither":      {0, 0, 12 * time.Hour}, // of the fleet
		"request":      {0, time.Hour, time.Hour},
		"project":      {10 * time.Minute, 0, 10 * time.Minute},
		"less of it":   {10 * time.Minute, time.Minute, time.Minute},
		"more than it": {10 * time.Minute, time.Hour, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, end := openModel(t, &modelled{idle: c.project}, quota.Config{}, "")
				defer end()
				s, _, err := f.Create(t.Context(), fleet.Request{Tenant: "acme", Idle: c.request, Lazy: true})
				check(t, err)
				time.Sleep(c.want - time.Second)
				if i := s.Info(); i.State != fleet.Promised {
					t.Errorf("before its time: %+v", i)
				}
				time.Sleep(2 * time.Second)
				if i := s.Info(); i.State != fleet.Ended {
					t.Errorf("after its time: %+v", i)
				}
			})
		})
	}
}

// TestRates: a sandbox gets the lower rates of its tenant and its project, or none.
func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &modelled{allowances: make(chan fleet.Allowance, 2)}
		f, end := openModel(t, m, quota.Config{
			Tenants: map[string]quota.Entry{"acme": {Limits: quota.Limits{DiskRate: 1 << 20}, Projects: map[string]quota.Limits{"web": {DiskRate: 2 << 20, NetworkRate: 3 << 20}}}},
		}, "")
		defer end()
		create(t, f, "acme")
		if a := <-m.allowances; a.DiskRate != 1<<20 || a.NetworkRate != 3<<20 {
			t.Errorf("acme has %+v", a)
		}
		create(t, f, "beta")
		if a := <-m.allowances; a.DiskRate != 0 || a.NetworkRate != 0 {
			t.Errorf("beta has %+v", a)
		}
	})
}

// TestTokens: LLM tokens of sandboxes count for their tenant, until the day ends and also after a restart, and deny calls and starts.
func TestTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	synctest.Test(t, func(t *testing.T) {
		m := &modelled{allowances: make(chan fleet.Allowance, 3)}
		limits := quota.Config{Tenant: quota.Limits{TokensPerDay: 1000}}
		f, end := openModel(t, m, limits, path)
		create(t, f, "acme")
		create(t, f, "acme")
		a, b := <-m.allowances, <-m.allowances
		if why, _ := a.Charge(999); why != "" {
			t.Errorf("within the quota: %s", why)
		}
		if why, until := b.Charge(1); why == "" || !until.After(time.Now()) {
			t.Errorf("the tokens of both are used up: %q, %v", why, until)
		}
		if why, _ := a.Charge(0); why == "" {
			t.Error("the other sandbox can go on")
		}
		create(t, f, "beta")
		if why, _ := (<-m.allowances).Charge(10); why != "" {
			t.Errorf("another tenant: %s", why)
		}
		for range 2 { // before and after a restart
			_, _, err := f.Create(t.Context(), fleet.Request{Tenant: "acme"})
			over := new(quota.Error)
			if !errors.As(err, &over) || over.Quota != quota.Tokens || over.Limit != 1000 || over.InUse != 1000 || over.Retry.Unix()%86400 != 0 {
				t.Errorf("a start without tokens: %v", err)
			}
			end()
			f, end = openModel(t, m, limits, path)
		}
		time.Sleep(24 * time.Hour)
		if i := create(t, f, "acme").Info(); i.State != fleet.Live {
			t.Errorf("on the next day it is %+v", i)
		}
		end()
	})
}

// TestThousandQueued: with 1,000 sandboxes queued by one tenant, the 99th percentile of another one's waits grows by at most one start.
func TestThousandQueued(t *testing.T) {
	const longest = 3 * time.Second
	p99 := func(queued int) (wait time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex // guards n
			n := 0
			life := func() time.Duration {
				mu.Lock()
				defer mu.Unlock()
				n++
				return time.Second + time.Duration(n%5)*500*time.Millisecond
			}
			f, end := openModel(t, &modelled{life: life}, quota.Config{Host: quota.Host{CPUs: 4, Memory: 64 * gib}, Queue: quota.Bounds{Wait: time.Hour}}, "")
			defer end()
			for range queued {
				_, _, err := f.Create(t.Context(), fleet.Request{Tenant: "busy"})
				check(t, err)
			}
			var waits []time.Duration
			for range 100 {
				began := time.Now()
				s := create(t, f, "calm")
				check(t, s.Ready(t.Context()))
				waits = append(waits, time.Since(began))
				check(t, s.Destroy(t.Context()))
			}
			slices.Sort(waits)
			wait = waits[98]
		})
		return wait
	}
	if alone, beside := p99(0), p99(1000); beside-alone > longest || beside == 0 {
		t.Errorf("the 99th percentile is %v with 1,000 queued starts of another tenant, and %v without", beside, alone)
	}
}

// counted is a Meter.
type counted struct {
	mu      sync.Mutex // guards the fields below
	waits   int
	refused []string
	saved   time.Duration
}

func (c *counted) Wait(time.Duration)   { c.mu.Lock(); c.waits++; c.mu.Unlock() }
func (c *counted) Refuse(q string)      { c.mu.Lock(); c.refused = append(c.refused, q); c.mu.Unlock() }
func (c *counted) Save(d time.Duration) { c.mu.Lock(); c.saved += d; c.mu.Unlock() }

// TestStats: what tenants use, what was refused, and the time that promised sandboxes had no VM are counted.
func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counted{}
		f, end, err := fleet.Open(quota.Config{Host: quota.Host{CPUs: 8, Memory: 8 * gib}, Tenant: quota.Limits{CPUs: 1}, Queue: quota.Bounds{PerTenant: 1}},
			fleet.Config{Runner: &modelled{}, Idle: time.Hour, Meter: c})
		check(t, err)
		defer end()
		lazy, _, err := f.Create(t.Context(), fleet.Request{Tenant: "acme", Lazy: true})
		check(t, err)
		time.Sleep(time.Minute)
		check(t, lazy.Ready(t.Context()))
		create(t, f, "acme")
		_, _, err = f.Create(t.Context(), fleet.Request{Tenant: "acme"})
		if err == nil {
			t.Error("a second start waits")
		}
		if c.waits != 1 || len(c.refused) != 1 || c.refused[0] != string(quota.Waiting) || c.saved != time.Minute {
			t.Errorf("%d waits, %v refused, %v saved", c.waits, c.refused, c.saved)
		}
		s := f.Stats()
		if len(s) != 1 || s[0].States[fleet.Live] != 1 || s[0].States[fleet.Queued] != 1 || s[0].Use.CPUs != 1 || s[0].Use.Waiting != 1 || s[0].Limits.CPUs != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// TestInfo: a sandbox tells until when it can be idle, and since when it waits.
func TestInfo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, end := openModel(t, &modelled{}, quota.Config{Tenant: quota.Limits{Sandboxes: 1}}, "")
		defer end()
		used, waits := create(t, f, "acme"), create(t, f, "acme")
		began := time.Now()
		free := func(i fleet.Info) bool { return i.Idle.Equal(time.Now().Add(12 * time.Hour)) }
		if i := used.Info(); !free(i) || !i.Waits.IsZero() || !i.Latest.Equal(began.Add(24*time.Hour)) {
			t.Errorf("%+v", i)
		}
		done := used.Call()
		time.Sleep(time.Minute)
		if i := used.Info(); !i.Idle.IsZero() {
			t.Errorf("while it is used: %+v", i)
		}
		done()
		if i := used.Info(); !free(i) {
			t.Errorf("after a call: %+v", i)
		}
		if i := waits.Info(); !i.Idle.IsZero() || !i.Waits.Equal(began) {
			t.Errorf("%+v", i)
		}
		create(t, f, "beta")
		next := create(t, f, "beta")
		for n, want := range [][]string{nil, {waits.ID}, {waits.ID, next.ID}, {waits.ID, next.ID}} {
			var got []string
			for _, i := range f.Waiting(n, func(string) bool { return true }) {
				got = append(got, i.ID)
			}
			if !slices.Equal(got, want) {
				t.Errorf("the first %d that wait are %v, want %v", n, got, want)
			}
		}
		if list := f.Waiting(9, func(tenant string) bool { return tenant == "beta" }); len(list) != 1 || list[0].Tenant != "beta" {
			t.Errorf("%+v", list)
		}
	})
}
