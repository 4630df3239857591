package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/client"
	"github.com/custody-project/custody/internal/browser"
	"github.com/custody-project/custody/internal/sampleruns"
	"github.com/custody-project/custody/replay/access"
)

// twoAtATime is the part of host.yaml with which a third sandbox waits.
const twoAtATime = "quotas: {tenant: {sandboxes: 2}, queue: {wait: 1h}}\n"

// loggedIn opens the page of a service as the user of a token.
func loggedIn(t *testing.T, base, token string) *browser.Page {
	t.Helper()
	p := browser.Open(t, base, 1280, 800)
	p.Allow("status of 401") // no one is logged in at first
	p.Type("#token", token+"\r")
	p.WaitTextIn("h1", "Runs")
	return p
}

// TestBrowserSandboxes: operators see the sandboxes, the queue and quotas, extend a sandbox and stop it; viewers only see them. What users chose is shown as text.
func TestBrowserSandboxes(t *testing.T) {
	t.Parallel()
	admin := newGVisorDoor(t)
	admin.asks = true
	path := filepath.Join(admin.home, "host.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	admin.write(path, string(text)+twoAtATime+"serve: {port_domain: sandboxes.localhost}\n")
	s := serveFor(t, admin, publicDir(t))
	c := caller{t, s.page(), s.admin.newToken("op", string(access.Operator))}
	var all [3]client.Sandbox
	for i := range all {
		create := client.SandboxRequest{Session: fmt.Sprint("task-", i), TimeSeconds: 600, IdleSeconds: 900} // the default project allows 900
		c.ask(http.StatusCreated, "POST", "/sandboxes", create, &all[i])
		if i < 2 {
			c.ask(http.StatusCreated, "POST", "/sandboxes/"+all[i].ID+"/processes", client.ProcessRequest{Shell: [...]string{webServer, "sleep 3600"}[i]}, nil)
		}
	}
	first, waits := all[0].ID, all[2].ID
	viewing := caller{t, c.base, s.admin.newToken("look", string(access.Viewer))}

	p := loggedIn(t, c.base, c.token)
	p.ClickText(".bar a", "Sandboxes")
	p.WaitTextIn("main", first, waits, "2 live, 1 queued", "task-1", "gvisor", "1 process", "in use", "Created by", "op")
	p.WaitTextIn(".queue", waits, "sandboxes")
	p.WaitTextIn(".uses", "full 2 of 2")
	keepsFocus(p, "Stop "+all[1].ID)
	opensPorts(p, s, first, all[1].ID)
	accessible(t, p, "sandboxes of an operator")

	t.Run("viewer", func(t *testing.T) {
		q := loggedIn(t, c.base, viewing.token)
		visit(q, spot{"sandboxes", "#/sandboxes"})
		q.WaitTextIn("main", first, waits, "2 live, 1 queued")
		if n := browser.Eval[int](q, `[...document.querySelectorAll("main button, main a")].filter(e => /extend|stop|accesses/i.test(e.innerText + e.ariaLabel)).length`); n != 0 {
			t.Errorf("a viewer has %d buttons", n)
		}
		viewing.ask(http.StatusForbidden, "DELETE", "/sandboxes/"+first, nil, nil)
		viewing.ask(http.StatusForbidden, "POST", "/sandboxes/"+first+"/extend", client.ExtendRequest{Seconds: 1000}, nil)
		if problems := q.Problems(); len(problems) > 0 {
			t.Errorf("%q", problems)
		}
	})

	press := func(what, id, sure string) {
		p.ClickOn(labelled(what + " " + id))
		p.ClickWith("button", sure)
	}
	press("Extend", first, "Sure? It ends at")
	p.WaitTextIn("main", first+" ends at ")
	var now client.Sandbox
	c.ask(http.StatusOK, "GET", "/sandboxes/"+first, nil, &now)
	if !now.Expires.After(all[0].Expires) {
		t.Errorf("extended, it ends at %v, before that at %v", now.Expires, all[0].Expires)
	}
	press("Stop", first, "Sure? Its processes end")
	p.WaitTextIn("main", first+" has ended, and its record is closed.", "1 ended")
	p.WaitTextIn(".queue", "No start waits.")
	c.ask(http.StatusOK, "GET", "/sandboxes/"+first, nil, &now)
	if now.State != "ended" || now.Error != "" {
		t.Errorf("stopped, it is %+v", now)
	}
	p.ClickWith("main button", "all")
	p.ClickOn(labelled("Accesses to " + first))
	p.WaitTextIn(".page .wide-table", "DELETE /api/v1/sandboxes/{run}", "POST /api/v1/sandboxes/{run}/extend", "look")
	t.Run("hostile", func(t *testing.T) { hostileSandboxes(t, p.In(t), c) })
	if problems := p.Problems(); len(problems) > 0 {
		t.Errorf("the browser has problems: %.2000q", problems)
	}
}

// opensPorts opens the port of a sandbox in a new tab. The other sandbox has none.
func opensPorts(p *browser.Page, s *served, sandbox, other string) {
	port := labelled("Open port 8080 of " + sandbox + " in a new tab")
	p.Until("listed: the port", func() bool { // when the server has started
		p.ClickOn(labelled("Open a port of " + sandbox))
		return browser.Eval[bool](p, port+" !== null")
	})
	p.ClickOn(port)
	p.Until("open: the page of the port", func() bool {
		var in, page bool
		for _, a := range s.admin.looks() {
			if string(a.About) == sandbox && a.Who == "op" && a.Verdict == audit.Allow {
				in = in || a.Action == "login" && strings.HasSuffix(a.Route, "/.well-known/custody-login")
				page = page || a.Route == "HTTP {port}-{run}" && strings.Contains(string(a.Query), "path=/")
			}
		}
		return in && page
	})
	browser.Front(p)
	p.ClickOn(labelled("Open a port of " + other))
	p.WaitTextIn("main", "No process listens on a port.")
}

// labelled is the element with a label for screen readers.
func labelled(label string) string {
	return `document.querySelector(` + browser.Quote(`[aria-label="`+label+`"]`) + `)`
}

// keepsFocus fails the test if the focus or the place to which the page was scrolled is lost when the list is read again.
func keepsFocus(p *browser.Page, label string) {
	const reads = `performance.getEntriesByType("resource").filter(e => e.name.includes("/quotas")).length`
	there := `(document.activeElement === kept && kept.isConnected && kept.ariaLabel === ` + browser.Quote(label) + ` && document.querySelector(".page").scrollTop === top0)`
	n := browser.Eval[int](p, `(window.kept = `+labelled(label)+`, kept.focus(), document.querySelector(".page").scrollTop += 20, window.top0 = document.querySelector(".page").scrollTop, `+reads+`)`)
	p.Wait(fmt.Sprintf("%s >= %d && %s", reads, n+2, there))
}

// accessible fails the test for what axe-core finds, dark and light, and if the page is wider than a telephone.
func accessible(t *testing.T, p *browser.Page, name string) {
	t.Helper()
	browser.Eval[bool](p, axeSource(t)+"; true")
	for _, look := range []string{"dark", "light"} {
		theme(p, look)
		for _, v := range axe(p) {
			t.Errorf("%s, %s: %s", name, look, v)
		}
	}
	for _, bad := range layout(p) {
		t.Errorf("%s: %s", name, bad)
	}
	p.Shot(name)
	p.Size(390, 844)
	for _, bad := range wide(p) {
		t.Errorf("%s: %s", name, bad)
	}
	p.Size(1280, 800)
}

// hostileSandboxes: session keys and metadata that were chosen to harm the page do not.
func hostileSandboxes(t *testing.T, p *browser.Page, c caller) {
	c.T = t
	n := 0
	for _, text := range sampleruns.Texts() {
		create := client.SandboxRequest{Session: text, Metadata: map[string]string{"k" + text: text}, Lazy: true}
		if len(text) < 250 {
			if status, _ := c.do("POST", "/sandboxes", create); status == http.StatusCreated {
				n++
			}
		}
	}
	if n < 20 {
		t.Fatalf("only %d sandboxes were created", n)
	}
	h := &hostile{T: t, Page: p, seen: map[string]bool{"<script>window.": false, "<U+202E>": false, "<U+001B>": false}, scripts: browser.Eval[int](p, `document.scripts.length`)}
	visit(p, spot{"sandboxes", "#/sandboxes"})
	p.Wait(fmt.Sprintf(`document.querySelectorAll("[aria-label=Sandboxes] tbody tr").length >= %d`, n))
	browser.Eval[bool](p, `document.querySelectorAll("main .more").forEach(b => b.click()), true`)
	h.sound("sandboxes")
	for what, seen := range h.seen {
		if !seen {
			t.Errorf("%q was never shown as text", what)
		}
	}
}
