package main

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/custody-project/custody/internal/browser"
	"github.com/custody-project/custody/internal/sampleruns"
	"github.com/custody-project/custody/replay"
)

// TestBrowserNotes: a reviewer notes something on a record and on the run, in a window and on a telephone, sees who
// wrote it and that it is proven, finds the record again by its tag, and withdraws the note. What the page says is what the
// command line says.
func TestBrowserNotes(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	run := sampleruns.Record(t, d.home, sampleruns.Review())
	s := d.serving("--run", run)
	p := browser.Open(t, s.link, 1280, 800)
	p.WaitTextIn("h1", run)
	v := viewer{d, p, run}

	v.openRecord5()
	v.Click(".record-notes summary")
	v.Type(".record-notes textarea", "asked the team: <img src=x onerror=window."+sampleruns.Canary+"=1>")
	v.Type(".record-notes .note-form input", "Case-7, #exfil")
	v.Keys(kb.Enter) // a form is sent from its field
	v.WaitTextIn(".record-notes .note", "local", "by once, admin", "asked the team: <img src=x", "#case-7", "#exfil")
	v.Wait(`document.querySelector(".rrow .noted")?.title === "1 note #case-7 #exfil"`)
	v.WaitTextIn(".run-notes summary", "1 note")
	v.ClickText(".record-notes .note button", "verify")
	v.WaitTextIn(".record-notes .note-head [role=status]", "Consistent only")

	v.Click(".run-notes summary")
	v.Type(".run-notes textarea", "all of it")
	v.ClickText(".run-notes button", "Sign the note")
	v.WaitTextIn(".run-notes .note", "all of it")
	v.Wait(`!document.querySelector(".note .badge.busy")`) // both are signed
	v.Keys(kb.Escape)
	v.Wait(`!document.querySelector(".run-notes[open]")`)

	browser.Eval[bool](p, `(s => { s.value = "case-7"; s.dispatchEvent(new Event("change", { bubbles: true })); return true })([...document.querySelectorAll(".filters select")].find(s => [...s.options].some(o => o.value === "case-7")))`)
	v.Wait(`document.querySelectorAll(".rrow").length === 1 && document.querySelector(".rrow .noted")`)
	if at := browser.Eval[string](p, "location.hash"); !strings.Contains(at, "tag=case-7") {
		t.Errorf("the address does not have the tag: %s", at)
	}

	notes := decode[replay.Note](d, d.must(0, "notes", run, "--json").stdout)
	if len(notes) != 2 || notes[0].Who != "local" || notes[0].Seq != 5 || notes[1].Text != "all of it" {
		t.Fatalf("%+v", notes)
	}

	p.Size(390, 844)
	v.openRecord5()
	v.WaitTextIn(".record-notes .note", "asked the team")
	for _, bad := range wide(p) {
		t.Errorf("a record with a note: %s", bad)
	}
	v.Click(".run-notes summary")
	for _, bad := range wide(p) {
		t.Errorf("the notes on the run: %s", bad)
	}
	v.Click(".run-notes summary")
	v.ClickText(".record-notes button", "withdraw")
	v.Type(".record-notes .note .note-form input", "it was theirs")
	v.ClickText(".record-notes button", "Withdraw the note")
	v.WaitTextIn(".record-notes .note.withdrawn", "Withdrawn by local", "it was theirs")
	v.Wait(`!document.querySelector(".rrow .noted") && !document.querySelector(".note .badge.busy")`)
	if browser.Eval[bool](p, `window.`+sampleruns.Canary+` !== undefined || document.querySelector("img") !== null`) {
		t.Error("a note became part of the page")
	}
	d.contains(d.must(0, "timeline", run).stdout, "withdrawn by local", "it was theirs")
}

// TestBrowserNotesViewer: a viewer sees notes, and no form to write one.
func TestBrowserNotesViewer(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	run := sampleruns.Record(t, d.home, sampleruns.Review())
	d.must(0, "note", run, "seen \u202etxt.exe", "--seq", "5", "-t", "x")
	s := d.serving()
	p := browser.Open(t, s.base, 1280, 800)
	p.Allow("status of 401")
	p.Wait(`document.querySelector("#token")`)
	p.Type("#token", d.newToken("vic", "viewer"))
	p.Keys(kb.Enter)
	p.WaitTextIn("h1", "Runs")
	v := viewer{d, p, run}
	v.openRecord5()
	v.WaitTextIn(".record-notes .note", "seen <U+202E>txt.exe", "by cli", "#x", "signed")
	if browser.Eval[bool](p, `document.querySelector(".note-form, .note button") !== null`) {
		t.Error("a viewer is offered to write")
	}
}

// openRecord5 shows a record of the run again, in its panel.
func (v viewer) openRecord5() {
	v.T.Helper()
	browser.Eval[bool](v.Page, `location.hash = "#/runs", true`)
	v.WaitTextIn("h1", "Runs")
	browser.Eval[bool](v.Page, `location.hash = "#/runs/`+v.name+`?seq=5&panel=record", true`)
	v.WaitTextIn(".panel.record h2", "Record 5")
	v.Wait(settled)
}
