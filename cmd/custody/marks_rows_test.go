package main

import (
	"strings"
	"testing"

	"github.com/custody-project/custody/store"
)

// TestMarksNoSummary: search finds the records of a run without a summary in the store, and marks unsigned ones.
func TestMarksNoSummary(t *testing.T) {
	r := newRecorded(t, "")
	id, gone := r.run(), r.run()
	if err := r.home.Shipping().Ship(t.Context(), false, func(string) {}); err != nil {
		t.Fatal(err)
	}
	(&door{T: t, home: r.home.Dir}).sqlite(`DELETE FROM runs WHERE run = '` + gone + `';
		INSERT INTO records SELECT 'r-ghost', seq, time, kind, step, observer, proc, body, salt, path, host, hash, secret, rule, leaf FROM records WHERE run = '` + id + `' AND seq = 3;
		INSERT INTO records SELECT CAST(run AS BLOB), 77, time, kind, step, observer, proc, body, salt, path, host, hash, secret, rule, leaf FROM records WHERE run = '` + id + `' AND seq = 4`)
	lines := r.says(searchCmd{From: "1990-01-01T00:00:00Z", JSON: true})
	if n := strings.Count(lines, "\n"); n != 26 {
		t.Errorf("search finds %d records", n)
	}
	marks := r.marksOf(lines)
	if len(marks[id]) != 1 || marks[id][77] != store.Unsigned || len(marks[gone]) != 0 {
		t.Errorf("search marks %v", marks)
	}
	if text := r.says(searchCmd{From: "1990-01-01T00:00:00Z"}); strings.Count(text, "!! NOTHING SIGNED") != 2 {
		t.Errorf("search does not mark both records that nothing signed:\n%s", text)
	}
}

// TestRowOfOtherTypes: a value that custody does not write ends what reads it with an error that names the row and what to do.
func TestRowOfOtherTypes(t *testing.T) {
	r := newRecorded(t, "")
	id := r.run()
	if err := r.home.Shipping().Ship(t.Context(), false, func(string) {}); err != nil {
		t.Fatal(err)
	}
	kept := r.keepStore()
	search, timeline := searchCmd{From: "1990-01-01T00:00:00Z", JSON: true}, timelineCmd{Name: id, JSON: true}
	for _, c := range []struct {
		sql      string
		table    string
		commands []interface{ Run(*app) error }
	}{
		{"UPDATE records SET seq = 3.5 WHERE seq = 3", "records", []interface{ Run(*app) error }{search, timeline}},
		{"UPDATE records SET time = 'x' WHERE seq = 3", "records", []interface{ Run(*app) error }{timeline}},
		{"UPDATE records SET salt = x'00' WHERE seq = 3", "records", []interface{ Run(*app) error }{search, timeline}},
		{"UPDATE runs SET events = 'x'", "runs", []interface{ Run(*app) error }{runsCmd{JSON: true}, timeline}},
	} {
		(&door{T: t, home: r.home.Dir}).sqlite(c.sql)
		for _, command := range c.commands {
			var out strings.Builder
			a := newApp(t.Context(), nil, &out, &out)
			code, text := a.code(command.Run(a)), ""
			text = out.String()
			if code == 0 || !strings.Contains(text, "a row in the store's table "+c.table+", of run \""+id) || !strings.Contains(text, "hint: custody fsck lists") {
				t.Errorf("%s: %T exits %d: %s", c.sql, command, code, text)
			}
		}
		if code, text := r.fsck(fsckCmd{}); code != 1 || !strings.Contains(text, "run "+id) {
			t.Errorf("%s: fsck exits %d: %s", c.sql, code, text)
		}
		r.putBack(kept)
	}
}
