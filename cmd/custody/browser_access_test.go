package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/custody-project/custody/internal/browser"
	"github.com/custody-project/custody/internal/sampleruns"
)

// axeSource is axe-core, which hack/web/build fetches with the other packages of the page's sources.
func axeSource(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "replay", "web", "ui", "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatalf("axe-core is not there, hack/web/build fetches it: %v", err)
	}
	return string(b)
}

// axe returns where the page breaks WCAG 2.1, levels A and AA, as far as axe-core finds it.
func axe(p *browser.Page) []string {
	return browser.Eval[[]string](p, `axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"], resultTypes: ["violations"]}).then(r =>
		r.violations.flatMap(v => v.nodes.slice(0, 3).map(n => v.id + ": " + n.target.join(" ") + ": " + n.html.slice(0, 160) + ": " + (n.any[0] ?? n.all[0] ?? n.none[0])?.message)))`)
}

// theme chooses how the page looks.
func theme(p *browser.Page, name string) {
	browser.Eval[bool](p, `(s => { s.value = `+browser.Quote(name)+`; s.dispatchEvent(new Event("change", {bubbles: true})); return true })([...document.querySelectorAll(".bar select")].at(-1))`)
	p.Wait(`document.documentElement.dataset.theme === ` + browser.Quote(name))
}

// TestBrowserAccess: axe-core finds nothing on any screen or panel, dark or light; and the way from the login to
// a record needs no mouse.
func TestBrowserAccess(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	other, run := sampleruns.Record(t, d.home, sampleruns.Large(500)), sampleruns.Record(t, d.home, sampleruns.Large(3000))
	s := d.serving()
	p := browser.Open(t, s.base, 1280, 800)
	p.Allow("status of 401") // no one is logged in at first
	source := axeSource(t)
	browser.Eval[bool](p, source+"; true")
	p.Wait(`document.querySelector("#token")`)
	for _, v := range append(axe(p), layout(p)...) {
		t.Error("login: ", v)
	}
	painted(t, p, "login")
	t.Run("keys", func(t *testing.T) { byKeys(t, p.In(t), d.newToken("keys", "admin"), run) })
	for _, look := range []string{"dark", "light"} {
		theme(p, look)
		for _, at := range spots(run, other) {
			visit(p, at)
			for _, v := range axe(p) {
				t.Errorf("%s, %s: %s", at.name, look, v)
			}
		}
	}
}

// byKeys goes from the login to a record, its proof and another panel by keys alone.
func byKeys(t *testing.T, p *browser.Page, token, run string) {
	k := keys{t, p}
	k.to(`e.id === "token"`)
	p.Keys(token + kb.Enter)
	p.WaitTextIn("h1", "Runs")
	p.Wait(settled)
	k.to(`e.ariaLabel === "Runs"`)
	p.Keys(kb.ArrowDown + kb.Enter) // the newest
	p.WaitTextIn("h1", run)
	p.Wait(settled)

	k.to(`e.role === "slider" && e.ariaLabel === "Cursor in time"`)
	end := browser.Eval[string](p, `document.activeElement.ariaValueText`)
	p.Keys(kb.Home)
	p.Wait(`document.activeElement.ariaValueText !== ` + browser.Quote(end))
	p.WaitTextIn(".panel.state .at", "+0.000000s")
	p.Keys(strings.Repeat(kb.ArrowRight, 20))
	p.Wait(`!document.querySelector(".panel.state .at").innerText.includes("+0.000000s")`)
	before := browser.Eval[string](p, `document.querySelector(".under-words").innerText`)
	p.Keys("+++")
	p.Wait(`document.querySelector(".under-words").innerText !== ` + browser.Quote(before) + ` || location.hash.includes("from=")`)

	k.to(`e.ariaLabel === "Records"`)
	p.Keys(kb.ArrowDown + kb.ArrowDown + kb.Enter)
	p.WaitTextIn(".panel.record h2", "Record ")
	k.to(`e.tagName === "BUTTON" && e.innerText === "Verify its proof"`)
	p.Keys(kb.Enter)
	p.WaitTextIn(".proof", "Signed manifest", "Checkpoint")
	k.to(`e.role === "tab" && e.ariaSelected === "true"`)
	p.Keys(kb.ArrowRight)
	p.Wait(`document.querySelector("[role=tab][aria-selected=true]").innerText.startsWith("Processes") && document.activeElement.role === "tab"`)
}

// keys is a reader without a mouse.
type keys struct {
	*testing.T
	*browser.Page
}

// to presses Tab until the focused element e is the wanted one. Each element that is passed must show that it has the
// focus.
func (k keys) to(wanted string) {
	k.T.Helper()
	var way []string
	for range 120 {
		k.Keys(kb.Tab)
		at := browser.Eval[struct {
			There, Shown bool
			Name         string
		}](k.Page, `(e => {
			const s = getComputedStyle(e), b = e.getBoundingClientRect(), inner = e.querySelector(".cursor-time");
			const ring = s => s.outlineStyle !== "none" && parseFloat(s.outlineWidth) > 0;
			return {There: `+wanted+`, Shown: e === document.body || ((ring(s) || inner && ring(getComputedStyle(inner))) && b.width > 0 && b.bottom > 0 && b.top < innerHeight && b.right > 0 && b.left < innerWidth),
				Name: e.tagName + " " + (e.ariaLabel || e.innerText || e.id).slice(0, 30)};
		})(document.activeElement)`)
		way = append(way, at.Name)
		if !at.Shown {
			k.T.Errorf("nothing shows that %q has the focus", at.Name)
		}
		if at.There {
			return
		}
	}
	k.T.Fatalf("no Tab leads to %s: %s", wanted, fmt.Sprintf("%q", way))
}
