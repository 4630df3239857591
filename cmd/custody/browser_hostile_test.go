package main

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/internal/chrome"
	"github.com/custody-project/custody/internal/story"
)

// spot is a place of the page that tests go to.
type spot struct{ name, address string }

// spots are all screens, and all panels of a run. other is a run to compare it with.
func spots(run, other string) (all []spot) {
	for _, s := range []string{"runs", "search", "findings", "reports", "exports", "access", "tokens"} {
		all = append(all, spot{s, "#/" + s})
	}
	all = append(all, spot{"found", "#/search?q=" + url.QueryEscape("<script")}, spot{"compare", "#/compare?a=" + run + "&b=" + other})
	for _, panel := range []string{"state", "record", "terminal", "network", "files", "llm", "secrets", "findings", "changes"} {
		all = append(all, spot{"run-" + panel, "#/runs/" + run + "?panel=" + panel})
	}
	return all
}

// settled is true of a page that waits for nothing.
const settled = `document.querySelector("main") && ![...document.querySelectorAll("main .loading, main .stale, main [aria-busy=true]")].some(e => !e.closest("details:not([open])")) &&
	!(document.querySelector(".under-words")?.innerText ?? "").startsWith("Reading")`

// visit shows a place and waits until all of it is there.
func visit(p *chrome.Page, s spot) {
	there := settled
	if panel, is := strings.CutPrefix(s.name, "run-"); is {
		there += ` && document.querySelector("#tab-` + panel + `")?.ariaSelected == "true"`
	}
	there += " /* " + s.name + " */"
	chrome.Eval[bool](p, `location.hash === `+chrome.Quote(s.address)+` || (location.hash = `+chrome.Quote(s.address)+`, true)`)
	p.Wait(there)
	chrome.Eval[bool](p, `new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => r(true))))`)
	p.Wait(there)
}

// TestBrowserHostile: no text of a record becomes code, markup, a request or a broken page, on any screen.
func TestBrowserHostile(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	run, crowd, long := story.Record(t, d.home, story.Hostile()), story.Record(t, d.home, story.Crowd(10_000)), story.Record(t, d.home, story.Megabyte())
	s := d.serving()
	p := chrome.Open(t, s.link, 1280, 800)
	p.WaitTextIn("h1", "Runs")
	h := &hostile{T: t, Page: p, scripts: chrome.Eval[int](p, `document.scripts.length`)}
	for _, at := range spots(run, crowd) {
		visit(p, at)
		h.sound(at.name)
	}
	for _, record := range d.sampled(run) {
		visit(p, spot{"run-record", fmt.Sprintf("#/runs/%s?seq=%d&panel=record", run, record.Seq)})
		p.WaitTextIn(".panel.record h2", fmt.Sprint("Record ", record.Seq))
		chrome.Eval[bool](p, `document.querySelectorAll(".panel details").forEach(d => d.open = true), document.querySelectorAll(".panel .more").forEach(b => b.click()), true`)
		p.Wait(settled)
		h.sound(fmt.Sprintf("record %d, %s", record.Seq, record.Kind))
	}
	for _, other := range []string{crowd, long} {
		for _, at := range spots(other, run)[9:] {
			visit(p, at)
			h.sound(at.name + " of " + other)
		}
	}
	if problems := p.Problems(); len(problems) > 0 {
		t.Errorf("the browser has problems: %.2000q", problems)
	}
}

// sampled are the hostile records that are opened: of each kind three, one of them with the largest numbers.
func (d *door) sampled(run string) (some []audit.Record) {
	seen := map[audit.Kind]int{}
	for _, r := range d.records(run) {
		seen[r.Kind]++
		if n := seen[r.Kind]; n == 1 || n == 100 || n == 104 || n == len(story.Texts()) {
			some = append(some, r)
		}
	}
	return some
}

// hostile is a page that shows what somebody wrote to harm it.
type hostile struct {
	*testing.T
	*chrome.Page
	scripts int // of the page's own
}

// sound fails the test if a text did something.
func (h *hostile) sound(where string) {
	h.T.Helper()
	bad := chrome.Eval[[]string](h.Page, fmt.Sprintf(`(() => {
		const bad = [];
		if (window.%s !== undefined) bad.push("a script of the record's ran");
		const made = document.querySelectorAll("body img, iframe, object, embed, frame, base, body link, body style, body meta, audio, video, math, marquee, template, body svg[onload], [onerror], [onload], [onfocus], [onclick], [srcdoc], [style*='url(']");
		for (const e of made) bad.push("an element was made: " + e.outerHTML.slice(0, 200));
		for (const a of document.querySelectorAll("[href], [src], [action], [formaction]")) {
			for (const name of ["href", "src", "action", "formaction"]) {
				const v = a.getAttribute(name);
				if (v === null) continue;
				const u = new URL(v, location.href);
				if (u.origin !== location.origin) bad.push(name + " leads away: " + v.slice(0, 200));
			}
		}
		const odd = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\u{e0000}-\u{e007f}]/u;
		const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT);
		for (let n = walk.nextNode(); n; n = walk.nextNode()) {
			if (n.nodeType === 3) {
				const m = odd.exec(n.data);
				if (m) bad.push("U+" + m[0].codePointAt(0).toString(16) + " is shown as it is in <" + n.parentElement.tagName + " class=" + n.parentElement.className + ">: " + JSON.stringify(n.data.slice(Math.max(0, m.index - 20), m.index + 20)));
				continue;
			}
			for (const name of ["title", "aria-label", "aria-valuetext", "alt", "placeholder"]) {
				const m = odd.exec((n.getAttribute(name) ?? "").replaceAll("\n", ""));
				if (m) bad.push("U+" + m[0].codePointAt(0).toString(16) + " is in the " + name + " of <" + n.tagName + " class=" + n.className + ">");
			}
		}
		if (odd.test(document.title)) bad.push("the title has controls");
		const root = document.scrollingElement;
		if (root.scrollWidth > innerWidth || document.body.scrollWidth > innerWidth) bad.push("the page is wider than its window: " + Math.max(root.scrollWidth, document.body.scrollWidth));
		return bad.slice(0, 8);
	})()`, story.Canary))
	for _, b := range bad {
		h.T.Errorf("%s: %s", where, b)
	}
	if chrome.Eval[int](h.Page, `document.scripts.length`) != h.scripts {
		h.T.Errorf("%s: another number of scripts than at the beginning", where)
	}
}
