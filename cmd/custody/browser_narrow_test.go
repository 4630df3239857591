package main

import (
	"testing"

	"github.com/custody-project/custody/internal/browser"
	"github.com/custody-project/custody/internal/sampleruns"
)

// wide returns what extends beyond the right edge of a page, so that it would scroll sideways, or "".
func wide(p *browser.Page) []string {
	return browser.Eval[[]string](p, `(() => {
		const root = document.scrollingElement, most = Math.max(root.scrollWidth, document.body.scrollWidth);
		if (most <= innerWidth) return [];
		const contained = e => { for (let a = e.parentElement; a && a !== document.body; a = a.parentElement) if (getComputedStyle(a).overflowX !== "visible") return true; return false; };
		const beyond = [...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > innerWidth + 0.5 && !contained(e));
		return ["the page is " + most + " pixels wide: " + beyond.slice(0, 12).map(e => "<" + e.tagName.toLowerCase() + " class=" + e.className + "> " + Math.round(e.getBoundingClientRect().right)).join(", ")];
	})()`)
}

// TestBrowserNarrow: on a telephone no view scrolls sideways, hostile records among them.
func TestBrowserNarrow(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	large, mean := sampleruns.Record(t, d.home, sampleruns.Large(3000)), sampleruns.Record(t, d.home, sampleruns.Hostile())
	s := d.serving()
	p := browser.Open(t, s.base, 390, 844)
	p.Allow("status of 401") // no one is logged in at first
	p.Wait(`document.querySelector("#token")`)
	for _, bad := range wide(p) {
		t.Errorf("login: %s", bad)
	}
	p.Go(s.link) // the page is open: its address changes
	p.WaitTextIn("h1", "Runs")
	check := func(name string) {
		for _, bad := range wide(p) {
			t.Errorf("%s: %s", name, bad)
		}
	}
	for _, run := range [][2]string{{large, mean}, {mean, large}} {
		for _, at := range spots(run[0], run[1]) {
			visit(p, at)
			check(at.name + " of " + run[0])
			p.Shot("narrow-" + at.name)
		}
	}
	visit(p, spot{"run-state", "#/runs/" + large + "?panel=state"})
	p.Click(".proof-chip summary")
	p.WaitTextIn(".proof-chip", "Download the bundle")
	check("the chip of the proof")
	p.ClickText("button", "Keys and signs")
	check("keys and signs")
	p.ClickText("button", "List what is under the cursor")
	check("what is under the cursor")
}
