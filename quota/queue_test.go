package quota_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/custody-project/custody/quota"
)

// small is a sandbox of one CPU and 1 GiB, of the project web of the tenant acme.
func small() quota.Request {
	return quota.Request{Tenant: "acme", Project: "web", CPUs: 1, Memory: gib}
}

// begin returns a queue of a host with 8 CPUs and 64 GiB.
func begin(t *testing.T, c quota.Config) *quota.Queue {
	t.Helper()
	if c.Host == (quota.Host{}) {
		c.Host = quota.Host{CPUs: 8, Memory: 64 * gib}
	}
	q, err := quota.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.Close)
	return q
}

func acquire(t *testing.T, q *quota.Queue, r quota.Request) *quota.Lease {
	t.Helper()
	l, err := q.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// wantError checks an error, but for its times and its position.
func wantError(t *testing.T, err error, want quota.Error) *quota.Error {
	t.Helper()
	var got *quota.Error
	if !errors.As(err, &got) {
		t.Fatalf("the error is %v, want an *Error", err)
	}
	if got.Quota != want.Quota || got.Scope != want.Scope || got.Limit != want.Limit || got.InUse != want.InUse || got.Want != want.Want ||
		want.Err != nil && !errors.Is(err, want.Err) || want.Err == nil && got.Err != nil {
		t.Fatalf("the error is %+v, want %+v", *got, want)
	}
	return got
}

// TestFull: no more starts wait than the bounds of the queue allow, and the tenant with the most loses the places that others need.
func TestFull(t *testing.T) {
	q := begin(t, quota.Config{Host: quota.Host{CPUs: 1, Memory: gib}, Queue: quota.Bounds{Size: 4, PerTenant: 3}})
	l := acquire(t, q, small())
	enter := func(tenant string) (*quota.Place, error) {
		r := small()
		r.Tenant = tenant
		return q.Enter(t.Context(), r)
	}
	var places []*quota.Place
	for i := range 3 {
		p, err := enter("acme")
		if err != nil || p.Position() != i+1 {
			t.Fatal(p.Position(), err)
		}
		places = append(places, p)
	}
	_, err := enter("acme")
	if got := wantError(t, err, quota.Error{Quota: quota.Waiting, Scope: quota.OfTenant, Limit: 3, InUse: 3, Want: 1}); got.Position != 4 || got.Retry.IsZero() {
		t.Errorf("%+v", got)
	}
	for range 2 {
		if _, err := enter("beta"); err != nil {
			t.Fatal(err)
		}
	}
	_, err = places[2].Wait(t.Context()) // it had the last place of the longest queue
	if got := wantError(t, err, quota.Error{Quota: quota.Waiting, Scope: quota.OfHost}); got.Position != 3 {
		t.Errorf("%+v", got)
	}
	_, err = enter("beta") // both have two now
	wantError(t, err, quota.Error{Quota: quota.Waiting, Scope: quota.OfHost})
	if s := q.Snapshot(); s.Host.Waiting != 4 || len(s.Tenants) != 2 || s.Tenants[0].Waiting != 2 || s.Tenants[1].Waiting != 2 {
		t.Errorf("%+v", s)
	}
	l.Release()
	acquired := q.Snapshot().Tenants // beta has had no start yet
	if places[0].Position() != 1 || places[1].Position() != 2 || acquired[1].Sandboxes != 1 || acquired[1].Waiting != 1 {
		t.Errorf("places %d and %d after a grant, %+v", places[0].Position(), places[1].Position(), acquired[1])
	}
}

// TestGiveUp: a start whose caller has gone gives up its place, or the room that it was given.
func TestGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := begin(t, quota.Config{Host: quota.Host{CPUs: 1, Memory: gib}})
		l := acquire(t, q, small())
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("the caller has gone")
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				_, err := q.Acquire(ctx, small())
				wantError(t, err, quota.Error{Quota: quota.CPUs, Scope: quota.OfHost, Err: gone})
			})
		}
		synctest.Wait()
		p, err := q.Enter(t.Context(), small())
		if err != nil || p.Position() != 4 {
			t.Fatal(p.Position(), err)
		}
		cancel(gone)
		all.Wait()
		if p.Position() != 1 {
			t.Errorf("position %d, want 1", p.Position())
		}
		l.Release()
		l.Release()
		if s := q.Snapshot(); s.Host.Sandboxes != 1 || s.Host.Waiting != 0 {
			t.Fatalf("%+v", s.Host)
		}
		for range 2 {
			if _, err := p.Wait(ctx); !errors.Is(err, gone) {
				t.Errorf("granted, but the caller has gone: %v", err)
			}
		}
		if s := q.Snapshot(); s.Host.Sandboxes != 0 {
			t.Errorf("%+v", s.Host)
		}
		if _, err := q.Enter(ctx, small()); !errors.Is(err, gone) {
			t.Error(err)
		}
		limited, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		acquire(t, q, small())
		_, err = q.Acquire(limited, small())
		wantError(t, err, quota.Error{Quota: quota.CPUs, Scope: quota.OfHost, Err: context.DeadlineExceeded})
		began := time.Now()
		_, err = q.Acquire(t.Context(), small())
		wantError(t, err, quota.Error{Quota: quota.CPUs, Scope: quota.OfHost, Err: quota.ErrLate})
		if waited := time.Since(began); waited != 2*time.Minute {
			t.Errorf("it was refused after %v", waited)
		}
	})
}

// TestOverQuotaDoesNotBlock: starts that wait for a limit of their project or tenant do not delay others, in whatever order they came.
func TestOverQuotaDoesNotBlock(t *testing.T) {
	q := begin(t, quota.Config{Tenant: quota.Limits{Sandboxes: 3}, Project: quota.Limits{Sandboxes: 1}})
	enter := func(tenant, project string) *quota.Place {
		r := small()
		r.Tenant, r.Project = tenant, project
		p, err := q.Enter(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, c := range []struct {
		tenant, project string
		position        int
	}{
		{"acme", "a", 0}, {"acme", "a", 1}, {"acme", "b", 0}, {"acme", "b", 2}, {"acme", "c", 0}, {"acme", "d", 3}, {"beta", "a", 0}, {"beta", "b", 0}, {"beta", "b", 1},
	} {
		if p := enter(c.tenant, c.project); p.Position() != c.position {
			t.Errorf("%+v has place %d", c, p.Position())
		}
	}
	s := q.Snapshot()
	if acme := s.Tenants[0]; acme.Lacks != quota.Sandboxes || acme.Of != quota.OfTenant || acme.Projects[0].Of != quota.OfProject || acme.Projects[3].Of != quota.OfTenant || acme.Waiting != 3 {
		t.Errorf("%+v", acme)
	}
	if s.Host.Sandboxes != 5 || s.Host.Waiting != 4 || s.Host.Lacks != "" {
		t.Errorf("%+v", s.Host)
	}
}

// TestClose: starts that wait are refused, and leases can still be released.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := begin(t, quota.Config{Host: quota.Host{CPUs: 1, Memory: gib}, Tenant: quota.Limits{StartsPerMinute: 1}})
		l := acquire(t, q, small())
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				if _, err := q.Acquire(t.Context(), small()); !errors.Is(err, quota.ErrClosed) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		q.Close()
		all.Wait()
		l.Release()
		if _, err := q.Acquire(t.Context(), small()); !errors.Is(err, quota.ErrClosed) {
			t.Error(err)
		}
		if s := q.Snapshot(); s.Host.Sandboxes != 0 || s.Host.Waiting != 0 {
			t.Errorf("%+v", s.Host)
		}
	})
}

// TestRates: a lease has the lower rate of tenant and project.
func TestRates(t *testing.T) {
	q := begin(t, quota.Config{Tenant: quota.Limits{DiskRate: 5, NetworkRate: 7}, Project: quota.Limits{DiskRate: 6}})
	if disk, network := acquire(t, q, small()).Rates(); disk != 5 || network != 7 {
		t.Errorf("%d, %d", disk, network)
	}
}

// TestForgotten: tenants and projects that use nothing are removed, those that have used tokens at the end of the day.
func TestForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := begin(t, quota.Config{Tenant: quota.Limits{StartsPerMinute: 10}})
		names := func() (list []string) {
			acquire(t, q, quota.Request{Tenant: "now", CPUs: 1, Memory: 1}).Release()
			for _, t := range q.Snapshot().Tenants {
				list = append(list, t.Tenant)
			}
			return list
		}
		l := acquire(t, q, small())
		for _, tenant := range []string{"beta", "gamma"} {
			r := small()
			r.Tenant = tenant
			b := acquire(t, q, r)
			if tenant == "gamma" {
				b.Charge(5)
			}
			b.Release()
		}
		time.Sleep(2 * time.Minute)
		if got := strings.Join(names(), " "); got != "acme gamma now" {
			t.Errorf("%s", got)
		}
		l.Release()
		time.Sleep(24 * time.Hour)
		if got := strings.Join(names(), " "); got != "now" {
			t.Errorf("%s", got)
		}
	})
}

// TestManyProjects: a tenant cannot have projects without end.
func TestManyProjects(t *testing.T) {
	q := begin(t, quota.Config{Host: quota.Host{CPUs: 5000, Memory: 5000 * gib}, Queue: quota.Bounds{Wait: time.Millisecond}})
	var err error
	n := 0
	for ; err == nil && n < 5000; n++ {
		r := small()
		r.Project = strings.Repeat("x", n)
		_, err = q.Acquire(t.Context(), r)
	}
	wantError(t, err, quota.Error{Quota: quota.Waiting, Scope: quota.OfTenant, Limit: 1024, InUse: 1024, Want: 1})
	r := small()
	r.Project = "x" // one that it has
	acquire(t, q, r)
	r.Tenant, r.Project = "beta", "y"
	acquire(t, q, r)
}
