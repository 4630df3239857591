package access_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/replay/access"
)

// portSite is a site with ports of sandboxes, which answer what they get.
type portSite struct {
	*site
	t     *testing.T
	conf  access.Config
	ended atomic.Bool // the sandboxes
}

func newPortSite(t *testing.T) *portSite {
	conf := access.Config{PortDomain: "sandboxes.localhost", Session: access.SessionTime{Max: 3 * time.Hour, Idle: time.Hour}}
	s := &portSite{site: newSite(t, conf), t: t, conf: conf}
	s.mux.Handle("POST /api/v1/open/{run}/{port}", s.Guard("open", access.Rule{Role: access.Operator, Action: "login"}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		port, _ := strconv.Atoi(r.PathValue("port"))
		path, _, err := s.PortTicket(r.Context(), r.PathValue("run"), port, func() bool { return !s.ended.Load() })
		if err != nil {
			t.Error(err)
		}
		w.Write([]byte(path))
	})))
	return s
}

// at makes a request to a port with TLS.
func (s *portSite) at(method, host, path string, headers ...string) *httptest.ResponseRecorder {
	s.t.Helper()
	r := s.request(method, "https://x"+path, "", append(headers, "Host: "+host)...)
	return s.send(r)
}

func (s *portSite) send(r *http.Request) *httptest.ResponseRecorder {
	s.t.Helper()
	port, sandbox, ok := s.conf.PortHost(r.Host)
	if !ok {
		s.t.Fatalf("%s is no port", r.Host)
	}
	r.SetPathValue("run", sandbox)
	r.SetPathValue("port", strconv.Itoa(port))
	w := httptest.NewRecorder()
	if r.URL.Path == access.PortLoginPath {
		s.PortLogin(w, r)
		return w
	}
	s.Guard("port", access.Rule{Role: access.Operator, Action: "follow", Port: true}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		show(w, r)
		w.Write([]byte(" " + strings.Join(r.Header["Authorization"], ",") + " " + strings.Join(r.Header["Cookie"], ",")))
	})).ServeHTTP(w, r)
	return w
}

// link returns the path of a link for a port, made with a credential.
func (s *portSite) link(sandbox, port, credential string) string {
	s.t.Helper()
	w := s.do(s.request("POST", "https://x/api/v1/open/"+sandbox+"/"+port, "", credential, "Sec-Fetch-Site: same-origin"))
	if w.Code != 200 {
		s.t.Fatalf("no link: %d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// navigation is what a browser sends for a link of another site.
func navigation() []string {
	return []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"}
}

// opened follows a link and returns the cookie.
func (s *portSite) opened(host, path string) string {
	s.t.Helper()
	w := s.at("GET", host, path, navigation()...)
	cookies := w.Result().Cookies()
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/" || len(cookies) != 1 {
		s.t.Fatalf("the link: %d %v %s", w.Code, w.Header(), w.Body)
	}
	c := cookies[0]
	if c.Name != "__Host-custody_port" || !c.HttpOnly || !c.Secure || c.Path != "/" || c.Domain != "" || c.SameSite != http.SameSiteLaxMode {
		s.t.Errorf("the cookie is %s", w.Header().Get("Set-Cookie"))
	}
	return "Cookie: " + c.Name + "=" + c.Value
}

const (
	portA   = "8080-r-1.sandboxes.localhost"
	ownSite = "Sec-Fetch-Site: same-origin"
)

// TestPortLogin: a link logs a browser in once, to one port, as the one who made it, and both are recorded without the ticket.
func TestPortLogin(t *testing.T) {
	s := newPortSite(t)
	token := "Authorization: Bearer " + s.token(t, "ann", "acme", access.Operator)
	path := s.link("r-1", "8080", token)
	for name, headers := range map[string][]string{
		"a program":  nil,
		"a preview":  append(navigation(), "Sec-Purpose: prefetch"),
		"a frame":    {"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"},
		"a script":   {ownSite, "Sec-Fetch-Mode: cors", "Sec-Fetch-Dest: empty"},
		"two places": append(navigation(), "Sec-Fetch-Dest: document"),
	} {
		if w := s.at("GET", portA, path, headers...); w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "it was not used") {
			t.Errorf("%s opens the link: %d %s", name, w.Code, w.Body)
		}
	}
	if w := s.at("POST", portA, path, navigation()...); w.Code != http.StatusForbidden {
		t.Errorf("a form opens the link: %d", w.Code)
	}
	cookie := s.opened(portA, path)
	if e := s.log.last(t); e.Action != "login" || e.Who != "ann" || e.Tenant != "acme" || e.Role != "operator" || e.About != "r-1" || e.Verdict != audit.Allow || !strings.HasPrefix(string(e.Query), "port=8080&") || strings.Contains(string(e.Query), "csp_") {
		t.Errorf("recorded is %+v", e)
	}
	if w := s.at("GET", portA, "/x", cookie, ownSite, "Authorization: Basic YTpi"); w.Code != 200 || w.Body.String() != "ann@acme as operator Basic YTpi " {
		t.Errorf("the port: %d %s", w.Code, w.Body)
	}
	if e := s.log.last(t); e.Who != "ann" || e.Action != "follow" || e.About != "r-1" {
		t.Errorf("recorded is %+v", e)
	}
	if w := s.at("GET", portA, "/", cookie, ownSite, token); w.Code != http.StatusBadRequest {
		t.Errorf("a cookie and a token: %d", w.Code)
	}
	if w := s.at("GET", portA, path, navigation()...); w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), "used before") || strings.Contains(w.Body.String(), "href") {
		t.Errorf("the link again: %d %s", w.Code, w.Body)
	}
	for _, host := range []string{"8081-r-1.sandboxes.localhost", "8080-r-2.sandboxes.localhost"} {
		if w := s.at("GET", host, "/", cookie, ownSite); w.Code != http.StatusUnauthorized {
			t.Errorf("the cookie at %s: %d", host, w.Code)
		}
		if w := s.at("GET", host, s.link("r-1", "8080", token), navigation()...); w.Code != http.StatusUnauthorized || len(w.Result().Cookies()) > 0 {
			t.Errorf("the link at %s: %d", host, w.Code)
		}
	}
	value := strings.TrimPrefix(cookie, "Cookie: __Host-custody_port=")
	for name, headers := range map[string][]string{
		"the cookie":       {cookie},
		"as a session":     {"Cookie: __Host-custody_session=" + value},
		"as a bearer":      {"Authorization: Bearer " + value},
		"a ticket, bearer": {"Authorization: Bearer " + strings.TrimPrefix(s.link("r-1", "8080", token), access.PortLoginPath+"?ticket=")},
	} {
		if w := s.do(s.request("GET", "https://x/api/v1/viewer/r-1", "", append(headers, ownSite)...)); w.Code != http.StatusUnauthorized {
			t.Errorf("the API takes %s: %d", name, w.Code)
		}
	}
	if second := s.opened(portA, s.link("r-1", "8080", token)); s.at("GET", portA, "/", second, ownSite).Code != 200 {
		t.Error("a second login has no effect")
	}
	low := "Authorization: Bearer " + s.token(t, "low", "acme", access.Auditor)
	if w := s.do(s.request("POST", "https://x/api/v1/open/r-1/8080", "", low)); w.Code != http.StatusForbidden {
		t.Errorf("an auditor makes a link: %d", w.Code)
	}
}

// TestPortOrigin: what a request with the cookie has to say about where it comes from.
func TestPortOrigin(t *testing.T) {
	s := newPortSite(t)
	token := "Authorization: Bearer " + s.token(t, "ann", "acme", access.Operator)
	cookie := s.opened(portA, s.link("r-1", "8080", token))
	const own, sibling = "Origin: https://" + portA, "Origin: https://8080-r-2.sandboxes.localhost"
	same, socket := "Sec-Fetch-Site: same-site", "Upgrade: websocket"
	page := []string{"Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"}
	for _, c := range []struct {
		name, method string
		headers      []string
		status       int
	}{
		{"a script of the page", "GET", []string{ownSite}, 200},
		{"a form of the page", "POST", []string{ownSite, own}, 200},
		{"a form of the page without an origin", "POST", []string{ownSite}, 200},
		{"the address bar", "GET", append(page, "Sec-Fetch-Site: none"), 200},
		{"a link of another site", "GET", navigation(), 200},
		{"a link of another sandbox", "GET", append(page, same), 200},
		{"a WebSocket", "GET", []string{socket, own}, 200},
		{"a WebSocket that says more", "GET", []string{socket, own, ownSite}, 200},

		{"nothing said", "GET", nil, 403},
		{"only an origin", "POST", []string{own}, 403},
		{"a script of another sandbox", "GET", []string{same}, 403},
		{"a script of another sandbox, with CORS", "GET", []string{same, sibling}, 403},
		{"a frame of another sandbox", "GET", []string{same, "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"}, 403},
		{"a form of another sandbox", "POST", append(page, same, sibling), 403},
		{"a form of another sandbox without an origin", "POST", append(page, same), 403},
		{"a form with a hidden origin", "POST", append(page, ownSite, "Origin: null"), 403},
		{"HEAD of another site", "HEAD", navigation(), 403},
		{"another origin, and the site denied", "GET", []string{ownSite, sibling}, 403},
		{"another scheme", "GET", []string{ownSite, "Origin: http://" + portA}, 403},
		{"another port", "GET", []string{ownSite, own + ":8443"}, 403},
		{"two origins", "GET", []string{ownSite, own, own}, 403},
		{"two sites", "GET", []string{ownSite, ownSite}, 403},
		{"a site of no browser", "GET", []string{"Sec-Fetch-Site: Same-Origin"}, 403},
		{"a WebSocket of another sandbox", "GET", []string{socket, sibling}, 403},
		{"a WebSocket of another sandbox that says it", "GET", []string{socket, sibling, same}, 403},
		{"a WebSocket without an origin", "GET", []string{socket}, 403},
		{"a WebSocket without an origin, by a link", "GET", append(navigation(), socket), 403},
		{"a service worker", "GET", []string{ownSite, "Service-Worker: script"}, 403},
		{"two cookies", "GET", []string{ownSite, cookie}, 400},
		{"a foreign preflight", "OPTIONS", []string{sibling, same, "Access-Control-Request-Method: PUT"}, 403},
	} {
		w := s.at(c.method, portA, "/", append(c.headers, cookie)...)
		if w.Code != c.status {
			t.Errorf("%s: %d %s", c.name, w.Code, w.Body)
		}
	}
	for name, headers := range map[string][]string{"a token is asked for no origin": {token}, "nor in its own header": {"Custody-Token: " + strings.TrimPrefix(token, "Authorization: Bearer ")}} {
		if w := s.at("POST", portA, "/", headers...); w.Code != 200 {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

// TestPortLoginEnds: a login ends with the token, the session, the sandbox, and its time; so does a link.
func TestPortLoginEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(t *testing.T, s *portSite, session string)
		alive bool
	}{
		"nothing": {func(*testing.T, *portSite, string) {}, true},
		"token":   {func(t *testing.T, s *portSite, _ string) { remove(t, s.site, "ann") }, false},
		"sandbox": {func(_ *testing.T, s *portSite, _ string) { s.ended.Store(true) }, false},
		"logout": {func(_ *testing.T, s *portSite, c string) {
			s.do(s.request("DELETE", "https://x/api/v1/session", "", c, ownSite))
		}, false},
		"session.max": {func(*testing.T, *portSite, string) { time.Sleep(3*time.Hour + time.Second) }, false},
		"idle":        {func(*testing.T, *portSite, string) { time.Sleep(time.Hour + time.Second) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newPortSite(t)
				w := s.do(s.request("POST", "https://x/api/v1/session", `{"token":"`+s.token(t, "ann", "acme", access.Operator)+`"}`, "Content-Type: application/json", ownSite))
				session := cookie(t, w)
				port := s.opened(portA, s.link("r-1", "8080", session))
				path := s.link("r-1", "8080", session)
				c.end(t, s, session)
				want, follows := http.StatusUnauthorized, http.StatusUnauthorized
				if c.alive {
					want, follows = http.StatusOK, http.StatusSeeOther
				}
				if w := s.at("GET", portA, "/", port, ownSite); w.Code != want {
					t.Errorf("the port: %d %s", w.Code, w.Body)
				}
				if w := s.at("GET", portA, path, navigation()...); w.Code != follows {
					t.Errorf("the link: %d %s", w.Code, w.Body)
				}
			})
		})
	}
}

// TestPortTickets: a link is good for a minute, and of one user there are few.
func TestPortTickets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPortSite(t)
		token := "Authorization: Bearer " + s.token(t, "ann", "acme", access.Operator)
		other := "Authorization: Bearer " + s.token(t, "bob", "acme", access.Operator)
		bobs := s.link("r-1", "8080", other)
		first := s.link("r-1", "8080", token)
		time.Sleep(time.Millisecond) // the first is older than the others
		for range 32 {
			s.link("r-1", "8080", token)
		}
		last := s.link("r-1", "8080", token)
		if w := s.at("GET", portA, first, navigation()...); w.Code != http.StatusUnauthorized {
			t.Errorf("the oldest of many links: %d", w.Code)
		}
		s.opened(portA, bobs)
		s.opened(portA, last)
		late := s.link("r-1", "8080", token)
		time.Sleep(time.Minute)
		if w := s.at("GET", portA, late, navigation()...); w.Code != http.StatusUnauthorized {
			t.Errorf("a link after a minute: %d", w.Code)
		}
	})
}

// TestPortRate: the requests of a port's page do not count as those of its user.
func TestPortRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPortSite(t)
		token := "Authorization: Bearer " + s.token(t, "ann", "acme", access.Operator)
		cookie := s.opened(portA, s.link("r-1", "8080", token))
		refused := false
		for range 300 {
			refused = refused || s.at("GET", portA, "/", cookie, ownSite).Code == http.StatusTooManyRequests
		}
		if got := s.do(s.request("GET", "/api/v1/viewer/r-1", "", token)).Code; !refused || got != 200 {
			t.Errorf("the page is refused: %v; its user gets %d", refused, got)
		}
	})
}

func remove(t *testing.T, s *site, name string) {
	t.Helper()
	if _, err := s.Tokens().Remove(t.Context(), name); err != nil {
		t.Fatal(err)
	}
}
