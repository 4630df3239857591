package main

import (
	"strings"
	"testing"

	"github.com/custody-project/custody/internal/browser"
)

// TestBrowserLink: a link that was used already, or that this server never made, is refused with the reason and a hint. A
// new one signs in where the page is open already.
func TestBrowserLink(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	s := d.serving()
	p := browser.Open(t, s.link, 1280, 800)
	p.WaitTextIn("h1", "Runs")
	p.Allow("status of 401")

	q := browser.Open(t, s.link, 1280, 800)
	q.Allow("status of 401")
	q.WaitTextIn("[role=alert]", "The link did not sign you in", "was used before", "restart custody serve for a new link", "custody token new", "someone else has a session")
	q.Go(s.base + "#once=cso_" + "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	q.WaitTextIn("[role=alert]", "The link did not sign you in", "is unknown or has expired", "restart custody serve for a new link")
	if at := browser.Eval[string](q, "location.href"); strings.Contains(at, "once") || !strings.HasSuffix(at, "#/runs") {
		t.Errorf("the address is %s, it has to be without the token", at)
	}

	again := d.serving()
	q = browser.Open(t, again.base, 1280, 800)
	q.Allow("status of 401")
	q.WaitTextIn("h1", "Custody")
	q.Wait(`document.querySelector("#token")`)
	q.Go(again.link)
	q.WaitTextIn("h1", "Runs")
}
