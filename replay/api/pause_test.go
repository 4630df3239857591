package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/custody-project/custody/client"
	"github.com/custody-project/custody/fleet"
	"github.com/custody-project/custody/quota"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/replay/api"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/state"
)

// restingRunner has the stored state of each run, and refuses to continue from it.
type restingRunner struct {
	idleRunner
	because atomic.Pointer[error]
}

func (*restingRunner) Stored(context.Context, string, string) (run.Saved, error) {
	return run.Saved{Size: 4711, Expires: time.Now().Add(time.Hour)}, nil
}

func (r *restingRunner) Run(ctx context.Context, id string, q fleet.Request, a fleet.Allowance, from *run.Resume, serve func(context.Context, *run.Live)) (run.Result, error) {
	if from != nil {
		return run.Result{}, fmt.Errorf("start from the stored state: %w", *r.because.Load())
	}
	return r.idleRunner.Run(ctx, id, q, a, from, serve)
}

// TestStateProblems: the reason why a paused sandbox does not continue reaches the client as a problem of its own, with a hint. The sandbox stays paused,
// unless its state is gone.
func TestStateProblems(t *testing.T) {
	t.Parallel()
	cases := []struct {
		err    error
		status int
		name   string
	}{
		{state.ErrClaimed, 409, "state-in-use"}, {state.ErrAltered, 409, "state-altered"}, {state.ErrNoKey, 409, "state-key"}, {state.ErrBudget, 507, "state-budget"},
		{&state.BoundError{Run: "r-1", What: state.BoundTemplate}, 409, "state-bound"},
		{state.ErrExpired, 410, "state-expired"}, {state.ErrNotFound, 410, "state-missing"},
	}
	dir, r := t.TempDir(), new(restingRunner)
	id := func(i int) string { return fmt.Sprintf("r-paused%d", i) }
	for i := range cases {
		text, err := json.Marshal(map[string]any{
			"ID": id(i), "Created": time.Now(), "Latest": time.Now().Add(time.Hour), "Runs": []string{id(i)}, "Request": map[string]any{"Tenant": "acme"},
			"Terms": map[string]any{"Template": "base", "CPUs": 1, "Memory": 1 << 20, "Time": time.Hour}, "Rested": map[string]any{"Run": id(i), "At": time.Now(), "Left": time.Hour},
		})
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, id(i)+".json"), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	f, end, err := fleet.Open(quota.Config{Host: quota.Host{CPUs: 8, Memory: 8 << 30, Sandboxes: 20}}, fleet.Config{Runner: r, Paused: dir, Problem: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	w := newWorld(t, func(_ *world, o *api.Options) {
		o.Tenant, o.Sandboxes, o.Serves = "acme", f, func(tenant string) bool { return tenant == "acme" }
	})
	operator := w.token("acme", access.Operator)
	for i, c := range cases {
		at := "/sandboxes/" + id(i)
		r.because.Store(&c.err)
		var s client.Sandbox
		w.do("POST", at+"/pause", operator, "{}").json(t, &s)
		if s.State != "paused" || s.Paused == nil || s.StoredBytes != 4711 || len(s.Runs) != 1 {
			t.Errorf("%s: a repeated pause answers %+v", c.name, s)
		}
		for _, path := range []string{"/pause", "/resume", "/fork"} {
			w.do("POST", at+path, w.token("acme", access.Auditor), `{"count":1}`).problem(t, 403)
		}
		for _, wrong := range []string{`{"count":0}`, `{"count":65}`, `{}`, `{"count":1,"metadata":{"":"x"}}`} {
			w.do("POST", at+"/fork", operator, wrong).problem(t, 400)
		}
		w.do("POST", at+"/fork", w.token("other", access.Operator), `{"count":1}`).problem(t, 403)
		p := w.do("POST", at+"/resume", operator, "{}").problem(t, c.status)
		if !strings.HasSuffix(p.Type, ":"+c.name) || p.Hint == "" || !strings.Contains(p.Detail, c.err.Error()) {
			t.Errorf("%s: %+v", c.name, p)
		}
		if c.status == 410 {
			continue
		}
		if w.get(at, operator).json(t, &s); s.State != "paused" {
			t.Errorf("%s: afterwards the sandbox is %s", c.name, s.State)
		}
		p = w.do("POST", at+"/fork", operator, `{"count":2}`).problem(t, c.status)
		if !strings.HasSuffix(p.Type, ":"+c.name) {
			t.Errorf("%s: a fork answers %+v", c.name, p)
		}
	}
}
