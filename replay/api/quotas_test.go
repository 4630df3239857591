package api_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/client"
	"github.com/custody-project/custody/fleet"
	"github.com/custody-project/custody/quota"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/replay/api"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/state"
)

// idleRunner carries out runs without a VM.
type idleRunner struct{}

func (idleRunner) Check(context.Context, fleet.Request) (fleet.Terms, error) {
	return fleet.Terms{Project: "web", Template: "base", CPUs: 1, Memory: 1 << 30, Time: time.Hour}, nil
}

func (idleRunner) Run(ctx context.Context, _ string, _ fleet.Request, _ fleet.Allowance, _ *run.Resume, serve func(context.Context, *run.Live)) (run.Result, error) {
	serve(ctx, nil)
	return run.Result{}, nil
}

func (idleRunner) Parent(context.Context, string) (audit.Parent, error) { return audit.Parent{}, nil }

func (idleRunner) Stored(context.Context, string, string) (run.Saved, error) {
	return run.Saved{}, state.ErrNotFound
}

func (idleRunner) Discard(context.Context, string, string) error { return nil }

// TestQuotas: a tenant gets its own numbers and its own starts that wait; an admin of the host's tenant gets those of all.
func TestQuotas(t *testing.T) {
	t.Parallel()
	size := quota.Host{CPUs: 8, Memory: 8 << 30, Sandboxes: 2}
	f, end, err := fleet.Open(quota.Config{Host: size, Tenant: quota.Limits{Sandboxes: 1, DiskRate: 1 << 20}}, fleet.Config{Runner: idleRunner{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	w := newWorld(t, func(_ *world, o *api.Options) {
		o.Tenant, o.Sandboxes, o.Serves = "acme", f, func(tenant string) bool { return slices.Contains([]string{"acme", "beta", "gamma"}, tenant) }
	})
	operator := map[string]string{}
	for _, tenant := range []string{"acme", "beta"} {
		operator[tenant] = w.token(tenant, access.Operator)
		for range 2 {
			var s client.Sandbox
			w.do("POST", "/sandboxes", operator[tenant], `{"metadata":{"<b>":"<script>"}}`).json(t, &s)
		}
	}
	ask := func(token string) (q api.Quotas) {
		t.Helper()
		w.get("/quotas", token).json(t, &q)
		return q
	}
	for _, c := range []struct {
		token  string
		all    bool
		tenant string
		queued int
	}{
		{w.token("acme", access.Viewer), false, "acme", 1}, {operator["beta"], false, "beta", 1}, {w.token("beta", access.Admin), false, "beta", 1},
		{w.token("gamma", access.Admin), false, "gamma", 0}, {w.token("acme", access.Admin), true, "acme", 2},
	} {
		q := ask(c.token)
		first := q.Tenants[0]
		if first.Tenant != c.tenant || (len(q.Host) > 0) != c.all || (len(q.Tenants) == 1) == c.all || len(q.Queue) != c.queued {
			t.Errorf("an answer for %s: %+v", c.tenant, q)
		}
		for _, s := range q.Queue {
			if own := s.Tenant == c.tenant; s.Position != 1 || s.Quota != "sandboxes" || s.Queued.IsZero() || !own && !c.all || own == (s.ID == "") {
				t.Errorf("for %s: %+v", c.tenant, s)
			}
		}
		sandboxes, disk := first.Quotas[0], first.Quotas[len(first.Quotas)-1]
		if sandboxes.Quota != "sandboxes" || *sandboxes.Used != int64(c.queued/max(1, c.queued)) || *sandboxes.Limit != 1 || disk.Quota != "disk_rate" || disk.Used != nil || *disk.Limit != 1<<20 {
			t.Errorf("for %s: %+v", c.tenant, first.Quotas)
		}
	}
	var list struct{ Sandboxes []client.Sandbox }
	w.get("/sandboxes", w.token("acme", access.Viewer)).json(t, &list)
	if len(list.Sandboxes) != 2 || list.Sandboxes[0].Latest.Sub(list.Sandboxes[0].Created) != time.Hour || list.Sandboxes[1].Queued == nil || list.Sandboxes[1].IdleUntil != nil {
		t.Errorf("%+v", list.Sandboxes)
	}
	w.do("DELETE", "/sandboxes/"+list.Sandboxes[0].ID, w.token("acme", access.Viewer), "").problem(t, 403)
	w.do("POST", "/sandboxes/"+list.Sandboxes[0].ID+"/extend", w.token("acme", access.Viewer), `{"seconds":1}`).problem(t, 403)
}

// TestAccessesAbout: the access log can be narrowed to what was asked about one run.
func TestAccessesAbout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.whole("r-one", 10)
	w.whole("r-two", 10)
	token := w.token("", access.Auditor)
	for _, path := range []string{"/runs/r-one", "/runs/r-two", "/runs/r-one/state"} {
		w.get(path, token)
	}
	var page struct{ Access []api.AccessEvent }
	for deadline := time.Now().Add(time.Minute); len(page.Access) < 2; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%+v", page)
		}
		w.get("/access?about=r-one", token).json(t, &page)
	}
	for _, e := range page.Access {
		if string(e.About) != "r-one" {
			t.Errorf("%+v", e)
		}
	}
}
