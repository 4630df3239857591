package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/client"
	"github.com/custody-project/custody/internal/browser"
	"github.com/custody-project/custody/replay/access"
)

// TestBrowserPorts: a person opens ports of two sandboxes in a browser, with TLS and without it. Their pages work, and reach neither the API nor each
// other as this person.
func TestBrowserPorts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, scheme string
		start        func(*testing.T) (*client.Client, *web)
	}{
		{"TLS", "https", newSecureWeb},
		{"loopback", "http", func(t *testing.T) (*client.Client, *web) {
			return webFor(t, publicDir(t), "port_domain: sandboxes.localhost", "")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			api, w := c.start(t)
			a, b := w.start(t, api), w.start(t, api)
			token := w.admin.newToken("ann", string(access.Operator))
			own, err := client.New(w.page(), token)
			check(t, err)
			own.HTTP = api.HTTP
			var trust []browser.Option
			if w.cert != nil {
				trust = append(trust, browser.Trust(w.cert))
			}
			p := browser.Open(t, w.page(), 1280, 800, trust...)
			p.Allow("") // much of what follows is refused
			p.Type("#token", token+"\r")
			p.WaitTextIn("h1", "Runs")
			v := &visitor{web: w, Page: p, scheme: c.scheme}
			v.T = t
			link, err := own.Sandbox(b.ID).LogIn(t.Context(), 8080)
			check(t, err)
			v.opens(b, link.URL)
			user := *w.admin
			user.T, user.env = t, []string{"CUSTODY_URL=" + w.page(), "CUSTODY_TOKEN=" + token, "CUSTODY_CA_FILE=" + w.root}
			v.opens(a, strings.TrimSpace(user.must(0, "port", "--link", a.ID, "8080").stdout))
			v.uses()
			v.attacks(b)
			v.withdrawn()
			w.stop()
			v.recorded(a.ID, b.ID)
		})
	}
}

// visitor is a person whose browser has the page of Custody and those of ports.
type visitor struct {
	*testing.T
	*web
	*browser.Page
	scheme string
}

// at is the address of port 8080 of a sandbox.
func (v *visitor) at(box *client.Box) string {
	_, port, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(v.page(), v.scheme+"://"), "/"), ":")
	return fmt.Sprintf("%s://8080-%s.sandboxes.localhost:%s", v.scheme, box.ID, port)
}

// opens logs the browser in to a port with a link.
func (v *visitor) opens(box *client.Box, link string) {
	if !strings.HasPrefix(link, v.at(box)+"/.well-known/custody-login?ticket=csp_") {
		v.Errorf("the link is %s", link)
	}
	v.Go(v.at(box) + "/page")
	v.WaitTextIn("body", "the request has no credential", "open a link of POST /api/v1/sandboxes/ID/ports/PORT/login")
	v.Go(link)
	v.Wait(`location.href === ` + browser.Quote(v.at(box)+"/"))
	v.WaitTextIn("body", `"path": "/"`)
	if text := v.Text("body"); strings.Contains(strings.ToLower(text), "custody") || strings.Contains(text, "csp_") {
		v.Errorf("the sandbox gets %s", text)
	}
	v.Go(link)
	v.WaitTextIn("body", "the link is not valid", "used before")
	v.Go(v.at(box) + "/page")
	v.WaitTextIn("body", "a page")
}

// uses does what pages do, with the cookie that the browser has and scripts do not see.
func (v *visitor) uses() {
	for script, want := range map[string]string{
		`fetch("/x").then(r => r.text()).then(t => /custody/i.test(t) ? t : "ok")`:                                                           "ok",
		`fetch("/x", {headers: {Authorization: "token of the page"}}).then(r => r.text()).then(t => /token of the page/.test(t) ? "ok" : t)`: "ok",
		`fetch("/", {method: "POST", body: "posted"}).then(r => r.text())`:                                                                   "posted",
		`document.cookie`: "",
		`navigator.serviceWorker.register("/worker.js").then(() => "registered", () => "refused")`: "refused",
		socketScript(`"/socket"`): "hello",
	} {
		if got := browser.Eval[string](v.Page, script); got != want {
			v.Errorf("%s: %q, want %q", script, got, want)
		}
	}
}

// socketScript returns what comes back from a WebSocket.
func socketScript(address string) string {
	return `new Promise(done => { const s = new WebSocket(new URL(` + address + `, location.href)); s.onopen = () => s.send("hello"); s.onmessage = e => done(e.data); s.onerror = () => done("failed"); })`
}

// attacks has the page of one sandbox use the browser's cookies for the API and for the other sandbox.
func (v *visitor) attacks(other *client.Box) {
	there, page := v.at(other), strings.TrimSuffix(v.page(), "/")
	for script, want := range map[string]string{
		`fetch(` + browser.Quote(there+"/attack") + `, {credentials: "include"}).then(r => r.text(), () => "failed")`:                                                                          "failed",
		`fetch(` + browser.Quote(there+"/attack") + `, {credentials: "include", mode: "no-cors", method: "POST", body: "x"}).then(r => r.type, () => "failed")`:                                "failed",
		`fetch(` + browser.Quote(page+"/api/v1/session") + `, {credentials: "include"}).then(r => r.text(), () => "failed")`:                                                                   "failed",
		`fetch(` + browser.Quote(page+"/api/v1/sandboxes/"+other.ID+"/ports/8080/login") + `, {credentials: "include", mode: "no-cors", method: "POST"}).then(r => r.type, () => "failed")`:    "failed",
		`new Promise(done => { const f = document.createElement("iframe"); f.onload = () => done("loaded"); f.src = ` + browser.Quote(there+"/attack?frame") + `; document.body.append(f); })`: "loaded",
		socketScript(browser.Quote(strings.Replace(there, "http", "ws", 1) + "/socket?attack")):                                                                                                "failed",
		`fetch("/api/v1/sandboxes").then(r => r.text()).then(t => /"path": "\/api\/v1\/sandboxes"/.test(t) ? "the sandbox's" : t)`:                                                             "the sandbox's",
	} {
		if got := browser.Eval[string](v.Page, script); got != want {
			v.Errorf("%s: %q, want %q", script, got, want)
		}
	}
	browser.Eval[bool](v.Page, `(() => { const f = document.createElement("form"); f.method = "post"; f.action = `+browser.Quote(there+"/attack?form")+`; document.body.append(f); f.submit(); return true })()`)
	v.WaitTextIn("body", "a page of another origin has the browser make the request")
	v.Go(there + "/page")
	v.WaitTextIn("body", "a page")
	browser.Eval[bool](v.Page, `(() => { const l = document.createElement("a"); l.href = "/linked"; document.body.append(l); l.click(); return true })()`)
	v.WaitTextIn("body", `"path": "/linked"`)
}

// withdrawn removes the token, and the port's page is closed.
func (v *visitor) withdrawn() {
	v.admin.must(0, "token", "rm", "ann")
	v.Until("the cookie is refused", func() bool {
		return browser.Eval[int](v.Page, `fetch("/x").then(r => r.status)`) == http.StatusUnauthorized
	})
}

// recorded checks who is said to have opened the ports, and that no attack got through.
func (v *visitor) recorded(ids ...string) {
	logins := map[string]int{}
	for _, l := range v.admin.looks() {
		if l.Verdict != audit.Allow {
			continue
		}
		if l.Action == "login" && l.Who == "ann" && strings.HasSuffix(l.Route, "/.well-known/custody-login") && strings.HasPrefix(string(l.Query), "port=8080&") {
			logins[string(l.About)]++
		}
		if strings.Contains(string(l.Query), "attack") || l.Route == "HTTP {port}-{run}" && strings.Contains(string(l.Query), "path=/worker.js") {
			v.Errorf("let in: %+v", l)
		}
	}
	for _, id := range ids {
		if logins[id] != 1 {
			v.Errorf("the access log has the logins %v", logins)
		}
		v.admin.verified(id)
		for _, r := range v.admin.records(id) {
			if c := r.Inbound; c != nil && c.Who != "ann" {
				v.Errorf("a connection by %q", c.Who)
			}
		}
	}
}
