package main

import (
	"fmt"
	"os/user"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/internal/sampleruns"
	"github.com/custody-project/custody/replay"
)

// TestNotes: what is noted on a run is signed, names its author and its record, is shown beside it, and is withdrawn by
// another record; no one can write a note as someone else, or on what is not there.
func TestNotes(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	run := sampleruns.Record(t, d.home, sampleruns.Review())
	me := "root"
	if u, err := user.Current(); err == nil {
		me = u.Username
	}
	one := strings.TrimSpace(d.must(0, "note", run, "this one \x1b[2J", "--seq", "5", "--tag", "case-7", "-t", "exfil").stdout)
	two := strings.TrimSpace(d.must(0, "note", run, "all of it; USER=eve").stdout)
	d.must(0, "note", run, "--at", "+0s", "--tag", "begin")
	secret := "ghp_" + "x7Kq2mZ9wB4tR8nV1cL6yH3jD5fG0pSaUe2T" // of no account
	d.must(0, "note", run, "the token is "+secret, "--seq", "2")

	type listed struct {
		replay.Note
		Bound replay.Bound `json:"bound"`
	}
	notes := decode[listed](d, d.must(0, "notes", run, "--json").stdout)
	if len(notes) != 4 {
		t.Fatalf("%d notes: %+v", len(notes), notes)
	}
	for i, n := range notes {
		if n.Who != me || n.Via != viaCLI || n.About != run || n.ID == "" {
			t.Errorf("note %d: %+v", i, n)
		}
		log, _, _ := audit.ParseNoteID(n.ID)
		d.verified(log)
		d.must(0, "bundle", log, "-o", fmt.Sprintf("%s/note-%d.bundle", d.dir, i))
		d.must(0, "verify", fmt.Sprintf("%s/note-%d.bundle", d.dir, i))
	}
	if n := notes[0]; n.ID != one || n.Seq != 5 || n.Bound != replay.BoundSame || strings.Join(n.Tags, " ") != "case-7 exfil" {
		t.Errorf("%+v", n)
	}
	if n := notes[1]; n.ID != two || n.Seq != 0 || n.Leaf != "" || n.Bound != replay.BoundRun {
		t.Errorf("%+v", n)
	}
	if n := notes[3]; strings.Contains(string(n.Text), secret) || !strings.Contains(string(n.Text), "[REDACTED:") {
		t.Errorf("a token was recorded: %q", n.Text)
	}

	d.must(0, "note", run, "not theirs after all", "--withdraw", one)
	text := d.must(0, "timeline", run).stdout
	d.contains(text, "note by "+me, `this one \x1b[2J  #case-7  #exfil`, "withdrawn by "+me, "not theirs after all", "all of it; USER=eve", "#begin", ", 4 notes")
	if strings.Contains(text, "\x1b") || strings.Contains(text, "!! THE NOTE") {
		t.Errorf("timeline: %.3000s", text)
	}
	d.contains(d.must(0, "notes", run).stdout, "on record 5", "on the run", "withdrawn by")
	if n := len(decode[audit.Record](d, d.must(0, "timeline", run, "--json", "--notes").stdout)) - len(d.records(run)); n != 5 {
		t.Errorf("%d records of notes, want 5", n)
	}
	d.must(0, "fsck")
	d.must(0, "rebuild")
	if got := decode[listed](d, d.must(0, "notes", run, "--json").stdout); len(got) != 4 || got[0].Withdrawn == nil {
		t.Errorf("after rebuild: %+v", got)
	}
	d.must(0, "fsck")

	for _, tc := range []struct {
		why  string
		args []string
	}{
		{"a text or a tag", []string{run}}, {"no such record", []string{run, "x", "--seq", "999999"}}, {"is not a tag", []string{run, "x", "-t", "A|b=c"}},
		{"not both", []string{run, "x", "--seq", "1", "--at", "+1s"}}, {"withdrawn before", []string{run, "x", "--withdraw", one}},
		{"no such note", []string{run, "x", "--withdraw", "a-1:7"}}, {"4097 bytes", []string{run, strings.Repeat("x", 4097)}},
		{"no such run", []string{"r-nothing", "x"}}, {"takes no notes", []string{strings.Split(one, ":")[0], "x"}},
		{"allows no other flag", []string{run, "x", "--withdraw", two, "-t", "y"}},
	} {
		said := d.must(exitFailed, append([]string{"note"}, tc.args...)...)
		d.contains(said.stderr, tc.why)
	}
}
