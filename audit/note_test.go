package audit_test

import (
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
)

func TestNoteCheck(t *testing.T) {
	good := audit.Note{Who: "ann", Via: "token", About: "r-1", Seq: 3, Leaf: "00", Text: "x\n\x1b", Tags: []string{"case-7", "a.b_c"}}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*audit.Note){
		"author":        func(n *audit.Note) { n.Who = "" },
		"an author":     func(n *audit.Note) { n.Via = "" },
		"a run":         func(n *audit.Note) { n.About = "" },
		"its leaf":      func(n *audit.Note) { n.Leaf = "" },
		"its seq":       func(n *audit.Note) { n.Seq = 0 },
		"4097 bytes":    func(n *audit.Note) { n.Text = audit.Text(strings.Repeat("x", audit.MaxNoteText+1)) },
		"UTF-8":         func(n *audit.Note) { n.Text = "\xff" },
		"a text or":     func(n *audit.Note) { n.Text, n.Tags = " \n", nil },
		"9 tags":        func(n *audit.Note) { n.Tags = strings.Split("a b c d e f g h i", " ") },
		"not a tag":     func(n *audit.Note) { n.Tags = []string{"A"} },
		"duplicate tag": func(n *audit.Note) { n.Tags = []string{"a", "b", "a"} },
		"name a note":   func(n *audit.Note) { n.Withdraws = "a-1" },
		`"a-1:07" does`: func(n *audit.Note) { n.Withdraws = "a-1:07" },
	} {
		n := good
		change(&n)
		if err := n.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}

func TestValidTag(t *testing.T) {
	for tag, want := range map[string]bool{
		"a": true, "7": true, "case-7": true, "a.b_c-d": true, strings.Repeat("x", 32): true, strings.Repeat("x", 33): false,
		"": false, "-a": false, ".a": false, "_a": false, "A": false, "a b": false, "a|b": false, "a=b": false, "ä": false, "a\n": false, "a,b": false, "a;b": false,
	} {
		if got := audit.ValidTag(tag); got != want {
			t.Errorf("%q: %v", tag, got)
		}
	}
}

// FuzzNoteID: formatting a parsed note id returns the same text.
func FuzzNoteID(f *testing.F) {
	for _, id := range []string{"a-1:7", "a-1:07", "a-1:", ":7", "a-1:7:8", "a-1:-7", "a-1:9223372036854775808"} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		if log, seq, ok := audit.ParseNoteID(id); ok && (audit.NoteID(log, seq) != id || log == "") {
			t.Errorf("%q is read as %q and %d", id, log, seq)
		}
	})
}
