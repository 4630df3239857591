package main

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/custody-project/custody/internal/browser"
	"github.com/custody-project/custody/internal/sampleruns"
)

// TestBrowserViews: what is shown is saved under a name, opened again from another screen, renamed and removed, with the
// keyboard too and on a telephone.
func TestBrowserViews(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	run := sampleruns.Record(t, d.home, sampleruns.Review())
	s := d.serving("--run", run)
	p := browser.Open(t, s.link, 1280, 800)
	p.WaitTextIn("h1", run)
	v := viewer{d, p, run}
	v.open("kind", "dns,secret", "panel", "network", "seq", "5")
	v.Click(".views summary")
	v.WaitTextIn(".views .pop", "You have saved none")
	v.Type(".views .view-form input", "credentials <b>&")
	v.Keys(kb.Enter)
	v.WaitTextIn(".views .view-list", "credentials <b>&")
	v.Keys(kb.Escape)
	v.Wait(`!document.querySelector(".views[open]") && document.activeElement === document.querySelector(".views summary")`)

	browser.Eval[bool](p, `location.hash = "#/runs", true`)
	v.WaitTextIn("h1", "Runs")
	v.Click(".views summary")
	v.ClickText(".view-list a", "credentials <b>&")
	v.WaitTextIn("h1", run)
	v.Wait(`!document.querySelector(".views[open]")`)
	if at := browser.Eval[string](p, "location.hash"); !strings.Contains(at, "kind=dns%2Csecret") || !strings.Contains(at, "seq=5") || !strings.Contains(at, "panel=network") {
		t.Errorf("the view leads to %s", at)
	}

	p.Size(390, 844)
	v.Click(".views summary")
	v.ClickText(".view-list button", "Rename credentials")
	for _, bad := range wide(p) {
		t.Errorf("the menu: %s", bad)
	}
	browser.Eval[bool](p, `document.querySelector(".view-list input").value = "mine", true`)
	v.ClickText(".view-list button", "Rename")
	v.WaitTextIn(".view-list", "mine")
	v.ClickText(".view-list button", "Remove mine")
	v.WaitTextIn(".views .pop", "You have saved none")
	if len(d.runs()) != 1 {
		t.Error("there are other runs")
	}
}
