package main

import (
	"fmt"
	"testing"

	"github.com/custody-project/custody/internal/browser"
)

// rows are parts of the page whose children are beside each other.
const rows = `.bar, .bar nav, .screen-head, .filter-row, .chips, .run-head .line, .tablist, .thead, .rhead, .tr, .rrow, .record-head, .figures, .controls, .under, .finding-card header, .life-of h2, .facts > div, table tr`

// layout returns which of those parts overlap, or are too wide for their parent or the window.
func layout(p *browser.Page) []string {
	return browser.Eval[[]string](p, `(() => {
		const bad = [];
		const name = e => "<" + e.tagName.toLowerCase() + (e.className ? "." + e.className : "") + "> " + JSON.stringify(e.innerText.slice(0, 40));
		const scrolls = e => { for (let a = e.parentElement; a; a = a.parentElement) { const o = getComputedStyle(a); if (a.scrollWidth > a.clientWidth && o.overflowX !== "visible") return true; } return false; };
		for (const row of document.querySelectorAll(`+browser.Quote(rows)+`)) {
			const list = [...row.children].filter(e => e.innerText?.trim() && !e.matches(".sr, .skip, .pop") && getComputedStyle(e).position !== "absolute").map(e => [e, e.getBoundingClientRect()]).filter(([, b]) => b.width > 1 && b.height > 1 && b.bottom > 0 && b.top < innerHeight);
			list.forEach(([e, b], i) => {
				if ((b.right > innerWidth + 1 || b.left < -1) && !scrolls(e)) bad.push(name(e) + " of " + row.className + " is beyond the window: " + Math.round(b.left) + " to " + Math.round(b.right));
				const s = getComputedStyle(e);
				if (e.scrollWidth > e.clientWidth + 2 && s.overflowX === "visible" && s.display !== "inline" && e.clientWidth > 0) bad.push(name(e) + " of " + row.className + " is wider than its place: " + e.scrollWidth + " in " + e.clientWidth);
				for (const [f, c] of list.slice(i + 1)) {
					const w = Math.min(b.right, c.right) - Math.max(b.left, c.left), h = Math.min(b.bottom, c.bottom) - Math.max(b.top, c.top);
					if (w > 1.5 && h > 1.5) bad.push(name(e) + " and " + name(f) + " of " + row.className + " overlap by " + Math.round(w) + " x " + Math.round(h));
				}
			});
		}
		for (const e of document.querySelectorAll(".badge, .mood, .seen, button, [role=tab], select, input")) {
			const b = e.getBoundingClientRect();
			if (b.width < 2 || e.closest(".sr, .words, .more")) continue;
			for (let a = e.parentElement; a && a !== document.body; a = a.parentElement) {
				const s = getComputedStyle(a), c = a.getBoundingClientRect();
				if (s.overflowX === "hidden" && (b.right > c.right + 0.5 || b.left < c.left - 0.5)) { bad.push(name(e) + " is cut off: " + Math.round(b.right - c.right) + " px"); break; }
				if (s.overflowX !== "visible") break;
			}
		}
		for (const table of document.querySelectorAll(".table, .records")) {
			if (table.scrollWidth > table.clientWidth + 1) bad.push(table.ariaLabel + " is wider than its place: " + table.scrollWidth + " in " + table.clientWidth);
			const left = row => [...row.children].map(e => Math.round(e.getBoundingClientRect().left)).join();
			const head = table.querySelector(".thead, .rhead"), row = table.querySelector(".tr, .rrow");
			if (head && row && head.children.length === row.children.length && left(head) !== left(row)) bad.push(table.ariaLabel + ": its head is at " + left(head) + ", its rows at " + left(row));
		}
		for (const e of document.querySelectorAll("[role=columnheader], .tr .td:has(> time), .rrow > .num")) {
			if (e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0) bad.push(name(e) + " is cut short: " + e.scrollWidth + " in " + e.clientWidth);
		}
		if (document.scrollingElement.scrollWidth > innerWidth) bad.push("the page is wider than the window");
		return [...new Set(bad)].slice(0, 10);
	})()`)
}

// painted fails the test if a picture of the window is empty: nearly all of one colour, or of few.
func painted(t *testing.T, p *browser.Page, name string) {
	t.Helper()
	img := p.Shot(name)
	colours := browser.Colours(img)
	most, all := 0, img.Bounds().Dx()*img.Bounds().Dy()
	for _, n := range colours {
		most = max(most, n)
	}
	if share := float64(most) / float64(all); share > 0.985 || len(colours) < 40 {
		t.Errorf("%s: %.1f%% of the picture are of one colour, and it has %d", name, 100*share, len(colours))
	}
}

// pictures: each screen has content, and nothing overlaps or is cut off, in two window sizes, light and dark.
func pictures(t *testing.T, p *browser.Page, places []spot) {
	for _, size := range [][2]int{{1440, 900}, {1280, 800}} {
		p.Size(size[0], size[1])
		for _, look := range []string{"dark", "light"} {
			theme(p, look)
			for _, at := range places {
				if look == "dark" && (size[0] != 1280 || at.name != "runs" && at.name != "run-network") {
					continue // the same layout in other colours
				}
				visit(p, at)
				for _, bad := range layout(p) {
					t.Errorf("%s at %dx%d: %s", at.name, size[0], size[1], bad)
				}
				if size[0] == 1280 {
					painted(t, p, at.name+map[string]string{"dark": "-dark"}[look])
				}
			}
		}
	}
	if problems := p.Problems(); len(problems) > 0 {
		t.Errorf("%s", fmt.Sprint(problems))
	}
}
