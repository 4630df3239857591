package main

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/custody-project/custody/client"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/replay/api"
	"github.com/custody-project/custody/store"
)

// served by the host in these tests: acme, which it belongs to, and beta, which alone has the project shop.
const sharedHost = `tenant: acme
serve: {rate: {per_second: 1000, burst: 1000}}
quotas: {tenants: {beta: {projects: {shop: {}}}}}
`

// tenants is a host that two tenants share. gamma is a third one, which it does not serve.
type tenants struct {
	*separated
	callers map[string]map[access.Role]caller
}

func newTenants(t *testing.T) *tenants {
	t.Helper()
	root := newGVisorDoor(t)
	path := filepath.Join(root.home, "host.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	root.write(path, string(text)+sharedHost)
	h := &tenants{separate(root), map[string]map[access.Role]caller{}}
	for _, name := range []string{"shop", "own"} {
		root.write(filepath.Join(root.dir, name+".yaml"), "version: 1\nproject: "+name+"\nsteps: [{name: s, run: 'true'}]\n")
		h.root.must(0, "project", "apply", filepath.Join(root.dir, name+".yaml"))
	}
	for _, tenant := range []string{"acme", "beta", "gamma"} {
		h.callers[tenant] = map[access.Role]caller{}
		for _, role := range access.Roles() {
			token := h.admin.must(0, "token", "new", tenant+"-"+string(role), "--tenant", tenant, "--role", string(role)).stdout
			h.callers[tenant][role] = caller{t, h.page(), strings.TrimSpace(token)}
		}
	}
	return h
}

// TestSandboxesOfTenants: tenants that share a host do not see each other's sandboxes, processes, sessions, keys and projects, and the record
// and the access log have whose each is.
func TestSandboxesOfTenants(t *testing.T) {
	h := newTenants(t)
	ids := map[string]string{}
	for tenant, project := range map[string]string{"acme": "own", "beta": "shop"} {
		c := h.callers[tenant][access.Operator]
		var s client.Sandbox
		create := client.SandboxRequest{Project: project, Session: "one"}
		c.ask(http.StatusCreated, "POST", "/sandboxes", create, &s, "Idempotency-Key", "k")
		ids[tenant] = s.ID
		c.ask(http.StatusCreated, "POST", "/sandboxes/"+s.ID+"/processes", client.ProcessRequest{Argv: []string{"cat"}, Stdin: true}, nil)
	}

	t.Run("projects", func(t *testing.T) {
		for tenant, theirs := range map[string]string{"acme": "shop", "beta": "own"} {
			c := h.callers[tenant][access.Operator]
			status, other := c.do("POST", "/sandboxes", client.SandboxRequest{Project: theirs})
			_, none := c.do("POST", "/sandboxes", client.SandboxRequest{Project: "none"})
			if status != http.StatusBadRequest || string(other) != strings.ReplaceAll(string(none), "none", theirs) {
				t.Errorf("%s asks for %s: %d %s; for none: %s", tenant, theirs, status, other, none)
			}
		}
	})
	t.Run("quotas", func(t *testing.T) {
		for tenant, theirs := range map[string][]string{"acme": {"acme", "beta"}, "beta": {"beta"}} { // the host is acme's
			for _, role := range access.Roles() {
				var q api.Quotas
				h.callers[tenant][role].ask(http.StatusOK, "GET", "/quotas", nil, &q)
				var names []string
				for _, use := range q.Tenants {
					names = append(names, use.Tenant)
				}
				want := theirs
				if role != access.Admin {
					want = theirs[:1]
				}
				if !slices.Equal(names, want) {
					t.Errorf("%s of %s sees the quotas of %v, want %v", role, tenant, names, want)
				}
			}
		}
	})
	t.Run("routes", func(t *testing.T) {
		for name, route := range api.Routes() {
			if ofSandboxes(name) && name != "DELETE /api/v1/sandboxes/{run}" {
				h.checkRoute(t, name, route.Rule.Role, ids)
			}
		}
		h.checkRoute(t, "DELETE /api/v1/sandboxes/{run}", access.Operator, ids) // ends the sandboxes
	})
	h.stop()
	t.Run("records", func(t *testing.T) {
		admin := *h.admin
		admin.T = t
		runs := admin.runs()
		for tenant, id := range ids {
			i := slices.IndexFunc(runs, func(r store.Run) bool { return r.ID == id })
			if i < 0 || runs[i].Tenant != tenant {
				t.Errorf("%s is not a run of %s: %+v", id, tenant, runs)
			}
			admin.verified(id)
			if first := admin.records(id)[0]; first.Lifecycle.Tenant != tenant {
				t.Errorf("the record of %s begins with %+v", id, first.Lifecycle)
			}
		}
		seen := map[string]bool{}
		for _, a := range admin.looks() {
			seen[a.Tenant+" "+a.Route] = true
		}
		for name := range api.Routes() {
			for _, tenant := range []string{"acme", "beta", "gamma"} {
				if ofSandboxes(name) && !seen[tenant+" "+name] {
					t.Errorf("the access log has no %s by %s", name, tenant)
				}
			}
		}
	})
}

// ofSandboxes reports whether a route is about the sandboxes of a tenant.
func ofSandboxes(route string) bool {
	return strings.Contains(route, api.Base+"/sandboxes") || strings.Contains(route, api.Base+"/quotas")
}

// checkRoute calls a route as each role of each tenant.
func (h *tenants) checkRoute(t *testing.T, name string, least access.Role, ids map[string]string) {
	method, pattern, _ := strings.Cut(name, " "+api.Base)
	call := func(c caller, id, process string) (int, string) {
		path := strings.NewReplacer("{run}", id, "{process}", process).Replace(pattern)
		status, text := c.do(method, path, bodies()[name])
		return status, strings.ReplaceAll(string(text), id, "ID")
	}
	const unknown = "r-20260101t000000z-0000000000000000"
	for _, role := range access.Roles() {
		for tenant, other := range map[string]string{"acme": "beta", "beta": "acme"} {
			c := h.callers[tenant][role]
			status, text := call(c, ids[tenant], "p1")
			if role.May(least) == (status == http.StatusForbidden) {
				t.Errorf("%s by %s of %s: %d %s", name, role, tenant, status, text)
			}
			if role != access.Operator || !strings.Contains(pattern, "{run}") {
				continue
			}
			theirs, text := call(c, ids[other], "p1")
			none, want := call(c, unknown, "p1")
			if theirs != none || text != want || theirs < 400 {
				t.Errorf("%s by %s of %s: for %s's sandbox %d %s, for an unknown one %d %s", name, role, tenant, other, theirs, text, none, want)
			}
		}
	}
	if status, text := call(h.callers["gamma"][access.Operator], ids["acme"], "p1"); status != http.StatusForbidden {
		t.Errorf("%s by gamma: %d %s", name, status, text)
	}
}

// bodies are requests that have their effect once or do no harm.
func bodies() map[string]any {
	return map[string]any{
		"POST /api/v1/sandboxes":                                  client.SandboxRequest{Session: "one", Lazy: true},
		"POST /api/v1/sandboxes/{run}/extend":                     client.ExtendRequest{Seconds: 600},
		"POST /api/v1/sandboxes/{run}/processes":                  client.ProcessRequest{Argv: []string{"true"}},
		"POST /api/v1/sandboxes/{run}/processes/{process}/input":  "x",
		"POST /api/v1/sandboxes/{run}/processes/{process}/signal": client.SignalRequest{Signal: "SIGCONT"},
		"POST /api/v1/sandboxes/{run}/processes/{process}/resize": client.TerminalState{Rows: 1, Cols: 1},
	}
}
