package main

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/browser"
	"github.com/custody-project/custody/internal/sampleruns"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/store"
)

// spot is a location in the page that tests open.
type spot struct{ name, address string }

// spots are all screens, and all panels of a run. other is a run to compare it with.
func spots(run, other string) (all []spot) {
	for _, s := range []string{"runs", "search", "findings", "check", "reports", "exports", "access", "tokens"} {
		all = append(all, spot{s, "#/" + s})
	}
	all = append(all, spot{"found", "#/search?q=" + url.QueryEscape("<script")}, spot{"compare", "#/compare?a=" + run + "&b=" + other})
	for _, panel := range []string{"state", "record", "processes", "terminal", "network", "files", "llm", "secrets", "findings", "changes"} {
		at := spot{"run-" + panel, "#/runs/" + run + "?panel=" + panel}
		if panel == "record" {
			at.address += "&seq=9"
		}
		all = append(all, at)
	}
	return all
}

// settled reports that a page waits for nothing.
const settled = `document.querySelector("main") && ![...document.querySelectorAll("main .loading, main .stale, main [aria-busy=true]")].some(e => !e.closest("details:not([open])")) &&
	!(document.querySelector(".under-words")?.innerText ?? "").startsWith("Reading")`

// visit opens a location and waits until it is loaded completely.
func visit(p *browser.Page, s spot) {
	there := settled
	if panel, is := strings.CutPrefix(s.name, "run-"); is {
		there += ` && document.querySelector("#tab-` + panel + `")?.ariaSelected == "true"`
	}
	there += " /* " + s.name + " */"
	browser.Eval[bool](p, `(window.before = [...document.querySelectorAll("div")], location.hash === `+browser.Quote(s.address)+` || (location.hash = `+browser.Quote(s.address)+`, true))`)
	p.Wait(there)
	browser.Eval[bool](p, `new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => r(true))))`)
	p.Wait(there)
	// A browser may send the end of a scroll to an element that has been removed.
	browser.Eval[bool](p, `before.filter(e => !e.isConnected).forEach(e => e.dispatchEvent(new Event("scroll"))), true`)
}

// TestBrowserHostile: no text of a record becomes code, markup, a request or a broken page, on any screen.
func TestBrowserHostile(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	run, crowd, long := sampleruns.Record(t, d.home, sampleruns.Hostile()), sampleruns.Record(t, d.home, sampleruns.Crowd(10_000)), sampleruns.Record(t, d.home, sampleruns.Megabyte())
	noted := d.noteAll(run)
	s := d.serving()
	p := browser.Open(t, s.link, 1280, 800)
	p.WaitTextIn("h1", "Runs")
	h := &hostile{T: t, Page: p, seen: map[string]bool{"<script>window.": false, "<U+202E>": false, "<U+001B>": false, "<0xFF>": false, "__proto__": false, "<U+0000>": false}, scripts: browser.Eval[int](p, `document.scripts.length`)}
	for _, at := range spots(run, crowd) {
		visit(p, at)
		h.sound(at.name)
	}
	for _, record := range d.sampled(run) {
		visit(p, spot{"run-record", fmt.Sprintf("#/runs/%s?seq=%d&panel=record", run, record.Seq)})
		p.WaitTextIn(".panel.record h2", fmt.Sprint("Record ", record.Seq))
		browser.Eval[bool](p, `document.querySelectorAll(".panel details").forEach(d => d.open = true), document.querySelectorAll(".panel .more").forEach(b => b.click()), true`)
		p.Wait(settled)
		h.sound(fmt.Sprintf("record %d, %s", record.Seq, record.Kind))
	}
	visit(p, spot{"run-record", fmt.Sprintf("#/runs/%s?seq=1&panel=record&tag=*", run)})
	browser.Eval[bool](p, `document.querySelector(".run-notes").open = true`)
	p.Wait(fmt.Sprintf(`document.querySelectorAll(".run-notes .note").length === %d && document.querySelectorAll(".record-notes .note").length === %d`, noted, noted))
	h.sound("notes")
	for _, other := range []string{crowd, long} {
		for _, at := range spots(other, run)[9:] {
			visit(p, at)
			h.sound(at.name + " of " + other)
		}
	}
	h.hover(run)
	h.addresses(run)
	visit(p, spot{"access", "#/access"}) // which has all that was asked for by now
	h.sound("access, in the end")
	aReport(t, s, run)
	for what, seen := range h.seen {
		if !seen {
			t.Errorf("%q was never shown as text", what)
		}
	}
	if problems := p.Problems(); len(problems) > 0 {
		t.Errorf("the browser has problems: %.2000q", problems)
	}
}

// hover moves the mouse over the lanes, where tips appear, and opens the list of what is under the cursor.
func (h *hostile) hover(run string) {
	visit(h.Page, spot{"run-state", "#/runs/" + run + "?panel=state"})
	h.ClickText("button", "List what is under the cursor")
	box := browser.Eval[[]float64](h.Page, `(b => [b.left, b.top, b.width, b.height])(document.querySelector(".lanes .plot").getBoundingClientRect())`)
	tips := 0
	for i := range 20 {
		x, y := box[0]+box[2]*float64(i%5)/5+3, box[1]+box[3]*float64(i/5)/4+26
		h.Mouse(input.DispatchMouseEventParams{Type: input.DispatchMouseEventTypeMouseMoved, X: x, Y: y})
		tips += browser.Eval[int](h.Page, `document.querySelectorAll(".tip").length`)
		h.sound(fmt.Sprintf("the mouse at %.0f, %.0f", x, y))
	}
	if tips == 0 {
		h.T.Error("no tip appeared")
	}
}

// addresses opens links that someone may have sent to a reviewer.
func (h *hostile) addresses(run string) {
	for _, status := range []string{"400", "404", "414", "431"} {
		h.Allow("status of " + status)
	}
	var all []string
	for i, text := range sampleruns.Texts() {
		all = append(all, "#/runs/"+url.PathEscape(text), "#/search?q="+url.QueryEscape(text), "#/"+text,
			"#/runs/"+run+"?"+[]string{"panel", "seq", "at", "from", "kind", "q", "step", "observer"}[i%8]+"="+url.QueryEscape(text))
	}
	for i, address := range all {
		if i%9 != 0 && len(address) < 1000 { // each form often enough
			continue
		}
		browser.Eval[bool](h.Page, `location.hash = `+browser.Quote(address)+`, true`)
		browser.Eval[bool](h.Page, `new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => r(true), 50))))`)
		h.sound(fmt.Sprintf("the address %.80q", address))
	}
}

// aReport opens a report over the run like a recipient of the file: from a server without any policy.
func aReport(t *testing.T, s *server, run string) {
	s.token = s.newToken("reports", "auditor")
	status, html := s.ask("GET", "reports?framework=soc2&format=html&run="+run, nil)
	if status != http.StatusOK {
		t.Fatalf("the report: %d, %.500s", status, html)
	}
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Write(html)
	}))
	defer elsewhere.Close()
	p := browser.Open(t, elsewhere.URL, 1280, 800)
	p.WaitText("SOC 2", "<script>window.")
	if browser.Eval[bool](p, `window.`+sampleruns.Canary+` !== undefined || document.scripts.length > 0 || document.querySelector("img, iframe, object, [onload], [onerror], base, link") !== null`) {
		t.Error("a report took text for markup")
	}
}

// sampled are the hostile records that are opened: of each kind three, one of them with the largest numbers.
func (d *door) sampled(run string) (some []audit.Record) {
	seen := map[audit.Kind]int{}
	for _, r := range d.records(run) {
		seen[r.Kind]++
		if n := seen[r.Kind]; n == 1 || n == 100 || n == 104 || n == len(sampleruns.Texts()) {
			some = append(some, r)
		}
	}
	return some
}

// hostile is a page that shows what someone wrote to harm it.
type hostile struct {
	*testing.T
	*browser.Page
	scripts int             // of the page's own
	seen    map[string]bool // texts that have to be shown as text somewhere
}

// sound fails the test if a text did something.
func (h *hostile) sound(where string) {
	h.T.Helper()
	bad := browser.Eval[[]string](h.Page, fmt.Sprintf(`(() => {
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
	})()`, sampleruns.Canary))
	for _, b := range bad {
		h.T.Errorf("%s: %s", where, b)
	}
	text := browser.Eval[string](h.Page, `document.body.innerText`)
	for what := range h.seen {
		h.seen[what] = h.seen[what] || strings.Contains(text, what)
	}
	if browser.Eval[int](h.Page, `document.scripts.length`) != h.scripts {
		h.T.Errorf("%s: another number of scripts than at the beginning", where)
	}
}

// noteAll notes each hostile text on the run and on its first record, and returns how many there are.
func (d *door) noteAll(run string) (n int) {
	d.Helper()
	h, err := host.Open(d.home)
	if err != nil {
		d.Fatal(err)
	}
	st, err := h.Store(d.Context())
	if err != nil {
		d.Fatal(err)
	}
	defer st.Close()
	var leaf string
	for row, err := range st.Records(d.Context(), store.Query{Run: run, Limit: 1}) {
		if err != nil {
			d.Fatal(err)
		}
		sum := row.Frame().Leaf()
		leaf = hex.EncodeToString(sum[:])
	}
	log := h.AccessLog(redact.New([]byte("0123456789abcdef0123456789abcdef")), "test")
	for i, text := range sampleruns.Texts() {
		note := audit.Note{Who: text, Via: text, Role: text, About: run, Text: audit.Text(text), Tags: []string{fmt.Sprint("t", i)}}
		if _, err := log.Note(d.Context(), note); err != nil {
			continue // it cannot be written
		}
		n++
		note.Seq, note.Leaf = 1, leaf
		if _, err := log.Note(d.Context(), note); err != nil {
			d.Fatal(err)
		}
	}
	if err := log.Close(); err != nil || n < 50 {
		d.Fatal(n, err)
	}
	return n
}
