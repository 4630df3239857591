package access_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/replay/access"
)

// log keeps access events in memory.
type log struct {
	mu     sync.Mutex // guards what follows
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
	tokens, err := access.OpenTokens(t.TempDir())
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

// show says who asks.
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
	text, err := s.Tokens().New(name, tenant, role, 0)
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
