package host_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/clickhouse/clickhousetest"
	"github.com/custody-project/custody/store/storetest"
)

// queryClickHouse executes a statement on a server.
func queryClickHouse(t *testing.T, dsn, statement string) {
	t.Helper()
	at, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	at.RawQuery = url.Values{"database": {strings.Trim(at.Path, "/")}}.Encode()
	at.Path = "/"
	resp, err := http.Post(at.String(), "text/plain", strings.NewReader(statement))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", statement, text)
	}
}

// TestFsckClickHouse: fsck names each searchable column that was altered in ClickHouse.
func TestFsckClickHouse(t *testing.T) {
	server := clickhousetest.Start(t)
	dsn := server.Fresh()
	h, err := host.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h.UseStore(dsn)
	id := host.NewRunID(storetest.Start())
	record(t, h, id, storetest.Events(12))
	if err := h.Shipping().Ship(t.Context(), false, func(string) {}); err != nil {
		t.Fatal(err)
	}
	query := func(statement string) { queryClickHouse(t, dsn, statement) }
	problems := func() string {
		t.Helper()
		checked, err := h.Checks().Fsck(t.Context(), host.FsckOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(checked.Problems)
	}
	if got := problems(); got != "[]" {
		t.Fatalf("nothing was altered, but fsck reports %s", got)
	}
	for _, column := range []string{"observer", "step", "proc", "path", "host", "hash", "secret", "rule"} {
		query("ALTER TABLE records UPDATE " + column + " = 'altered' WHERE seq = 3 SETTINGS mutations_sync = 2")
		if got := problems(); !strings.Contains(got, "record 3: ") || !strings.Contains(got, column) {
			t.Errorf("after %s was altered, fsck reports %s", column, got)
		}
	}
}

// TestFsckClickHouseMutations: fsck reports each altered definition, row and run in ClickHouse. Ship
// repairs altered rows of runs that have a log here, and reports them.
func TestFsckClickHouseMutations(t *testing.T) {
	dsn := clickhousetest.Start(t).Fresh()
	h, err := host.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h.UseStore(dsn)
	id := host.NewRunID(storetest.Start())
	record(t, h, id, storetest.Events(12))
	if err := h.Shipping().Ship(t.Context(), false, func(string) {}); err != nil {
		t.Fatal(err)
	}
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
	const synchronous = " SETTINGS mutations_sync = 2"
	again := func(table, columns, values string) string {
		return "INSERT INTO " + table + " (" + columns + ") SELECT " + values + " FROM " + table
	}
	const rows = "tenant, run, time, seq, leaf, class, root, kind, observer, step, proc, path, host, hash, secret, rule, salt, body"
	const segments = "tenant, host, run, idx, first, last, count, root, digest, frames, manifest, last_seq"
	for _, m := range []struct {
		name, statement, undo string // without undo Ship is to put it right
		want                  []string
	}{
		{"a column's type", "ALTER TABLE records MODIFY COLUMN step String", "ALTER TABLE records MODIFY COLUMN step LowCardinality(String)", []string{"row-altered", "table records", "step"}},
		{"a column more", "ALTER TABLE segments ADD COLUMN x String ALIAS upper(run)", "ALTER TABLE segments DROP COLUMN x", []string{"row-altered", "table segments", "x String ALIAS"}},
		{"no index", "ALTER TABLE records DROP INDEX by_rule", "ALTER TABLE records ADD INDEX by_rule rule TYPE set(64) GRANULARITY 1 AFTER by_secret", []string{"row-altered", "missing: INDEX by_rule"}},
		{"no projection", "ALTER TABLE records DROP PROJECTION by_time", "ALTER TABLE records ADD PROJECTION by_time (SELECT _part_offset ORDER BY tenant, time)", []string{"row-altered", "PROJECTION by_time"}},
		{"a table that drops rows", "ALTER TABLE feed MODIFY TTL toDateTime(stamp) + toIntervalYear(50)", "ALTER TABLE feed REMOVE TTL", []string{"row-altered", "table feed", "TTL"}},
		{"another order", "RENAME TABLE erasures TO kept; CREATE TABLE erasures AS kept ENGINE = ReplacingMergeTree ORDER BY (run, seq)", "DROP TABLE erasures SYNC; RENAME TABLE kept TO erasures",
			[]string{"row-altered", "table erasures"}},
		{"another engine", "RENAME TABLE erasures TO kept; CREATE TABLE erasures AS kept ENGINE = Memory", "DROP TABLE erasures SYNC; RENAME TABLE kept TO erasures", []string{"row-altered", "ENGINE = Memory"}},
		{"a view", "RENAME TABLE erasures TO kept; CREATE VIEW erasures AS SELECT * FROM kept WHERE run != 'x'", "DROP TABLE erasures SYNC; RENAME TABLE kept TO erasures", []string{"row-altered", "table erasures"}},
		{"rows of an invented run", again("records", rows, strings.Replace(rows, "run", "'r-invented'", 1)), "ALTER TABLE records DELETE WHERE run = 'r-invented'" + synchronous,
			[]string{"run-unsigned: run r-invented"}},
		{"an invented run of this host", again("segments", segments, strings.Replace(segments, "run", "'r-invented'", 1)), "ALTER TABLE segments DELETE WHERE run = 'r-invented'" + synchronous,
			[]string{"run-unsigned: run r-invented"}},
		{"an invented run of another host", again("segments", segments, strings.NewReplacer("host", "'other'", "run", "'r-invented'").Replace(segments)), "ALTER TABLE segments DELETE WHERE run = 'r-invented'" + synchronous,
			[]string{"run-unsigned: run r-invented"}},
		{"an invented run without manifests", again("segments", segments, strings.NewReplacer("host", "'other'", "run", "'r-invented'", "manifest", "''").Replace(segments)),
			"ALTER TABLE segments DELETE WHERE run = 'r-invented'" + synchronous, []string{"run-unsigned: run r-invented"}},
		{"a run under another tenant", again("segments", segments, strings.Replace(segments, "tenant", "'evil'", 1)), "ALTER TABLE segments DELETE WHERE tenant = 'evil'" + synchronous, []string{"run-unsigned", id, "evil"}},
		{"an altered column", "ALTER TABLE records UPDATE host = 'other.example' WHERE seq = 3" + synchronous, "", []string{"row-altered", id, "record 3", "host"}},
		{"an altered class", again("records", rows, strings.Replace(rows, "class", "'evidence'", 1)) + " WHERE seq = 3", "", []string{"row-altered", id, "record 3"}},
		{"a second row beside one", again("records", rows, strings.Replace(rows, "host", "'hidden.example'", 1)) + " WHERE seq = 4", "", []string{"row-altered", id, "4"}},
		{"an altered summary", "ALTER TABLE segments UPDATE findings = 7 WHERE 1" + synchronous, "", []string{"row-altered", id, "findings"}},
	} {
		t.Run(m.name, func(t *testing.T) {
			for _, statement := range strings.Split(m.statement, "; ") {
				queryClickHouse(t, dsn, statement)
			}
			got := problems(t)
			for _, want := range m.want {
				if !strings.Contains(got, want) {
					t.Errorf("fsck does not report %q:\n%s", want, got)
				}
			}
			var notices []string
			if m.undo == "" {
				if err := h.Shipping().Ship(t.Context(), true, func(text string) { notices = append(notices, text) }); err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(fmt.Sprint(notices), "run "+id+", segment 0: ") {
					t.Errorf("ship reports %q", notices)
				}
			} else {
				for _, statement := range strings.Split(m.undo, "; ") {
					queryClickHouse(t, dsn, statement)
				}
			}
			if got := problems(t); got != "" {
				t.Errorf("the store was repaired, but fsck reports: %s", got)
			}
		})
	}
}

// TestMarksClickHouse: runs without a log are marked in ClickHouse as in SQLite.
func TestMarksClickHouse(t *testing.T) {
	h, err := host.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	id := host.NewRunID(storetest.Start())
	record(t, h, id, storetest.Events(12))
	if err := h.Shipping().Ship(t.Context(), false, func(string) {}); err != nil {
		t.Fatal(err)
	}
	dsn := clickhousetest.Start(t).Fresh()
	const columns = "tenant, host, run, idx, first, last, count, root, digest, frames, manifest, first_time, last_seq, start, end, project, template, tier, mode, result, exit_code, findings, gaps, lost"
	states := func(t *testing.T) map[string]store.State {
		t.Helper()
		st, err := h.Store(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		marks, err := h.Checks().Marks(st)
		if err != nil {
			t.Fatal(err)
		}
		runs, err := st.Runs(t.Context(), store.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]store.State{}
		for _, r := range runs {
			all[r.ID] = marks.Run(t.Context(), r).State
		}
		return all
	}
	altered(t, filepath.Join(h.Dir, "custody.db"), `INSERT INTO runs SELECT 'r-invented', project, start, first_time, "end", status, result, exit_code, tier, mode, template, events, findings, gaps,
		lost, last_seq, tenant, host FROM runs`)
	inSQLite := states(t)
	h.UseStore(dsn)
	if err := h.Shipping().Ship(t.Context(), true, func(string) {}); err != nil {
		t.Fatal(err)
	}
	queryClickHouse(t, dsn, "INSERT INTO segments ("+columns+") SELECT "+strings.NewReplacer(" run,", " 'r-invented',", "manifest", "''").Replace(columns)+" FROM segments")
	want := map[string]store.State{id: store.Holds, "r-invented": store.Unsigned}
	if got := states(t); !maps.Equal(got, want) || !maps.Equal(inSQLite, want) {
		t.Errorf("marks in ClickHouse are %v, in SQLite %v, want %v", got, inSQLite, want)
	}
}
