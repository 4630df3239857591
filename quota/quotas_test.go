package quota_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/custody-project/custody/quota"
)

// TestQuotas: each limit of a tenant and of a project, and each of the host, is hit by a start, and not hit by one less.
func TestQuotas(t *testing.T) {
	two := small()
	two.CPUs, two.Memory = 2, 2*gib
	for _, c := range []struct {
		name   string
		limits quota.Limits
		start  quota.Request // is started twice
		want   quota.Error   // of a third time
		retry  time.Duration // after which it is granted; 0: after a release
	}{
		{"sandboxes", quota.Limits{Sandboxes: 2}, two, quota.Error{Quota: quota.Sandboxes, Limit: 2, InUse: 2, Want: 1}, 0},
		{"CPUs", quota.Limits{CPUs: 5}, two, quota.Error{Quota: quota.CPUs, Limit: 5, InUse: 4, Want: 2}, 0},
		{"memory", quota.Limits{Memory: 5 * gib}, two, quota.Error{Quota: quota.Memory, Limit: 5 * gib, InUse: 4 * gib, Want: 2 * gib}, 0},
		{"starts per minute", quota.Limits{StartsPerMinute: 2}, two, quota.Error{Quota: quota.Starts, Limit: 2, InUse: 2, Want: 1}, 30 * time.Second},
	} {
		for scope, config := range map[quota.Scope]quota.Config{quota.OfTenant: {Tenant: c.limits}, quota.OfProject: {Project: c.limits}} {
			t.Run(c.name+" of "+string(scope), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { hit(t, config, scope, c.start, c.want, c.retry) })
			})
		}
	}
	for _, c := range []struct {
		quota quota.Quota
		host  quota.Host
	}{
		{quota.Sandboxes, quota.Host{CPUs: 8, Memory: 8 * gib, Sandboxes: 2}},
		{quota.CPUs, quota.Host{CPUs: 5, Memory: 8 * gib}},
		{quota.Memory, quota.Host{CPUs: 8, Memory: 5 * gib}},
	} {
		t.Run(string(c.quota)+" of the host", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hit(t, quota.Config{Host: c.host}, quota.OfHost, two, quota.Error{Quota: c.quota}, 0)
			})
		})
	}
}

// hit starts two sandboxes, which the limits allow. A third one does not get its turn within a second.
func hit(t *testing.T, config quota.Config, scope quota.Scope, r quota.Request, want quota.Error, retry time.Duration) {
	q := begin(t, config)
	began := time.Now()
	l := acquire(t, q, r)
	acquire(t, q, r)
	if waited := time.Since(began); waited != 0 {
		t.Fatalf("two starts waited %v", waited)
	}
	want.Scope, want.Err = scope, quota.ErrLate
	r.Wait = time.Second
	_, err := q.Acquire(t.Context(), r)
	got := wantError(t, err, want)
	if got.Position != 1 || !got.Retry.After(time.Now()) || got.Tenant != "acme" || got.Project != "web" {
		t.Errorf("%+v", got)
	}
	if waited := time.Since(began); retry == 0 && waited != time.Second || retry > 0 && waited != 0 {
		t.Errorf("it was refused after %v", waited)
	}
	if retry > 0 && !got.Retry.Equal(began.Add(retry)) {
		t.Errorf("try again at %v, want %v", got.Retry, retry)
	}
	r.Wait = 0
	if retry == 0 {
		time.AfterFunc(10*time.Second, l.Release)
		retry = 11 * time.Second
	}
	other := small() // is not affected
	other.Tenant, other.Project = "beta", "other"
	if scope != quota.OfHost {
		acquire(t, q, other).Release()
	}
	acquire(t, q, r)
	if waited := time.Since(began); waited != retry {
		t.Errorf("it was granted after %v, want %v", waited, retry)
	}
}

// TestTokens: starts are refused when the LLM tokens of the day are used up, until the day ends.
func TestTokens(t *testing.T) {
	for scope, config := range map[quota.Scope]quota.Config{
		quota.OfTenant:  {Tenant: quota.Limits{TokensPerDay: 100}},
		quota.OfProject: {Project: quota.Limits{TokensPerDay: 100}},
	} {
		t.Run(string(scope), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := begin(t, config)
				l := acquire(t, q, small())
				if err := l.Charge(99); err != nil {
					t.Fatal(err)
				}
				acquire(t, q, small()).Release()
				want := quota.Error{Quota: quota.Tokens, Scope: scope, Limit: 100, InUse: 101}
				wantError(t, l.Charge(2), want)
				wantError(t, l.Charge(0), want)
				if err := l.Charge(-1); err == nil {
					t.Error("a negative charge was accepted")
				}
				l.Release()
				_, err := q.Acquire(t.Context(), small())
				want.Want, want.Err = 1, quota.ErrLate
				got := wantError(t, err, want)
				if y, m, d := time.Now().UTC().Date(); !got.Retry.Equal(time.Date(y, m, d+1, 0, 0, 0, 0, time.UTC)) {
					t.Errorf("try again at %v", got.Retry)
				}
				time.Sleep(time.Until(got.Retry) - time.Minute)
				acquire(t, q, small())
				if !time.Now().Equal(got.Retry) {
					t.Errorf("it was granted at %v, want %v", time.Now(), got.Retry)
				}
				if err := q.Charge("acme", "web", 1); err != nil {
					t.Errorf("the next day: %v", err)
				}
			})
		})
	}
}

// TestTooLarge: a start that exceeds a limit by itself is refused immediately.
func TestTooLarge(t *testing.T) {
	q := begin(t, quota.Config{Tenant: quota.Limits{CPUs: 6}, Project: quota.Limits{Memory: 4 * gib}})
	for _, c := range []struct {
		cpus, memory int64
		want         quota.Error
		text         string
	}{
		{6, 4 * gib, quota.Error{}, ""},
		{7, gib, quota.Error{Quota: quota.CPUs, Scope: quota.OfTenant, Limit: 6, Want: 7}, `the start needs 7 of cpus, and the limit of the tenant "acme" is 6: ask for less`},
		{1, 5 * gib, quota.Error{Quota: quota.Memory, Scope: quota.OfProject, Limit: 4 * gib, Want: 5 * gib}, `the limit of the project "web" of the tenant "acme" is 4GiB: ask for less`},
		{9, gib, quota.Error{Quota: quota.CPUs, Scope: quota.OfHost}, "the start needs more cpus than this host has: ask for less"},
		{1, 65 * gib, quota.Error{Quota: quota.Memory, Scope: quota.OfHost}, "more memory than this host has"},
	} {
		r := small()
		r.CPUs, r.Memory = c.cpus, c.memory
		l, err := q.Acquire(t.Context(), r)
		if c.text == "" {
			if err != nil {
				t.Fatal(err)
			}
			l.Release()
			continue
		}
		if got := wantError(t, err, c.want); !got.Retry.IsZero() || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v, want %s", err, c.text)
		}
	}
	for _, r := range []quota.Request{{CPUs: 0, Memory: 1}, {CPUs: 1, Memory: 0}, {CPUs: -1, Memory: 1}, {CPUs: 1, Memory: 1, Wait: -1}} {
		if _, err := q.Acquire(t.Context(), r); err == nil {
			t.Errorf("%+v was granted", r)
		}
	}
}
