package access_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/replay/access"
)

// log keeps access events in memory.
type log struct {
	mu     sync.Mutex // guards the fields below
	events []audit.Access
	fail   error
}

func (l *log) Record(_ context.Context, a audit.Access) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		return l.fail
	}
	l.events = append(l.events, a)
	return nil
}

func (l *log) all() []audit.Access {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]audit.Access(nil), l.events...)
}

func (l *log) last(t *testing.T) audit.Access {
	t.Helper()
	all := l.all()
	if len(all) == 0 {
		t.Fatal("nothing was recorded")
	}
	return all[len(all)-1]
}

func (l *log) failing(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = err
}

// site is a gate with a route for each role.
type site struct {
	*access.Gate
	log  *log
	mux  *http.ServeMux
	host string
}

func newSite(t *testing.T, c access.Config) *site {
	t.Helper()
	return newSiteAt(t, c, t.TempDir())
}

// newSiteAt is newSite with the tokens of a directory.
func newSiteAt(t *testing.T, c access.Config, dir string) *site {
	t.Helper()
	tokens, err := access.OpenTokens(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{log: &log{}, mux: http.NewServeMux(), host: "127.0.0.1:8333"}
	s.Gate, err = access.New(access.Options{Config: c, Tokens: tokens, Tenant: "acme", Recorder: s.log, Warn: func(w string) { t.Log(w) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	s.Mount(s.mux)
	for _, role := range access.Roles() {
		for _, method := range []string{"GET", "POST"} {
			route := method + " /api/v1/" + string(role) + "/{run}"
			s.mux.Handle(route, s.Guard(route, access.Rule{Role: role, Action: "view"}, http.HandlerFunc(show)))
		}
	}
	return s
}

// show prints the client.
func show(w http.ResponseWriter, r *http.Request) {
	p, ok := access.From(r.Context())
	if !ok {
		http.Error(w, "nobody", http.StatusTeapot)
		return
	}
	w.Write([]byte(p.Name + "@" + p.Scope() + " as " + string(p.Role)))
}

func (s *site) token(t *testing.T, name, tenant string, role access.Role) string {
	t.Helper()
	text, err := s.Tokens().New(t.Context(), name, tenant, role, 0)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// request makes one with headers given as "Name: value".
func (s *site) request(method, target string, body string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Host, r.RemoteAddr = s.host, "127.0.0.1:40000"
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		switch name {
		case "Host":
			r.Host = value
		case "From-Address":
			r.RemoteAddr = value
		default:
			r.Header.Add(name, value)
		}
	}
	return r
}

func (s *site) do(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.mux.ServeHTTP(w, r)
	return w
}

func TestRoles(t *testing.T) {
	s := newSite(t, access.Config{})
	for i, have := range access.Roles() {
		text := s.token(t, string(have), "acme", have)
		for j, need := range access.Roles() {
			w := s.do(s.request("GET", "/api/v1/"+string(need)+"/r-1?x=y", "", "Authorization: Bearer "+text))
			e := s.log.last(t)
			want, verdict := http.StatusOK, audit.Allow
			if i < j {
				want, verdict = http.StatusForbidden, audit.Deny
			}
			if w.Code != want || e.Verdict != verdict || e.Who != string(have) || e.Tenant != "acme" || e.Role != string(have) || e.About != "r-1" || e.Query != "x=y" {
				t.Errorf("%s where %s is needed: %d %s, recorded %+v", have, need, w.Code, w.Body, e)
			}
		}
	}
}

// TestTenants: who has access to which tenant, for each form of naming one.
func TestTenants(t *testing.T) {
	s := newSite(t, access.Config{})
	acme := "Authorization: Bearer " + s.token(t, "ann", "acme", access.Admin)
	none := "Authorization: Bearer " + s.token(t, "nan", "", access.Admin)
	for _, c := range []struct {
		who, query string
		headers    []string
		status     int
		reason     string
		asked      string // as recorded
	}{
		{acme, "", nil, 200, "", "acme"},
		{acme, "tenant=acme", nil, 200, "", "acme"},
		{acme, "", []string{"acme"}, 200, "", "acme"},
		{acme, "tenant=acme", []string{"acme"}, 200, "", "acme"},
		{acme, "tenant=%61cme", nil, 200, "", "acme"}, // the same name, encoded

		{acme, "tenant=beta", nil, 403, "tenant", "beta"},
		{acme, "", []string{"beta"}, 403, "tenant", "beta"},
		{acme, "tenant=acme", []string{"beta"}, 400, "tenants", "acme"},
		{acme, "tenant=beta", []string{"acme"}, 400, "tenants", "acme"},
		{acme, "tenant=acme&tenant=beta", nil, 400, "tenants", "acme"},
		{acme, "tenant=acme&tenant=acme", nil, 400, "tenants", "acme"},
		{acme, "", []string{"acme", "beta"}, 400, "tenants", "acme"},
		{acme, "", []string{"acme, beta"}, 403, "tenant", `"acme, beta"`},
		{acme, "tenant=acme;tenant=beta", nil, 400, "query", "acme"},
		{acme, "tenant=%zz", nil, 400, "query", "acme"},
		{acme, "tenant=", nil, 403, "tenant", ""},
		{acme, "tenant", nil, 403, "tenant", ""},
		{acme, "", []string{""}, 403, "tenant", ""},
		{acme, "tenant=(none)", nil, 403, "tenant", `"(none)"`},
		{acme, "tenant=%28none%29", nil, 403, "tenant", `"(none)"`},
		{acme, "", []string{"(none)"}, 403, "tenant", `"(none)"`},
		{acme, "tenant=ACME", nil, 403, "tenant", "ACME"},
		{acme, "tenant=acme%00", nil, 403, "tenant", `"acme\x00"`},
		{acme, "tenant=acme%20", nil, 403, "tenant", `"acme "`},
		{acme, "tenant=acm%C3%A9", nil, 403, "tenant", `"acm\u00e9"`},
		{acme, "tenant=../acme", nil, 403, "tenant", `"../acme"`},
		{acme, "tenant=*", nil, 403, "tenant", `"*"`},
		{acme, "TENANT=beta", nil, 200, "", "acme"}, // another parameter, which names nothing

		{none, "", nil, 200, "", ""},
		{none, "tenant=", nil, 200, "", ""},
		{none, "tenant=(none)", nil, 403, "tenant", `"(none)"`},
		{none, "tenant=acme", nil, 403, "tenant", "acme"},
	} {
		headers := []string{c.who}
		for _, h := range c.headers {
			headers = append(headers, "Custody-Tenant: "+h)
		}
		w := s.do(s.request("GET", "/api/v1/viewer/r-1?"+c.query, "", headers...))
		e := s.log.last(t)
		if w.Code != c.status || e.Tenant != c.asked || e.Reason != c.reason || (e.Verdict == audit.Allow) != (c.status == 200) || e.Who == "" {
			t.Errorf("?%s %q: %d %s recorded %+v; want %d %q about %q", c.query, c.headers, w.Code, w.Body, e, c.status, c.reason, c.asked)
		}
		if c.status == 200 && !strings.Contains(w.Body.String(), "@"+(access.Principal{Tenant: c.asked}).Scope()+" ") {
			t.Errorf("?%s: answered %s", c.query, w.Body)
		}
	}
	// The answer does not disclose whether a tenant exists.
	s.token(t, "bob", "beta", access.Viewer)
	there, not := s.do(s.request("GET", "/api/v1/viewer/r-1?tenant=beta", "", acme)), s.do(s.request("GET", "/api/v1/viewer/r-1?tenant=nowhere", "", acme))
	if there.Body.String() != not.Body.String() {
		t.Errorf("a tenant that exists: %s; one that does not: %s", there.Body, not.Body)
	}
}

func TestHosts(t *testing.T) {
	loop := newSite(t, access.Config{})
	named := newSite(t, access.Config{Listen: "0.0.0.0:8443", Names: []string{"custody.example.com", "fd00::1"}, Cert: "c", Key: "k"})
	one := newSite(t, access.Config{Listen: "192.0.2.7:8443", Cert: "c", Key: "k"})
	for i, c := range []struct {
		site *site
		host string
		ok   bool
	}{
		{loop, "127.0.0.1:8333", true}, {loop, "localhost:8333", true}, {loop, "LOCALHOST", true}, {loop, "[::1]:8333", true}, {loop, "[0:0:0:0:0:0:0:1]", true},
		{loop, "evil.example:8333", false}, {loop, "127.0.0.1.evil.example", false}, {loop, "localhost.evil.example", false}, {loop, "", false},
		{loop, "127.0.0.1:8333@evil.example", false}, {loop, "127.1", false}, {loop, "0x7f.1", false}, {loop, "2130706433", false}, {loop, "0.0.0.0", false},
		{loop, "localhost.", false}, {loop, "localhost:", false}, {loop, "localhost:80:80", false}, {loop, "localhost/", false}, {loop, "local host", false},
		{loop, "[::1", false}, {loop, "[::1]x", false}, {loop, "[::1%25lo]", false}, {loop, "[127.0.0.1]", false}, {loop, "::1", false}, {loop, "[::ffff:127.0.0.1]:8333", false},
		{loop, strings.Repeat("a", 70_000), false},
		{named, "custody.example.com", true}, {named, "Custody.Example.com:443", true}, {named, "[fd00::1]:8443", true}, {named, "[FD00:0::1]:8443", true},
		{named, "localhost:8443", false}, {named, "127.0.0.1:8443", false}, {named, "0.0.0.0:8443", false}, {named, "example.com", false}, {named, "x.custody.example.com", false},
		{one, "192.0.2.7:8443", true}, {one, "192.0.2.8:8443", false}, {one, "localhost", false},
	} {
		auth := "Authorization: Bearer " + c.site.token(t, fmt.Sprint("host ", i), "acme", access.Viewer)
		w := c.site.do(c.site.request("GET", "/api/v1/viewer/r-1", "", auth, "Host: "+c.host))
		e := c.site.log.last(t)
		want := http.StatusMisdirectedRequest
		if c.ok {
			want = http.StatusOK
		}
		if w.Code != want || !c.ok && (e.Verdict != audit.Deny || e.Reason != "host") {
			t.Errorf("%.80q: %d, recorded %+v", c.host, w.Code, e)
		}
		if w := c.site.do(c.site.request("POST", "/api/v1/session", "{}", "Host: "+c.host)); (w.Code == http.StatusMisdirectedRequest) == c.ok {
			t.Errorf("login at %.80q: %d", c.host, w.Code)
		}
	}
}

// TestRecorderFails: what cannot be recorded is not shown.
func TestRecorderFails(t *testing.T) {
	s := newSite(t, access.Config{})
	text := s.token(t, "ann", "acme", access.Viewer)
	once, _ := s.Once()
	shown := false
	s.mux.Handle("GET /x", s.Guard("GET /x", access.Rule{Role: access.Viewer, Action: "view"}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { shown = true })))
	s.log.failing(errors.New("disk full"))
	if w := s.do(s.request("GET", "/x", "", "Authorization: Bearer "+text)); w.Code != 503 || shown {
		t.Errorf("without a record: %d, shown %v", w.Code, shown)
	}
	for _, token := range []string{text, once} {
		if w := s.login(token); w.Code != 503 || len(w.Result().Cookies()) != 0 {
			t.Errorf("a login without a record: %d with %v", w.Code, w.Result().Cookies())
		}
	}
	// A refusal stays one, and is recorded when that is possible again.
	if w := s.do(s.request("GET", "/x", "", "Authorization: Bearer cst_nonsense")); w.Code != 401 {
		t.Errorf("a refusal without a record: %d", w.Code)
	}
	s.log.failing(nil)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if e := s.log.last(t); e.Reason != "credential" || e.Count != 1 || e.Status != 401 {
		t.Errorf("recorded %+v", e)
	}
}

// TestFlood: a flood of refusals writes few events, and all of them are counted.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, access.Config{})
		sent := map[string]uint64{}
		rng := rand.New(rand.NewPCG(1, 2))
		flood := func(n int) {
			for range n {
				from := fmt.Sprintf("192.0.2.%d", rng.IntN(40))
				if rng.IntN(2) == 0 {
					from = "198.51.100.1"
				}
				r := s.request("GET", fmt.Sprintf("/api/v1/viewer/r-%d?tenant=t%d", rng.IntN(9), rng.IntN(5000)), "", "From-Address: "+from+":1", fmt.Sprintf("Host: host%d", rng.IntN(3)))
				if rng.IntN(3) == 0 {
					r = s.request("GET", "/api/v1/viewer/r?tenant=x"+fmt.Sprint(rng.Int()), "", "From-Address: "+from+":1")
				}
				w := s.do(r)
				sent[fmt.Sprint(w.Code)]++
			}
		}
		flood(3000)
		if n := len(s.log.all()); n > 300 {
			t.Errorf("%d events were written at once", n)
		}
		of := map[string]int{}
		for _, e := range s.log.all() {
			of[e.Remote]++
		}
		if of["198.51.100.1"] != 30 {
			t.Errorf("%d events of one address", of["198.51.100.1"])
		}
		time.Sleep(62 * time.Second)
		if n := len(s.log.all()); n > 300+600 {
			t.Errorf("%d events in the first minute", n)
		}
		s.log.failing(errors.New("away"))
		flood(1000)
		time.Sleep(62 * time.Second)
		s.log.failing(nil)
		flood(1000)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		got := map[string]uint64{}
		for _, e := range s.log.all() {
			if e.Verdict != audit.Deny {
				t.Fatalf("recorded %+v", e)
			}
			got[fmt.Sprint(e.Status)] += max(e.Count, 1)
		}
		if !maps.Equal(got, sent) {
			t.Errorf("recorded %v of %v", got, sent)
		}
	})
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, access.Config{Rate: access.Rate{PerSecond: 2, Burst: 3}})
		auth := "Authorization: Bearer " + s.token(t, "ann", "acme", access.Viewer)
		other := "Authorization: Bearer " + s.token(t, "bob", "acme", access.Viewer)
		status := func(who string) int { return s.do(s.request("GET", "/api/v1/viewer/r-1", "", who)).Code }
		for i, want := range []int{200, 200, 200, 429, 429} {
			if got := status(auth); got != want {
				t.Errorf("request %d: %d", i, got)
			}
		}
		if e := s.log.last(t); e.Reason != "rate" || e.Who != "ann" {
			t.Errorf("recorded %+v", e)
		}
		if status(other) != 200 {
			t.Error("one principal's rate is another's")
		}
		time.Sleep(500 * time.Millisecond)
		w := s.do(s.request("GET", "/api/v1/viewer/r-1", "", auth))
		if w2 := s.do(s.request("GET", "/api/v1/viewer/r-1", "", auth)); w.Code != 200 || w2.Code != 429 || w2.Header().Get("Retry-After") != "1" {
			t.Errorf("half a second later: %d, then %d %v", w.Code, w2.Code, w2.Header())
		}
		// Failed logins slow their address down, and no credential that holds.
		for i := range 15 {
			want := 401
			if i >= 10 {
				want = 429
			}
			if got := status("Authorization: Bearer cst_" + strings.Repeat("A", 43)); got != want {
				t.Errorf("failed login %d: %d", i, got)
			}
		}
		time.Sleep(time.Second)
		if status(auth) != 200 {
			t.Error("a user is kept out by somebody else's failed logins")
		}
	})
}

// TestOracle compares the gate with what a table says, for principals, rules and tenants at random.
func TestOracle(t *testing.T) {
	s := newSite(t, access.Config{Rate: access.Rate{PerSecond: 1e6, Burst: 1e6}})
	rank := map[access.Role]int{access.Viewer: 1, access.Auditor: 2, access.Operator: 3, access.Admin: 4}
	allowed := func(tenant string, have access.Role, need access.Role, asked *string) bool {
		if asked != nil && *asked != tenant {
			return false
		}
		return rank[have] >= rank[need]
	}
	rng := rand.New(rand.NewPCG(3, 4))
	tenants := []string{"", "acme", "beta", "(none)", "Acme", "acme ", "a%63me"}
	type holder struct {
		tenant, auth string
		role         access.Role
	}
	var holders []holder
	for _, tenant := range tenants[:3] {
		for _, role := range access.Roles() {
			holders = append(holders, holder{tenant, "Authorization: Bearer " + s.token(t, string(role), tenant, role), role})
		}
	}
	for range 3000 {
		h, need := holders[rng.IntN(len(holders))], access.Roles()[rng.IntN(4)]
		var asked *string
		target, headers := "/api/v1/"+string(need)+"/r-1", []string{h.auth}
		if n := rng.IntN(len(tenants) + 2); n < len(tenants) {
			asked = &tenants[n]
			if rng.IntN(2) == 0 {
				target += "?tenant=" + url.QueryEscape(*asked)
			} else {
				headers = append(headers, "Custody-Tenant: "+*asked)
			}
		}
		w := s.do(s.request("GET", target, "", headers...))
		if want := allowed(h.tenant, h.role, need, asked); (w.Code == 200) != want {
			t.Fatalf("%+v at %s %v: %d, the table says %v", h, target, headers[1:], w.Code, want)
		}
		if e := s.log.last(t); (e.Verdict == audit.Allow) != (w.Code == 200) && w.Code != 403 {
			t.Fatalf("recorded %+v for %d", e, w.Code)
		}
	}
}

// nowhere is a recorder without a disk.
type nowhere struct{}

func (nowhere) Record(context.Context, audit.Access) error { return nil }

// TestAsked: an access event names the record that was read.
func TestAsked(t *testing.T) {
	s := newSite(t, access.Config{})
	const route = "GET /api/v1/record/{run}/{seq}"
	s.mux.Handle(route, s.Guard(route, access.Rule{Role: access.Viewer, Action: "view"}, http.HandlerFunc(show)))
	r := httptest.NewRequest("GET", "http://"+s.host+"/api/v1/record/r-1/60%26x?tenant=acme", nil)
	r.Header.Set("Authorization", "Bearer "+s.token(t, "ann", "acme", access.Viewer))
	s.mux.ServeHTTP(httptest.NewRecorder(), r)
	if e := s.log.last(t); e.About != "r-1" || e.Query != "seq=60%26x&tenant=acme" || e.Verdict != audit.Allow {
		t.Errorf("recorded as %+v", e)
	}
}
