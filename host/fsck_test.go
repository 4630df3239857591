package host_test

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/store/storetest"
)

// altered applies statements to the store at path.
func altered(t *testing.T, path string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	defer db.Close()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// columnsOf returns table and column of all that have rows of runs.
func columnsOf(t *testing.T, path string) (all [][2]string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query(`SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c
		WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%' AND t.name NOT LIKE '%scrub%' AND t.name <> 'schema_version'`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var one [2]string
		if err := rows.Scan(&one[0], &one[1]); err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

const anotherRecord = "INSERT INTO records SELECT run, 7777, time, kind, step, observer, proc, body, salt, path, host, hash, secret, rule, leaf FROM records LIMIT 1"

// TestFsckMutations: fsck reports the run, table and column of any change to any column of the store's tables.
func TestFsckMutations(t *testing.T) {
	h, err := host.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	id := host.NewRunID(storetest.Start())
	events := storetest.Events(12)
	events[5] = audit.Event{Time: events[5].Time, Observer: audit.Host, Kind: audit.KindFinding, Finding: &audit.Finding{Rule: "x", Detail: "y"}}
	record(t, h, id, events)
	if err := h.Shipping().Ship(t.Context(), false, func(string) {}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(h.Dir, "custody.db")
	altered(t, path, "PRAGMA wal_checkpoint(TRUNCATE)", "VACUUM INTO '"+path+".kept'")
	problems := func(t *testing.T) string {
		t.Helper()
		checked, err := h.Checks().Fsck(t.Context(), host.FsckOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for _, p := range checked.Problems {
			fmt.Fprintf(&text, "%s: %s\n", p.Name(), p.Error())
		}
		return text.String()
	}
	if got := problems(t); got != "" {
		t.Fatalf("nothing was altered, but fsck reports: %s", got)
	}
	type mutation struct {
		name, statement string
		want            []string
	}
	all := []mutation{
		{"a row is gone", "DELETE FROM records WHERE seq = 3", []string{id, "3"}},
		{"all rows are gone", "DELETE FROM runs", []string{id}},
		{"a manifest more", "INSERT INTO manifests SELECT run, 77, first, last, root, bytes, tenant, host, count FROM manifests LIMIT 1", []string{id, "77"}},
		{"a record more", anotherRecord, []string{id, "7777"}},
		{"an invented run", `INSERT INTO runs SELECT 'r-invented', project, start, first_time, "end", status, result, exit_code, tier, mode, template, events, findings, gaps,
			lost, last_seq, tenant, host FROM runs`, []string{"r-invented"}},
		{"an invented run of another host without manifests", `INSERT INTO runs SELECT 'r-invented', project, start, first_time, "end", status, result, exit_code, tier, mode, template, events, findings, gaps,
			lost, last_seq, tenant, 'other' FROM runs`, []string{"r-invented"}},
		{"another index of the same name", "DROP INDEX records_by_host; CREATE INDEX records_by_host ON records (host, time) WHERE host IS NOT NULL AND host <> 'evil.example'",
			[]string{"row-altered", "records_by_host"}},
		{"an index lacks rows", `PRAGMA writable_schema = 1;
			CREATE TABLE hidden (a);
			UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = 'hidden') WHERE name = 'records_by_time'`, []string{"row-altered"}},
		{"a trigger whose name begins as statistics do", "CREATE TRIGGER sqliteXstats AFTER INSERT ON records BEGIN DELETE FROM records; END", []string{"row-altered", "trigger sqliteXstats"}},
		{"a trigger by hand", `PRAGMA writable_schema = 1;
			INSERT INTO sqlite_schema SELECT 'trigger', 'sqlite_stat9', 'records', 0, 'CREATE TRIGGER sqlite_stat9 AFTER INSERT ON records BEGIN DELETE FROM records; END'`,
			[]string{"row-altered", "trigger sqlite_stat9"}},
		{"a view", "CREATE VIEW v AS SELECT * FROM records", []string{"row-altered", "view v"}},
		{"a generated column", "ALTER TABLE records ADD COLUMN g TEXT AS (upper(host)) VIRTUAL", []string{"row-altered", "table records"}},
		{"another collation", "DROP INDEX records_by_path; CREATE INDEX records_by_path ON records (path COLLATE NOCASE, time) WHERE path IS NOT NULL", []string{"row-altered", "records_by_path"}},
		{"no index", "DROP INDEX records_by_time", []string{"row-altered", "records_by_time"}},
		{"the type of a body", "UPDATE records SET body = cast(body AS TEXT) WHERE seq = 3", []string{id, "column body", "3"}},
		{"the type of a number", "UPDATE runs SET exit_code = cast(exit_code AS BLOB)", []string{id, "column exit_code"}},
		{"the type of a run's name", "UPDATE records SET run = cast(run AS BLOB) WHERE seq = 3", []string{id, "a row is missing", "3"}},
		{"an id of the application", "PRAGMA application_id = 7", []string{"row-altered", "application_id"}},
		{"two rows change places", "UPDATE records SET seq = -seq WHERE seq IN (3, 4); UPDATE records SET seq = 7 + seq WHERE seq < 0", []string{id, "3", "4"}},
		{"an erased record that was not", "UPDATE records SET leaf = zeroblob(32), body = '', salt = '' WHERE seq = 3", []string{id, "3"}},
		{"null where a text was", "UPDATE records SET rule = NULL WHERE rule IS NOT NULL", []string{id, "column rule"}},
		{"a fractional seq", strings.Replace(anotherRecord, "7777", "3.5", 1), []string{"row-altered", "table records: a row exists that no record has", "3.5"}},
		{"a seq that is text", strings.Replace(anotherRecord, "7777", "'x'", 1), []string{"row-altered", "table records: a row exists that no record has", " x"}},
		{"a time that is text", "UPDATE records SET time = 'x' WHERE seq = 3", []string{id, "column time", "3"}},
		{"a time that is no integer", "UPDATE records SET time = 1.5 WHERE seq = 3", []string{id, "column time", "3"}},
		{"a manifest's first seq that is text", "UPDATE manifests SET first = 'x'", []string{id, "column first"}},
		{"a segment that is not exported", "UPDATE feed SET id = -id", []string{"row-altered", "table feed", id, "no id that exporters read"}},
		{"no more segments can be taken in", "UPDATE sqlite_sequence SET seq = 9223372036854775807", []string{"row-altered", "table sqlite_sequence"}},
		{"no more segments can be taken in, by a row", "UPDATE feed SET id = 9223372036854775807", []string{"row-altered", "table feed", "no id that exporters read"}},
		{"the last id of the feed is gone", "DELETE FROM sqlite_sequence", []string{"row-altered", "table sqlite_sequence"}},
		{"the last id of the feed is text", "UPDATE sqlite_sequence SET seq = 'x'", []string{"row-altered", "table sqlite_sequence"}},
		{"the feed's marks", "UPDATE feed SET mark = ''", []string{"row-altered", "table feed", "no mark of 8 bytes"}},
		{"a row of what is to be rewritten", "INSERT INTO scrub VALUES (9)", []string{"row-altered", "table scrub", "9"}},
		{"no table of what is to be rewritten", "DROP TABLE scrub", []string{"row-altered", "table scrub is missing"}},
		{"a trigger", "CREATE TRIGGER x AFTER INSERT ON records BEGIN DELETE FROM records; END", []string{"row-altered", "trigger x"}},
	}
	for _, c := range columnsOf(t, path) {
		table, column := c[0], c[1]
		if table == "feed" && (column == "id" || column == "mark") { // each database chooses its own
			continue
		}
		want := []string{id, table}
		if column != "idx" && column != "seq" && column != "run" { // else the row is missing, and another is there
			want = append(want, "column "+column)
		}
		all = append(all, mutation{table + "." + column,
			fmt.Sprintf(`UPDATE OR REPLACE "%s" SET "%s" = CASE typeof("%s") WHEN 'integer' THEN "%s" + 40 WHEN 'blob' THEN x'01' ELSE 'altered' END`, table, column, column, column),
			want})
	}
	for _, m := range all {
		t.Run(m.name, func(t *testing.T) {
			defer putBack(t, path)
			altered(t, path, m.statement)
			got := problems(t)
			for _, want := range m.want {
				if !strings.Contains(got, want) {
					t.Errorf("fsck does not report %q:\n%s", want, got)
				}
			}
		})
	}
	if got := problems(t); got != "" {
		t.Errorf("the store was restored, but fsck reports: %s", got)
	}
}

// putBack restores the store at path from its copy.
func putBack(t *testing.T, path string) {
	t.Helper()
	for _, suffix := range []string{"-wal", "-shm", ""} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	altered(t, path+".kept", "VACUUM INTO '"+path+"'")
}

// TestFsckHeldLock: fsck reports a run as live only because another program holds its lock.
func TestFsckHeldLock(t *testing.T) {
	h, err := host.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	id := host.NewRunID(storetest.Start())
	record(t, h, id, storetest.Events(3))
	if err := h.Shipping().Ship(t.Context(), false, func(string) {}); err != nil {
		t.Fatal(err)
	}
	holder := exec.Command("flock", filepath.Join(h.RunDir(id), "lock"), "sh", "-c", "echo held; exec cat")
	in, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer holder.Wait()
	defer in.Close()
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	checked, err := h.Checks().Fsck(t.Context(), host.FsckOptions{})
	if err != nil || len(checked.Problems) != 1 || checked.Problems[0].Name() != "lock-held" {
		t.Errorf("fsck reports %v, %v", checked.Problems, err)
	}
}

// TestFsckPruned: if only the store has a run's records, fsck compares its columns and summary with them.
func TestFsckPruned(t *testing.T) {
	for _, gone := range []string{"segments", "log"} {
		h, err := host.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		id := host.NewRunID(storetest.Start())
		record(t, h, id, storetest.Events(12))
		if err := h.Shipping().Ship(t.Context(), false, func(string) {}); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(h.Dir, "custody.db")
		altered(t, path, "PRAGMA wal_checkpoint(TRUNCATE)", "VACUUM INTO '"+path+".kept'")
		if gone == "log" {
			if err := os.RemoveAll(h.RunDir(id)); err != nil {
				t.Fatal(err)
			}
		} else {
			if err := os.WriteFile(filepath.Join(h.RunDir(id), "pruned"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			for _, suffix := range []string{"*.seg", "*.leaves"} {
				files, _ := filepath.Glob(filepath.Join(h.RunDir(id), suffix))
				for _, file := range files {
					os.Remove(file)
				}
			}
		}
		for _, c := range []struct{ statement, want string }{
			{"SELECT 1", ""},
			{"UPDATE records SET host = 'other.example' WHERE seq = 3", "column host"},
			{"UPDATE records SET time = time + 1 WHERE seq = 3", "column time"},
			{"UPDATE records SET kind = 'dns' WHERE seq = 3", "column kind"},
			{"UPDATE runs SET findings = 7", "column findings"},
			{"UPDATE runs SET exit_code = 77", "column exit_code"},
			{"UPDATE records SET body = body || ' ' WHERE seq = 3", id},
			{"DELETE FROM feed", "a row is missing"},
		} {
			altered(t, path, c.statement)
			checked, err := h.Checks().Fsck(t.Context(), host.FsckOptions{})
			if err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprint(checked.Problems)
			if c.want == "" && len(checked.Problems) > 0 || !strings.Contains(got, c.want) {
				t.Errorf("without its %s, after %q: fsck reports %s, want %q", gone, c.statement, got, c.want)
			}
			putBack(t, path)
		}
	}
}
