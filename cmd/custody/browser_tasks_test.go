package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/internal/browser"
	"github.com/custody-project/custody/internal/sampleruns"
)

// tasks is a reviewer with an open run and questions about it.
type tasks struct {
	viewer
	files string // where downloads go
}

// atMost fails the test if more than two clicks were needed.
func (r tasks) atMost(since int) {
	r.T.Helper()
	if n := r.Clicks() - since; n > 2 {
		r.T.Errorf("%d clicks were needed, want two at the most", n)
	}
}

// inSight fails the test if a reader has to scroll to the first element of the selector.
func (r tasks) inSight(selector string) {
	r.T.Helper()
	r.Wait(`(b => b && b.width > 0 && b.top < innerHeight && b.bottom > 0)(document.querySelector(` + browser.Quote(selector) + `)?.getBoundingClientRect())`)
}

// TestBrowserTasks: four questions of a review take at most two clicks each from the run, in a window and on a
// telephone: what ran at 14:32:07, why a connection was denied, which secret was used for how long, and a bundle.
func TestBrowserTasks(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	run := sampleruns.Record(t, d.home, sampleruns.Review())
	s := d.serving("--run", run)
	p := browser.Open(t, s.link, 1280, 800)
	p.WaitTextIn("h1", run)
	r := tasks{viewer{d, p, run}, t.TempDir()}
	p.Downloads(r.files)
	for _, size := range [][2]int{{1280, 800}, {390, 844}} {
		p.Size(size[0], size[1])
		for name, task := range map[string]func(tasks){
			"moment": tasks.moment, "denial": tasks.denial, "secret": tasks.secret, "bundle": tasks.bundle, "chip": tasks.chip,
			"processes": tasks.processes, "finding": tasks.finding, "selection": tasks.selection,
		} {
			r.run(fmt.Sprintf("%s at %d", name, size[0]), func(v viewer) { task(tasks{v, r.files}) })
		}
	}
	r.run("bad times", func(v viewer) { tasks{v, r.files}.badTimes() })
	r.run("a link", func(v viewer) { tasks{v, r.files}.link() })
}

// moment: a time is typed, and the page describes what ran then, as the command line does.
func (r tasks) moment() {
	r.open()
	clicks := r.Clicks()
	r.Click(".jump input")
	r.Keys("14:32:07" + kb.Enter)
	r.WaitTextIn(".panel.state .at", "2026-11-20 14:32:07.000 UTC")
	r.Wait(settled)
	r.atMost(clicks)
	r.inSight(".panel.state .at")
	said := r.must(0, "timeline", r.name, "--at", "2026-11-20T14:32:07Z").stdout
	if !strings.Contains(said, "curl https://192.0.2.77/") {
		r.T.Fatalf("nothing ran then: %s", said)
	}
	r.WaitTextIn(".panel.state .tree", "python3 agent.py", "curl https://192.0.2.77/")
	shown := browser.Eval[[]string](r.Page, `[...document.querySelectorAll(".panel.state .tree .pid")].map(e => e.innerText)`)
	if len(shown) != 3 {
		r.T.Errorf("the page shows the processes %q, want three", shown)
	}
	for _, pid := range shown {
		if !strings.Contains(said, pid) {
			r.T.Errorf("the page shows process %s, the command line does not: %s", pid, said)
		}
	}
}

// denial: the reason is beside the connection.
func (r tasks) denial() {
	r.open()
	clicks := r.Clicks()
	r.ClickText("[role=tab]", "Network")
	r.ClickWith(".panel .td", "192.0.2.77")
	r.WaitTextIn(".details", "192.0.2.77", "denied", "Rule", "default", "no rule names it")
	r.atMost(clicks)
	r.inSight(".details .facts")
}

// secret: the step that had it, and how long it lived.
func (r tasks) secret() {
	r.open()
	clicks := r.Clicks()
	r.ClickText("[role=tab]", "Secrets")
	r.WaitTextIn(".panel.secrets", "model", "for step agent", "lived 1 min 10 s", "Minted")
	r.atMost(clicks)
	r.inSight(".life-of h2 .num")
}

// bundle: the run's header has it.
func (r tasks) bundle() {
	r.open()
	clicks := r.Clicks()
	r.ClickText(".run-head > .line > a.bundle", "Bundle")
	r.atMost(clicks)
	r.verified()
}

// chip: the chip of the proof describes the findings, and has the bundle.
func (r tasks) chip() {
	r.open()
	r.WaitTextIn(".run-head", "proof holds")
	clicks := r.Clicks()
	r.Click(".proof-chip summary")
	r.WaitTextIn(".proof-chip", "every record holds")
	r.ClickText(".proof-chip a", "Download the bundle")
	r.atMost(clicks)
	r.verified()
}

// processes: the tree of all processes, which can be folded and filtered.
func (r tasks) processes() {
	r.open()
	clicks := r.Clicks()
	r.ClickText("[role=tab]", "Processes")
	r.WaitTextIn("[aria-label=Processes]", "41", "python3 agent.py", "42", "sh -c", "43", "curl https://192.0.2.77/", "exit 7", "15.0 s")
	r.atMost(clicks)
	r.inSight("[aria-label=Processes] .tr")
	indents := browser.Eval[[]float64](r.Page, `[...document.querySelectorAll("[aria-label=Processes] .pid")].map(e => e.getBoundingClientRect().left)`)
	if len(indents) != 3 || indents[0] >= indents[1] || indents[1] >= indents[2] {
		r.T.Errorf("the processes stand at %v, want each further in", indents)
	}
	r.ClickOn(`document.querySelector("[aria-label='Hide what process 42 started']")`)
	r.Wait(`!document.querySelector("[aria-label=Processes]").innerText.includes("curl https://192.0.2.77/\n")`)
	r.Wait(`document.querySelectorAll("[aria-label=Processes] .tr").length === 2`)
	r.Type("[placeholder='pid, program or argument']", "/usr/bin/curl")
	r.Wait(`document.querySelectorAll("[aria-label=Processes] .tr").length === 3 && document.querySelectorAll("[aria-label=Processes] .tr.above").length === 2`)
}

// TestBrowserRuns: the list of runs can be filtered by text, and sorted by each column.
func TestBrowserRuns(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	review, large := sampleruns.Record(t, d.home, sampleruns.Review()), sampleruns.Record(t, d.home, sampleruns.Large(500))
	p := browser.Open(t, d.serving().link, 1440, 900)
	p.WaitTextIn("[aria-label=Runs]", review, large)
	order := func() string {
		return browser.Eval[string](p, `[...document.querySelectorAll("[aria-label=Runs] .tr a")].map(e => e.innerText).join(" ")`)
	}
	p.ClickText("[aria-label=Runs] button.sort", "Project")
	p.Until("the projects in order", func() bool { return order() == large+" "+review })
	p.ClickText("[aria-label=Runs] button.sort", "Project")
	p.Until("the projects in the other order", func() bool { return order() == review+" "+large })
	p.Type("[placeholder='name, project, host, tier, proof']", "REVIEW")
	p.Until("one run", func() bool { return order() == review })
	p.WaitTextIn(".screen-head [role=status]", "1 of 2 runs")
}

// finding: the panel of a finding has the bundle of its records.
func (r tasks) finding() {
	r.open()
	clicks := r.Clicks()
	r.ClickText(".run-head button.badge", "1 finding")
	r.inSight(".finding-card")
	r.ClickText(".finding-card a.bundle", "Bundle of record")
	r.atMost(clicks)
	r.verified()
}

// selection: from the cursor to the end.
func (r tasks) selection() {
	r.open("at", "+50s")
	clicks := r.Clicks()
	r.ClickText(".under button", "Mark from here")
	r.ClickText(".under a.bundle", "Bundle of this selection")
	r.atMost(clicks)
	r.verified()
}

// verified waits for a download, which the command line has to find good, and removes it.
func (r tasks) verified() {
	r.T.Helper()
	var file string
	r.Until("a bundle", func() bool {
		all, _ := filepath.Glob(filepath.Join(r.files, "*"))
		if len(all) == 1 && !strings.HasSuffix(all[0], ".crdownload") {
			file = all[0]
		}
		return file != ""
	})
	r.must(0, "verify", file, "--key", filepath.Join(r.home, "keys", hostkey.PublicFile))
	if err := os.Remove(file); err != nil {
		r.T.Fatal(err)
	}
}

// badTimes: what cannot be read, or is no time of the run, is an error at the field, and the cursor stays.
func (r tasks) badTimes() {
	r.open("at", "+5s", "panel", "state")
	r.WaitTextIn(".panel.state .at", "14:31:05.000")
	for text, why := range map[string]string{"noon": "is not a time", "14:20": "is before the run, which lasted from 2026-11-20 14:31:00.000", "25:00": "hours end at 23", "2026-11-21 14:32:07": "is after the run"} {
		browser.Eval[bool](r.Page, `(e => { e.focus(); e.select(); return true })(document.querySelector(".jump input"))`)
		r.Keys(text + kb.Enter)
		r.WaitTextIn(".jump [role=alert]", why)
	}
	r.WaitTextIn(".panel.state .at", "14:31:05.000")
}

// link: the address of a moment opens it for someone else.
func (r tasks) link() {
	r.open("at", "+67s", "seq", "9", "panel", "state")
	r.WaitTextIn(".panel.state .at", "14:32:07.000")
	browser.Eval[bool](r.Page, `(navigator.clipboard.writeText = async t => { window.copied = t }, true)`)
	clicks := r.Clicks()
	r.ClickOn(`document.querySelector("[aria-label='Copy link to this moment']")`)
	r.Wait("window.copied")
	r.atMost(clicks)
	link := browser.Eval[string](r.Page, "window.copied")
	r.open()
	browser.Eval[bool](r.Page, `(location.href = `+browser.Quote(link)+`, true)`)
	r.WaitTextIn(".panel.state .at", "14:32:07.000")
	if !strings.Contains(link, "seq=9") || !strings.HasPrefix(link, "http://127.0.0.1:") {
		r.T.Errorf("the link is %s", link)
	}
}
