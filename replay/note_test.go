package replay_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/store"
)

// noteRow is a note as a store has it, in a log of the tenant.
func noteRow(t *testing.T, log, tenant string, seq uint64, observer audit.Observer, n audit.Note) store.Row {
	t.Helper()
	at := time.Date(2026, 11, 3, 12, 0, int(seq), 0, time.UTC)
	body, err := json.Marshal(audit.Record{V: 1, Run: log, Seq: seq, Event: audit.Event{Time: at, Observer: observer, Kind: audit.KindNote, Note: &n}})
	if err != nil {
		t.Fatal(err)
	}
	h, err := store.ParseHead(body)
	if err != nil {
		t.Fatal(err)
	}
	return store.Row{Head: h, Tenant: tenant, Body: body}
}

// TestReadNote: only a host's note on this run, of its tenant, in an access log of that tenant or of a host without one, is one.
func TestReadNote(t *testing.T) {
	run := store.Run{ID: "r-1", Tenant: "acme"}
	good := audit.Note{Who: "ann", Via: "token", Tenant: "acme", About: "r-1", Text: "x"}
	edit := func(f func(*audit.Note)) audit.Note { n := good; f(&n); return n }
	for _, tc := range []struct {
		name        string
		log, tenant string
		observer    audit.Observer
		note        audit.Note
		want        bool
	}{
		{"its tenant's log", "a-1", "acme", audit.Host, good, true},
		{"log of a host without a tenant", "a-1", "", audit.Host, good, true},
		{"log of another tenant", "a-1", "globex", audit.Host, good, false},
		{"in a run", "r-1", "acme", audit.Host, good, false},
		{"by a guest", "a-1", "acme", audit.Guest, good, false},
		{"on another run", "a-1", "acme", audit.Host, edit(func(n *audit.Note) { n.About = "r-2" }), false},
		{"on a beginning", "a-1", "acme", audit.Host, edit(func(n *audit.Note) { n.About = "r-" }), false},
		{"of another tenant", "a-1", "acme", audit.Host, edit(func(n *audit.Note) { n.Tenant = "globex" }), false},
		{"of no tenant", "a-1", "", audit.Host, edit(func(n *audit.Note) { n.Tenant = "" }), false},
		{"by nobody", "a-1", "acme", audit.Host, edit(func(n *audit.Note) { n.Who = "" }), false},
	} {
		n, ok := replay.ReadNote(run, noteRow(t, tc.log, tc.tenant, 7, tc.observer, tc.note))
		if ok != tc.want || ok && (n.ID != "a-1:7" || n.Text != "x") {
			t.Errorf("%s: %+v %v, want %v", tc.name, n, ok, tc.want)
		}
	}
	row := noteRow(t, "a-1", "acme", 7, audit.Host, good)
	row.Erased = &[32]byte{}
	if _, ok := replay.ReadNote(run, row); ok {
		t.Error("an erased note is read")
	}
}

// TestNotes: notes come oldest first, each with the first withdrawal of it; a withdrawal cannot be withdrawn.
func TestNotes(t *testing.T) {
	run := store.Run{ID: "r-1"}
	var all []replay.Note
	add := func(log string, seq uint64, n audit.Note) {
		n.Via, n.About = "token", "r-1"
		note, ok := replay.ReadNote(run, noteRow(t, log, "", seq, audit.Host, n))
		if !ok {
			t.Fatalf("%s:%d is not read", log, seq)
		}
		all = append(all, note)
	}
	add("a-2", 9, audit.Note{Who: "cyd", Withdraws: "a-1:3", Text: "again"})
	add("a-2", 8, audit.Note{Who: "ben", Withdraws: "a-1:3", Text: "wrong run"})
	add("a-2", 7, audit.Note{Who: "ben", Withdraws: "a-9:9"})
	add("a-2", 6, audit.Note{Who: "ben", Withdraws: "a-2:7"})
	add("a-1", 5, audit.Note{Who: "ben", Tags: []string{"x"}})
	add("a-1", 3, audit.Note{Who: "ann", Text: "first"})
	before := slices.Clone(all)
	notes := replay.Notes(all)
	if len(notes) != 2 || notes[0].ID != "a-1:3" || notes[1].ID != "a-1:5" || notes[1].Withdrawn != nil {
		t.Fatalf("%+v", notes)
	}
	if w := notes[0].Withdrawn; w == nil || w.ID != "a-2:8" || w.Who != "ben" || w.Text != "wrong run" {
		t.Errorf("withdrawn: %+v", w)
	}
	for i := range all {
		if all[i].ID != before[i].ID {
			t.Error("the argument was changed")
		}
	}
}

// TestTimelineNotes: a note stands below its record and is escaped; one whose record is another, or is not there, is marked.
func TestTimelineNotes(t *testing.T) {
	run := store.Run{ID: "r-1"}
	rows := []store.Row{
		rowOf(t, 1, audit.Event{Observer: audit.Host, Kind: audit.KindVM, VM: &audit.VM{Op: "boot"}}),
		rowOf(t, 2, audit.Event{Observer: audit.Host, Kind: audit.KindVM, VM: &audit.VM{Op: "destroy"}}),
	}
	leaf := rows[0].Frame().Leaf()
	same := hex.EncodeToString(leaf[:])
	var all []replay.Note
	for i, n := range []audit.Note{
		{Who: "ann\x1b[2J", Text: "look\x1b[31m\nhere\u202e", Tags: []string{"case-7"}, Seq: 1, Leaf: same},
		{Who: "ben", Text: "not this", Seq: 2, Leaf: same},
		{Who: "cyd", Text: "gone", Seq: 9, Leaf: same},
		{Who: "dan", Text: "all of it"},
	} {
		n.Via, n.About = "token", "r-1"
		note, _ := replay.ReadNote(run, noteRow(t, "a-1", "", uint64(i+2), audit.Host, n))
		all = append(all, note)
	}
	rows = append(rows, rowOf(t, 10, audit.Event{Observer: audit.Host, Kind: audit.KindVM, VM: &audit.VM{Op: "x"}}))
	var out bytes.Buffer
	if err := replay.Timeline(&out, run, rowsOf(rows), replay.Options{Notes: replay.Notes(all)}); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if strings.ContainsAny(text, "\x1b\u202e") {
		t.Error("a note steers the terminal")
	}
	at := -1
	for _, want := range []string{"all of it", " boot", `ann\x1b[2J`, `look\x1b[31m\nhere\u{202e}  #case-7`, " destroy", "not this",
		"!! THE NOTE WAS WRITTEN ABOUT ANOTHER RECORD than the present record 2", "gone", "!! THE NOTE IS ABOUT RECORD 9", ", 4 notes"} {
		i := strings.Index(text, want)
		if i <= at {
			t.Errorf("%q is not there, or too early:\n%s", want, text)
		}
		at = i
	}
}

func rowsOf(rows []store.Row) replay.Rows {
	return func(yield func(store.Row, error) bool) {
		for _, r := range rows {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func rowOf(t *testing.T, seq uint64, e audit.Event) store.Row {
	t.Helper()
	e.Time = time.Date(2026, 11, 3, 11, 0, int(seq), 0, time.UTC)
	body, err := json.Marshal(audit.Record{V: 1, Run: "r-1", Seq: seq, Event: e})
	if err != nil {
		t.Fatal(err)
	}
	h, err := store.ParseHead(body)
	if err != nil {
		t.Fatal(err)
	}
	return store.Row{Head: h, Body: body}
}
