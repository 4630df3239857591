package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/internal/browser"
	"github.com/custody-project/custody/internal/sampleruns"
	"github.com/custody-project/custody/store/clickhouse/clickhousetest"
)

// TestBrowserRecord: the page explains what makes a record doubtful, shows a live run as it grows, and reports a store
// that is unavailable until it is available again.
func TestBrowserRecord(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.must(0, "run", "--", "python3", "-c", liar)
	run := d.runs()[0].ID
	s := d.serving("--run", run)
	p := browser.Open(t, s.link, 1280, 800)
	v := viewer{door: d, Page: p, name: run}
	p.WaitTextIn("h1", run)
	v.run("a disagreement", viewer.aDisagreement)
	v.run("a live run", viewer.aLiveRun)
	v.run("tampering", viewer.tampering)
}

// aDisagreement: a connection that only a guest process reports, and the host did not observe, is shown as a claim.
func (v viewer) aDisagreement() {
	v.ClickText("button.badge", "1 finding")
	v.WaitTextIn(".panel.findings", "Guest and host disagree", "connect-unseen", "93.184.66.66",
		"A process of the guest claims a connection that the host never saw.", "its reports are claims")
}

// aLiveRun: a run appears in the list while it is running, and its page grows until it has ended.
func (v viewer) aLiveRun() {
	const count = `[...document.querySelectorAll(".run-head dt")].find(e => e.innerText === "Records").nextElementSibling.innerText`
	cmd := v.command("run", "-q", "--", "sh", "-c", "i=0; while [ $i -lt 600 ]; do i=$((i+1)); echo tick $i; sleep 0.2; done")
	var out screen
	cmd.Stdout = &out
	v.start(cmd)
	out.await(v.T, "tick 1\n")
	browser.Eval[bool](v.Page, `location.hash = "#/runs", true`)
	v.WaitTextIn("[role=grid][aria-label=Runs]", "running")
	v.ClickWith("[aria-label=Runs] .tr", "running")
	v.WaitTextIn(".run-head", "live", "goes on")
	v.WaitTextIn(".records", "tick ")
	before := browser.Eval[string](v.Page, count)
	seen := out.String()
	// The list shows the latest; which of them just now depends on how busy the machine is.
	v.Wait(`Math.max(...[...document.querySelector(".records").innerText.matchAll(/tick (\d+)/g)].map(m => +m[1])) > ` + fmt.Sprint(len(lines(seen))+10))
	v.Wait(count + ` !== ` + browser.Quote(before))
	v.ClickText("[role=tab]", "Terminal")
	v.WaitTextIn(".panel", "tick")
	cmd.Process.Signal(os.Interrupt)
	cmd.Wait()
	v.WaitTextIn(".run-head", "sealed", "exit 130")
	if v.runs()[0].ID == v.name {
		v.T.Error("the live run is not in the list of the command line")
	}
}

// tampering: a changed byte of the log is reported in the list of runs and on the run's page.
func (v viewer) tampering() {
	v.open()
	v.WaitTextIn(".run-head", "proof holds")
	whole := v.evidence(v.name)
	e := maps.Clone(whole)
	segments := e.names(wal.SegmentSuffix)
	second, at := segments[0], 0 // the record with seq 2
	if first := frames(e[second]); len(first) > 1 {
		at = len(first[0])
	} else {
		second = segments[1]
	}
	e[second] = flip(e[second], at+60)
	v.put(v.name, e)
	v.ClickText("button", "check again")
	v.WaitTextIn("[role=alert]", "Verification fails", "Do not rely on anything on this page", "record altered: seq 2")
	v.WaitTextIn(".run-head", "PROOF FAILS")
	browser.Eval[bool](v.Page, `location.hash = "#/runs", true`)
	v.WaitTextIn("[role=alert]", "1 run fails verification", v.name)
	v.WaitTextIn("[aria-label=Runs]", "PROOF FAILS")
	v.put(v.name, whole)

	v.sqlite(`UPDATE records SET body = replace(body, '"op":"restore"', '"op":"reboot!"') WHERE seq = 2 AND run = '` + v.name + `'`)
	v.open()
	v.ClickText("button", "check now")
	v.WaitTextIn("[role=alert]", "Verification fails", "seq 2: the record is altered in the store")
	v.sqlite(`UPDATE records SET body = replace(body, '"op":"reboot!"', '"op":"restore"') WHERE seq = 2 AND run = '` + v.name + `'`)
	v.ClickText("button", "check now")
	v.WaitTextIn(".run-head", "proof holds")
}

// TestBrowserStore: the page reports that the store is unavailable, and continues by itself when it is available again.
func TestBrowserStore(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	ch := clickhousetest.Start(t)
	d.write(filepath.Join(d.home, "host.yaml"), "version: 1\nstore: "+ch.Fresh()+"\n")
	run := sampleruns.Record(t, d.home, sampleruns.Large(1000))
	p := browser.Open(t, d.serving("--run", run).link, 1280, 800)
	p.Allow("status of 503")
	p.WaitTextIn("h1", run)
	p.Wait(settled)
	ch.Stop()
	browser.Eval[bool](p, `location.hash = "#/findings", true`)
	p.WaitTextIn("[role=alert], .trouble", "the store does not answer", "Trying again")
	ch.Restart()
	p.WaitTextIn("main", "secret-in-output")
	p.Wait(`!document.querySelector(".trouble")`)
	browser.Eval[bool](p, `location.hash = "#/runs", true`)
	p.WaitTextIn("[aria-label=Runs]", run)
}

// TestBrowserInvented: a run that someone wrote into the store, without any signed record, is marked in the list of runs
// and on its page.
func TestBrowserInvented(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	run := sampleruns.Record(t, d.home, sampleruns.Review())
	for _, table := range []string{"runs", "records"} {
		d.sqlite("CREATE TABLE made AS SELECT * FROM " + table + " WHERE run = '" + run + "'; UPDATE made SET run = 'r-invented'; INSERT INTO " + table + " SELECT * FROM made; DROP TABLE made")
	}
	p := browser.Open(t, d.serving().link, 1280, 800)
	p.WaitTextIn("[role=alert]", "No signature covers 1 run", "r-invented")
	p.WaitTextIn("[aria-label=Runs] .failing", "r-invented", "NOTHING SIGNED")
	p.ClickText("[aria-label=Runs] a", "r-invented")
	p.WaitTextIn("h1", "r-invented")
	p.WaitTextIn("[role=alert]", "No signature covers this run", "Do not rely on anything on this page", "treat the run as invented")
	p.WaitTextIn(".run-head", "NOTHING SIGNED")
	browser.Eval[bool](p, `location.hash = "#/runs/`+run+`", true`)
	p.WaitTextIn("h1", run)
	p.WaitTextIn(".run-head", "proof holds")
	p.Wait(`!document.querySelector(".alarm")`)
}

// TestBrowserAltered: in the list of a run's records, exactly those that a host did not sign are marked.
func TestBrowserAltered(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	run := sampleruns.Record(t, d.home, sampleruns.Review())
	const rows, marked = `[...document.querySelectorAll(".records .rrow")]`, `.filter(e => e.innerText.includes("NOT WHAT WAS SIGNED"))`
	p := browser.Open(t, d.serving("--run", run).link, 1280, 800)
	p.WaitTextIn("h1", run)
	p.Wait(settled)
	p.Wait(rows + `.length > 5`)
	if n := browser.Eval[int](p, rows+marked+`.length`); n != 0 {
		t.Errorf("nothing is altered, and %d records are marked", n)
	}
	d.sqlite("UPDATE records SET host = 'evil.example' WHERE run = '" + run + "' AND seq % 2 = 0")
	p.Reload()
	p.WaitTextIn("h1", run)
	p.Wait(settled)
	p.Wait(rows + marked + `.length > 2`)
	if n := browser.Eval[int](p, rows+marked+`.filter(e => e.children[1].innerText % 2 !== 0).length`); n != 0 {
		t.Errorf("%d records are marked that were not altered", n)
	}
	if n := browser.Eval[int](p, rows+`.filter(e => !e.innerText.includes("NOT WHAT WAS SIGNED") && e.children[1].innerText % 2 === 0).length`); n != 0 {
		t.Errorf("%d altered records are not marked", n)
	}
	// A server that reads the altered run marks all that is derived from it, on each panel, and the record by itself.
	p = browser.Open(t, d.serving("--run", run).link, 1280, 800)
	p.WaitTextIn("h1", run)
	for _, panel := range []string{"state", "processes", "network", "terminal", "record"} {
		browser.Eval[bool](p, `location.hash = "#/runs/`+run+`?panel=`+panel+`&seq=2", true`)
		p.WaitTextIn(".alarm", "not what was s") // signed, or once the run has been verified: sealed
	}
	p.WaitTextIn(".record .flag", "NOT WHAT WAS SIGNED", "host")
}
