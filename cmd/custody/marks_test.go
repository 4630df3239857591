package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// recorded is a home with runs that were recorded without a VM, and a user of it.
type recorded struct {
	*testing.T
	home *host.Host
}

func newRecorded(t *testing.T, config string) *recorded {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("CUSTODY_HOME", dir)
	if err := os.WriteFile(filepath.Join(dir, host.ConfigFile), []byte("version: 1\n"+config), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := host.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return &recorded{t, h}
}

// run records one.
func (r *recorded) run() string {
	r.Helper()
	id := host.NewRunID(storetest.Start())
	run := r.begin(id)
	if record, stored := run.Close(r.Context(), wal.Sealed); record != nil || stored != nil {
		r.Fatal(record, stored)
	}
	return id
}

func (r *recorded) begin(id string) *host.Run {
	r.Helper()
	red := redact.New([]byte("0123456789abcdef0123456789abcdef"))
	run, err := r.home.Begin(r.Context(), host.RunOptions{ID: id, Mode: wal.Strict, Facts: statement.Facts{Tier: "none"}, Redactor: red})
	if err != nil {
		r.Fatal(err)
	}
	events := storetest.Events(12)
	events[5] = audit.Event{Time: events[5].Time, Observer: audit.Host, Kind: audit.KindFinding, Finding: &audit.Finding{Rule: "x", Detail: "y"}}
	for _, e := range events {
		if _, err := run.Record(r.Context(), e); err != nil {
			r.Fatal(err)
		}
	}
	return run
}

// keepStore copies the store, for putBack.
func (r *recorded) keepStore() string {
	r.Helper()
	kept := filepath.Join(r.TempDir(), "kept.db")
	(&door{T: r.T, home: r.home.Dir}).sqlite("VACUUM INTO '" + kept + "'")
	return kept
}

func (r *recorded) putBack(kept string) {
	r.Helper()
	data, err := os.ReadFile(kept)
	if err != nil {
		r.Fatal(err)
	}
	path := filepath.Join(r.home.Dir, "custody.db")
	os.Remove(path + "-wal")
	os.Remove(path + "-shm")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		r.Fatal(err)
	}
}

// says returns the output of a command.
func (r *recorded) says(c interface{ Run(*app) error }) string {
	r.Helper()
	var out bytes.Buffer
	if err := c.Run(newApp(r.Context(), nil, &out, r.Output())); err != nil {
		r.Fatalf("%T: %v", c, err)
	}
	return out.String()
}

// marksOf reads the marks out of lines of JSON: of runs, or of records by their seq.
func (r *recorded) marksOf(lines string) map[string]map[uint64]store.State {
	r.Helper()
	all := map[string]map[uint64]store.State{}
	for line := range strings.Lines(lines) {
		var one struct {
			Run  string
			Seq  uint64
			Mark *store.Mark `json:"verification"`
		}
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			r.Fatal(err, line)
		}
		if one.Mark == nil || one.Mark.State == store.Holds {
			continue
		}
		if one.Mark.Text == "" {
			r.Errorf("a mark without a reason: %s", line)
		}
		if all[one.Run] == nil {
			all[one.Run] = map[uint64]store.State{}
		}
		all[one.Run][one.Seq] = one.Mark.State
	}
	return all
}

const (
	inventedRun = `INSERT INTO runs SELECT 'r-invented', project, start, first_time, "end", status, result, exit_code, tier, mode, template, events, findings, gaps,
		lost, last_seq, tenant, host FROM runs`
	inventedRows = `INSERT INTO records SELECT 'r-invented', seq, time, kind, step, observer, proc, body, salt, path, host, hash, secret, rule, leaf FROM records`
	inventedLast = `INSERT INTO records SELECT run, %d, time, kind, step, observer, proc, body, salt, path, host, hash, secret, rule, leaf FROM records WHERE seq = 3`
)

// TestMarks alters the store, and checks that timeline, runs and search mark exactly what was altered.
func TestMarks(t *testing.T) {
	r := newRecorded(t, "")
	id := r.run()
	if err := r.home.Shipping().Ship(t.Context(), false, func(string) {}); err != nil {
		t.Fatal(err)
	}
	kept := r.keepStore()
	seq := func(seqs ...uint64) map[uint64]store.State {
		all := map[uint64]store.State{}
		for _, s := range seqs {
			all[s] = store.Fails
		}
		return all
	}
	for _, c := range []struct {
		name, sql string
		rows      map[uint64]store.State // of the genuine run
		run       store.State            // of its summary; empty: it holds
		invented  store.State            // of a run that is not genuine, and of its rows
		why       string                 // what verify and fsck say of that
	}{
		{name: "nothing"},
		{name: "a body", sql: `UPDATE records SET body = replace(body, '"seq":3', '"seq":3 ') WHERE seq = 3`, rows: seq(3)},
		{name: "a body of two lines", sql: `UPDATE records SET body = body || char(10) || body WHERE seq = 3`, rows: seq(3)},
		{name: "a body that is no JSON", sql: `UPDATE records SET body = 'x' WHERE seq = 3`, rows: seq(3)},
		{name: "a salt", sql: `UPDATE records SET salt = zeroblob(16) WHERE seq = 3`, rows: seq(3)},
		{name: "a kind", sql: `UPDATE records SET kind = 'dns' WHERE seq = 3`, rows: seq(3)},
		{name: "a time", sql: `UPDATE records SET time = time + 1 WHERE seq = 3`, rows: seq(3)},
		{name: "a host", sql: `UPDATE records SET host = 'evil.example' WHERE seq = 3`, rows: seq(3)},
		{name: "a path", sql: `UPDATE records SET path = '/etc/passwd' WHERE seq = 3`, rows: seq(3)},
		{name: "a rule", sql: `UPDATE records SET rule = 'y' WHERE rule = 'x'`, rows: seq(6)},
		{name: "two rows change places", sql: `UPDATE records SET seq = -seq WHERE seq IN (3, 4); UPDATE records SET seq = 7 + seq WHERE seq < 0`, rows: seq(3, 4)},
		{name: "an erased record that was not", sql: `UPDATE records SET leaf = randomblob(32), body = '', salt = '' WHERE seq = 3`, rows: seq(3)},
		{name: "a row more at the end", sql: strings.Replace(inventedLast, "%d", "400", 1), rows: map[uint64]store.State{400: store.Unsigned}},
		{name: "a summary's exit code", sql: `UPDATE runs SET exit_code = 77`, run: store.Fails},
		{name: "a summary's findings", sql: `UPDATE runs SET findings = 0`, run: store.Fails},
		{name: "a summary's end", sql: `UPDATE runs SET "end" = NULL, status = 'running'`, run: store.Fails},
		{name: "a summary's host", sql: `UPDATE runs SET host = ''`, run: store.Fails},
		{name: "a summary's length", sql: `UPDATE runs SET last_seq = 3, events = 3`, run: store.Fails},
		{name: "another tenant's", sql: `UPDATE runs SET tenant = 'other'`, run: store.Fails, rows: seq(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)},
		{name: "the store's manifests", sql: `DELETE FROM manifests`}, // the log has them
		{name: "an invented run", sql: inventedRun + ";" + inventedRows, invented: store.Unsigned, why: "no signature covers this run"},
		{name: "an invented run with another's manifests",
			sql: inventedRun + ";" + inventedRows + `; INSERT INTO manifests SELECT 'r-invented', idx, first, last, root, bytes, tenant, host, count FROM manifests`, invented: store.Fails,
			why: "manifest 0 was signed for another run or place"},
		{name: "an invented run with a manifest of nobody's",
			sql: inventedRun + ";" + inventedRows + `; INSERT INTO manifests SELECT 'r-invented', idx, first, last, root, 'x', tenant, host, count FROM manifests`, invented: store.Fails,
			why: "manifest 0 is not validly signed"},
		{name: "an invented run that a key of nobody's signed",
			sql:      inventedRun + ";" + inventedRows + `; INSERT INTO manifests SELECT 'r-invented', idx, first, last, root, CAST(replace(CAST(bytes AS TEXT), '— ', '— x') AS BLOB), tenant, host, count FROM manifests`,
			invented: store.Unsigned, why: "and this host has no log of the run"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &recorded{t, r.home}
			defer r.putBack(kept)
			(&door{T: t, home: r.home.Dir}).sqlite(c.sql)
			wantRows, wantRuns := map[string]map[uint64]store.State{}, map[string]map[uint64]store.State{}
			if c.rows != nil {
				wantRows[id] = c.rows
			}
			if c.run != "" {
				wantRuns[id] = map[uint64]store.State{0: c.run}
			}
			if c.invented != "" {
				wantRuns["r-invented"] = map[uint64]store.State{0: c.invented}
				wantRows["r-invented"] = map[uint64]store.State{}
				for i := uint64(1); i <= 12; i++ {
					wantRows["r-invented"][i] = c.invented
				}
			}
			same := func(command, lines string, want map[string]map[uint64]store.State) {
				t.Helper()
				got, _ := json.Marshal(r.marksOf(lines))
				if w, _ := json.Marshal(want); string(got) != string(w) {
					t.Errorf("%s marks %s, want %s", command, got, w)
				}
			}
			same("runs", r.says(runsCmd{JSON: true}), wantRuns)
			same("search", r.says(searchCmd{From: "1990-01-01T00:00:00Z", JSON: true}), wantRows)
			for _, run := range []string{id, "r-invented"} {
				if run != id && c.invented == "" {
					continue
				}
				want := map[string]map[uint64]store.State{}
				if wantRows[run] != nil {
					want[run] = wantRows[run]
				}
				same("timeline", r.says(timelineCmd{Name: run, JSON: true}), want)
				same("timeline --kind", r.says(timelineCmd{Name: run, JSON: true, Kind: []string{"gap"}}), want)
			}
			r.text(id, wantRows, wantRuns)
			r.exported(id, wantRows)
			if c.invented == "" {
				return
			}
			var out strings.Builder
			a := newApp(t.Context(), nil, &out, &out)
			if code := a.code(verifyCmd{What: "r-invented", Within: time.Hour}.Run(a)); code != 1 || !strings.Contains(out.String(), c.why) {
				t.Errorf("verify exits %d and does not say %q: %s", code, c.why, out.String())
			}
			if code := a.code(bundleCmd{Name: "r-invented", Out: filepath.Join(t.TempDir(), "b.tar")}.Run(a)); code == 0 {
				t.Error("a bundle is made of an invented run")
			}
			if code, text := r.fsck(fsckCmd{}); code != 1 || !strings.Contains(text, "run-unsigned: run r-invented: ") || !strings.Contains(text, c.why) {
				t.Errorf("fsck exits %d and does not say %q: %s", code, c.why, text)
			}
		})
	}
}

// text checks that the tables have the same marks as their JSON.
func (r *recorded) text(id string, rows, runs map[string]map[uint64]store.State) {
	r.Helper()
	word := map[store.State]string{store.Fails: "!! NOT WHAT WAS SIGNED", store.Unsigned: "!! NOTHING SIGNED"}
	count := func(command, text string, marks ...map[uint64]store.State) {
		r.Helper()
		want := map[store.State]int{}
		for _, m := range marks {
			for _, state := range m {
				want[state]++
			}
		}
		for state, w := range word {
			if got := strings.Count(text, w); got != want[state] {
				r.Errorf("%s says %q %d times, want %d:\n%s", command, w, got, want[state], text)
			}
		}
	}
	count("runs", r.says(runsCmd{}), runs[id], runs["r-invented"])
	count("search", r.says(searchCmd{From: "1990-01-01T00:00:00Z"}), rows[id], rows["r-invented"])
	for run := range rows {
		text := r.says(timelineCmd{Name: run})
		for seq, state := range rows[run] {
			if want := "!! RECORD " + text1(seq) + ": " + strings.TrimPrefix(word[state], "!! "); !strings.Contains(text, want) {
				r.Errorf("timeline of %s does not say %q:\n%s", run, want, text)
			}
		}
	}
	for run, marks := range runs {
		if text := r.says(timelineCmd{Name: run, At: "+0s"}); !strings.Contains(text, word[marks[0]]) {
			r.Errorf("the state of %s is not marked:\n%s", run, text)
		}
	}
}

func text1(n uint64) string { b, _ := json.Marshal(n); return string(b) }

// TestMarksLive: what is not sealed yet is live, in a run that goes on, and not taken for invented; an invented row in it is.
func TestMarksLive(t *testing.T) {
	r := newRecorded(t, "")
	id := host.NewRunID(storetest.Start())
	run := r.begin(id)
	logs := r.home.Logs()
	marks, err := r.home.Checks().Marks(logs)
	if err != nil {
		t.Fatal(err)
	}
	states := func(reader host.Reader) map[store.State]int {
		all := map[store.State]int{}
		for row, err := range reader.Records(t.Context(), store.Query{Run: id}) {
			if err != nil {
				t.Fatal(err)
			}
			all[marks.Row(t.Context(), row).State]++
		}
		return all
	}
	if got := states(logs); got[store.Live]+got[store.Holds] != 12 {
		t.Errorf("of a live run's log: %v", got)
	}
	if got := marks.Run(t.Context(), store.Run{ID: id}); got.State != store.Live {
		t.Errorf("a live run is %v", got)
	}
	if record, stored := run.Close(t.Context(), wal.Sealed); record != nil || stored != nil {
		t.Fatal(record, stored)
	}
	time.Sleep(300 * time.Millisecond) // the list of manifests was read before
	if got := states(logs); got[store.Holds] != 12 {
		t.Errorf("of its log after its end: %v", got)
	}
}

// TestMarksElsewhere: records that only the store has are compared with the store's manifests, and those with the known
// keys.
func TestMarksElsewhere(t *testing.T) {
	r := newRecorded(t, "")
	id := r.run()
	if err := r.home.Shipping().Ship(t.Context(), false, func(string) {}); err != nil {
		t.Fatal(err)
	}
	dir := r.home.RunDir(id)
	genuine := r.keepStore()
	const altered = `UPDATE records SET body = replace(body, '"seq":3', '"seq":3 ') WHERE seq = 3`
	wants := func(t *testing.T, name string, run, row store.State) {
		t.Helper()
		r := &recorded{t, r.home}
		for _, c := range []interface{ Run(*app) error }{runsCmd{JSON: true}, searchCmd{From: "1990-01-01T00:00:00Z", JSON: true}, timelineCmd{Name: id, JSON: true}} {
			want := row
			if _, runs := c.(runsCmd); runs {
				want = run
			}
			if got := r.marksOf(r.says(c))[id]; want == "" && got != nil || want != "" && got[3]+got[0] != want {
				t.Errorf("%s: %T marks %v, want %q", name, c, got, want)
			}
		}
	}
	for _, pattern := range []string{"*" + wal.SegmentSuffix, "*" + wal.LeavesSuffix} {
		files, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, file := range files {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	wants(t, "retention removed the log", "", "")
	(&door{T: t, home: r.home.Dir}).sqlite(altered)
	wants(t, "retention removed the log, a record altered", store.Fails, store.Fails)
	r.putBack(genuine)

	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	wants(t, "no log here", "", "")
	(&door{T: t, home: r.home.Dir}).sqlite(altered)
	wants(t, "no log here, a record altered", store.Fails, store.Fails)

	r.home = newRecorded(t, "").home
	r.run() // so that it has a key and a store
	r.putBack(genuine)
	wants(t, "a host that does not know the key", store.Unsigned, store.Unsigned)
	if text := r.says(runsCmd{}); !strings.Contains(text, "it is not signed by this host's key but by ") {
		t.Errorf("runs does not say whose key it is: %s", text)
	}
}

// TestMarksBehind: a run whose end was removed from the store is marked, and the timeline names the missing records.
func TestMarksBehind(t *testing.T) {
	r := newRecorded(t, "")
	id := host.NewRunID(storetest.Start())
	run := r.begin(id)
	time.Sleep(1500 * time.Millisecond) // a segment is sealed
	for _, e := range storetest.Events(12)[10:] {
		if _, err := run.Record(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if record, stored := run.Close(t.Context(), wal.Sealed); record != nil || stored != nil {
		t.Fatal(record, stored)
	}
	if err := r.home.Shipping().Ship(t.Context(), false, func(string) {}); err != nil {
		t.Fatal(err)
	}
	(&door{T: t, home: r.home.Dir}).sqlite(`DELETE FROM records WHERE seq > 12; DELETE FROM manifests WHERE idx > 0;
		UPDATE runs SET last_seq = 12, events = 12`)
	if got := r.marksOf(r.says(runsCmd{JSON: true}))[id]; got[0] != store.Fails {
		t.Errorf("runs marks %v", got)
	}
	if text := r.says(timelineCmd{Name: id}); !strings.Contains(text, "RECORDS 13 TO 14 ARE NOT IN THE STORE") {
		t.Errorf("timeline does not say what is missing at the end: %s", text)
	}
}

// TestVerifyOtherName: the genuine record of one run under the name of another is not that other run's.
func TestVerifyOtherName(t *testing.T) {
	r := newRecorded(t, "")
	id := r.run()
	copied := host.NewRunID(storetest.Start().Add(time.Hour))
	copyTree(t, r.home.RunDir(id), r.home.RunDir(copied))
	var out strings.Builder
	a := newApp(t.Context(), nil, &out, &out)
	if code := a.code(verifyCmd{What: copied, Within: time.Hour}.Run(a)); code != 1 || !strings.Contains(out.String(), "the record of another run, "+id) {
		t.Errorf("verify exits %d: %s", code, out.String())
	}
	if code, text := r.fsck(fsckCmd{}); code != 1 || !strings.Contains(text, "run-unsigned: run "+copied) {
		t.Errorf("fsck exits %d: %s", code, text)
	}
}
