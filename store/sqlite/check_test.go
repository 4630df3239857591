package sqlite

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// checkedStore has two runs; the function returns what Check finds after other statements have changed the database.
func checkedStore(t *testing.T) func(statements ...string) (found []store.Difference, others []string) {
	t.Helper()
	all := slices.Concat(storetest.Segments("r-1", personal("r-1", 9), 4), storetest.Segments("r-2", personal("r-2", 5), 4))
	segments := func(yield func(store.Segment, error) bool) {
		for _, s := range all {
			if !yield(s, nil) {
				return
			}
		}
	}
	path := filepath.Join(t.TempDir(), "custody.db")
	return func(statements ...string) ([]store.Difference, []string) {
		t.Helper()
		if err := remove(path); err != nil {
			t.Fatal(err)
		}
		if _, refused, err := fill(t.Context(), path, segments); err != nil || refused != nil {
			t.Fatal(err, refused)
		}
		s := open1(t, path)
		conn, err := s.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range statements {
			if _, err := conn.ExecContext(t.Context(), q); err != nil {
				t.Fatalf("%s: %v", q, err)
			}
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		found, others, err := Check(t.Context(), path, []string{"r-1", "r-2"}, segments)
		if err != nil {
			t.Fatal(err)
		}
		if left, _ := filepath.Glob(path + checkedSuffix + "*"); len(left) > 0 {
			t.Errorf("left: %s", left)
		}
		return found, others
	}
}

// TestCheckEveryColumn alters each column of each table about runs, as listed in the schema.
func TestCheckEveryColumn(t *testing.T) {
	check := checkedStore(t)
	if found, others := check(); len(found)+len(others) > 0 {
		t.Fatalf("%v, other runs %q", found, others)
	}
	s := newStore(t)
	rows, err := s.db.QueryContext(t.Context(), `SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c
		WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%' AND EXISTS (SELECT 1 FROM pragma_table_info(t.name) WHERE name = 'run')`)
	if err != nil {
		t.Fatal(err)
	}
	tables := map[string]int{}
	for rows.Next() {
		var table, column string
		if err := rows.Scan(&table, &column); err != nil {
			t.Fatal(err)
		}
		tables[table]++
		if table == "feed" && (column == "id" || column == "mark") {
			continue // the order of ingestion
		}
		for _, value := range []string{"'x'", "NULL", "70"} {
			// one row of r-1 with another value; a column that cannot be NULL keeps its value
			found, others := check(fmt.Sprintf(`UPDATE OR IGNORE %[1]s SET "%[2]s" = %[3]s WHERE run = 'r-1' AND "%[2]s" IS NOT %[3]s`, table, column, value))
			if value == "NULL" && len(found) == 0 {
				continue
			}
			named := slices.ContainsFunc(found, func(d store.Difference) bool {
				return d.Run == "r-1" && strings.Contains(d.Text, "table "+table) && (strings.Contains(d.Text, "column "+column+":") || strings.Contains(d.Text, "a row is"))
			})
			if !named {
				t.Errorf("%s.%s = %s: %v, other runs %q", table, column, value, found, others)
			}
		}
	}
	if tables["records"] < 10 || tables["runs"] < 10 || tables["manifests"] < 5 {
		t.Errorf("the tables are %v", tables)
	}
}

func TestCheck(t *testing.T) {
	check := checkedStore(t)
	for name, c := range map[string]struct {
		statements []string
		want       string // in the findings
		other      string // run
	}{
		"record deleted":  {[]string{`DELETE FROM records WHERE run = 'r-1' AND seq = 3`}, "table records: a row is missing: r-1 3", ""},
		"type of a value": {[]string{`UPDATE records SET body = CAST(body AS TEXT) WHERE run = 'r-1' AND seq = 3`}, "table records, column body: the same value with another type in the row r-1 3; custody rebuild repairs that", ""},
		"summary deleted": {[]string{`DELETE FROM runs WHERE run = 'r-2'`}, "table runs: a row is missing: r-2", ""},
		"record added":    {[]string{`INSERT INTO records SELECT run, 77, time, kind, step, observer, proc, body, salt, path, host, hash, secret, rule, leaf FROM records WHERE run = 'r-1' AND seq = 3`}, "table records: a row exists that no record has: r-1 77", ""},
		"run invented":    {[]string{`UPDATE runs SET run = 'r-3' WHERE run = 'r-2'`}, "a row is missing: r-2", "r-3"},
		"index dropped":   {[]string{`DROP INDEX runs_by_start`}, "the index runs_by_start of table runs is missing or has another definition", ""},
		"index of part":   {[]string{`DROP INDEX runs_by_start`, `CREATE INDEX runs_by_start ON runs (coalesce(start, first_time)) WHERE run > 'r-1'`}, "runs_by_start", ""},
		"trigger":         {[]string{`CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM records WHERE run = new.run; END`}, "the trigger t of table records is not custody's", ""},
		"index that is not true": {[]string{
			`PRAGMA writable_schema = ON`,
			`UPDATE sqlite_schema SET sql = replace(sql, 'runs', 'manifests'), tbl_name = 'runs' WHERE name = 'nothing'`,
			`UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = 'other') WHERE name = 'nothing'`,
			`CREATE TABLE empty (run TEXT PRIMARY KEY) WITHOUT ROWID`,
			`CREATE INDEX emptied ON empty (run)`,
			`UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = 'emptied') WHERE name = 'runs_by_start'`,
		}, "SQLite's own check", ""},
	} {
		t.Run(name, func(t *testing.T) {
			found, others := check(c.statements...)
			if !slices.ContainsFunc(found, func(d store.Difference) bool { return strings.Contains(d.Text, c.want) }) {
				t.Errorf("found %v", found)
			}
			if c.other != "" && !slices.Equal(others, []string{c.other}) {
				t.Errorf("other runs: %q", others)
			}
		})
	}
}
