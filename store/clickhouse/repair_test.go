package clickhouse

import (
	"context"
	"fmt"
	"testing"

	"github.com/custody-project/custody/store/clickhouse/clickhousetest"
	"github.com/custody-project/custody/store/storetest"
)

// tampers are alterations of the segment from seq 21 to 40 of run r-1, one statement each.
var tampers = map[string]string{
	"rows removed":      "ALTER TABLE records DELETE WHERE seq BETWEEN 25 AND 30",
	"all removed":       "ALTER TABLE records DELETE WHERE seq BETWEEN 21 AND 40",
	"bodies":            "ALTER TABLE records UPDATE body = concat(body, ' ') WHERE seq BETWEEN 22 AND 33",
	"salts":             "ALTER TABLE records UPDATE salt = reverse(salt) WHERE seq = 21",
	"columns":           "ALTER TABLE records UPDATE path = '/elsewhere', kind = 'exec', proc = 'x', host = 'h' WHERE seq = 40",
	"a fork":            "INSERT INTO records (" + recordColumns + ") SELECT tenant, run, time, seq, reverse(leaf), class, reverse(root), kind, observer, step, proc, path, host, hash, secret, rule, salt, 'x' FROM records WHERE seq IN (23, 24)",
	"another time":      "INSERT INTO records (" + recordColumns + ") SELECT tenant, run, time + 7, seq, leaf, class, root, kind, observer, step, proc, path, host, hash, secret, rule, salt, body FROM records WHERE seq = 25",
	"another class":     "INSERT INTO records (" + recordColumns + ") SELECT tenant, run, time, seq, leaf, 'output', root, kind, observer, step, proc, path, host, hash, secret, rule, salt, body FROM records WHERE seq = 26",
	"copies":            "INSERT INTO records (" + recordColumns + ") SETTINGS insert_deduplicate = 0 SELECT " + recordColumns + " FROM records WHERE seq BETWEEN 21 AND 30",
	"marker's count":    "ALTER TABLE segments UPDATE count = count + 5, findings = 9, end = NULL WHERE idx = 1",
	"marker's place":    "ALTER TABLE segments UPDATE first = 1, last = 90, root = reverse(root) WHERE idx = 1",
	"marker removed":    "ALTER TABLE segments DELETE WHERE idx = 1",
	"everything of it":  "ALTER TABLE records DELETE WHERE 1",
	"a second marker":   "INSERT INTO segments (" + segmentColumns + ") SELECT tenant, host, run, idx, first, last, 3, root, digest, reverse(frames), manifest, first_time, last_seq, start, end, project, template, tier, mode, result, exit_code, 4, gaps, lost FROM segments WHERE idx = 1",
	"its words, erased": "ALTER TABLE records UPDATE host = 'still here' WHERE seq = 35",
}

// TestTampered: a repair corrects every alteration of the tables, and another one finds no difference.
func TestTampered(t *testing.T) {
	server := clickhousetest.Start(t)
	for name, statement := range tampers {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // mostly it waits for the server
			s := open(t, server.Fresh(), quick)
			segs := storetest.Run("r-1", 60, 20)
			storetest.Ingest(t, s, segs)
			o := &storetest.Oracle{}
			storetest.Ingest(t, o, segs)
			for _, st := range []interface {
				Erase(context.Context, string, string, uint64) error
			}{s, o} {
				if err := st.Erase(t.Context(), "", "r-1", 35); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.db.exec(synchronous(t.Context()), statement); err != nil {
				t.Fatal(err)
			}
			storetest.Repair(t, s, segs...)
			storetest.WantLike(t, s, o)
			in, err := prepare(segs[1])
			if err != nil {
				t.Fatal(err)
			}
			k := &known{}
			if p, err := s.repairer.plan(t.Context(), in, k); err != nil || !p.empty() {
				t.Errorf("after the repair there is still to do: %+v, %v", p, err)
			}
		})
	}
}

// TestRepairKilled kills a repair and the server after each of its steps: another repair completes it.
func TestRepairKilled(t *testing.T) {
	server := clickhousetest.Start(t)
	for step, name := range []string{"feed", "rows", "marker", "rows removed"} {
		t.Run(name, func(t *testing.T) {
			run := fmt.Sprint("r-", step)
			segs := storetest.Run(run, 60, 20)
			s := open(t, server.DSN("repaired"), quick)
			storetest.Ingest(t, s, segs)
			for _, statement := range []string{
				"ALTER TABLE records UPDATE body = concat(body, ' ') WHERE seq BETWEEN 22 AND 33 AND run = " + quote(run),
				"ALTER TABLE records DELETE WHERE seq = 36 AND run = " + quote(run),
				"ALTER TABLE segments UPDATE count = 7 WHERE idx = 1 AND run = " + quote(run),
			} {
				if err := s.db.exec(synchronous(t.Context()), statement); err != nil {
					t.Fatal(err)
				}
			}
			in, err := prepare(segs[1])
			if err != nil {
				t.Fatal(err)
			}
			p, err := s.repairer.plan(t.Context(), in, &known{})
			if err != nil {
				t.Fatal(err)
			}
			if step < 3 {
				p.badRows = nil
			}
			p.badMarkers = nil
			if step < 2 {
				p.marker = false
			}
			if step < 1 {
				p.rows = rowBuffer{}
			}
			if err := s.repairer.carryOut(t.Context(), in, p); err != nil {
				t.Fatal(err)
			}
			server.Kill()
			server.Restart()
			s = open(t, server.DSN("repaired"), quick)
			storetest.Repair(t, s, segs[1])
			wantOnce(t, s, run, segs)
		})
	}
}
