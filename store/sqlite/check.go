package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	lib "modernc.org/sqlite/lib"

	"github.com/custody-project/custody/store"
)

// checkedSuffix ends the name of the temporary database of Check.
const checkedSuffix = ".fsck"

// notDerived are columns that the segments do not determine for an erased record: only the store has its time.
var notDerived = map[string]string{
	"records.time":    " AND a.leaf IS NULL",
	"runs.first_time": " AND NOT EXISTS (SELECT 1 FROM main.records r WHERE r.run = a.run AND r.leaf IS NOT NULL)",
}

// maxDifferences bounds the number of differences that Check returns.
const maxDifferences = 1000

// Check builds a second database from segments, which must be complete runs, and compares every column of every table
// with the one at path: slow, and obviously right. It also runs SQLite's check of its structures, and compares the
// schema: a redefined index can hide rows from a search. It returns the names of other runs, which it cannot
// compare. It compares neither the order of the feed, in which a repaired segment occurs twice, nor the times
// of erased records.
func Check(ctx context.Context, path string, runs []string, segments iter.Seq2[store.Segment, error]) (found []store.Difference, others []string, err error) {
	fresh := path + checkedSuffix
	if err := remove(fresh); err != nil {
		return nil, nil, fmt.Errorf("check store: %w", err)
	}
	defer func() { err = errors.Join(err, remove(fresh)) }()
	_, refused, err := fill(ctx, fresh, segments)
	if err != nil {
		return nil, nil, fmt.Errorf("check store: %w", err)
	}
	if refused != nil {
		found = append(found, store.Difference{Text: "segments that the store refuses: " + refused.Error()})
	}
	db, err := sql.Open("sqlite", "file:"+fresh)
	if err != nil {
		return found, nil, fmt.Errorf("check store: %w", err)
	}
	db.SetMaxOpenConns(1) // an attached database belongs to the connection
	c := checking{ctx: ctx, db: db, found: found}
	err = c.all(path, runs)
	if isCode(err, lib.SQLITE_CORRUPT) { // too damaged for SQLite: that is the result
		c.found = append(c.found, store.Difference{Text: (&CorruptError{Path: path, Err: err}).Error()})
		err = nil
	}
	return c.found, c.others, errors.Join(err, db.Close())
}

type checking struct {
	ctx    context.Context
	db     *sql.DB
	found  []store.Difference
	others []string
}

func (c *checking) add(run, format string, args ...any) {
	if len(c.found) < maxDifferences {
		c.found = append(c.found, store.Difference{Run: run, Text: fmt.Sprintf(format, args...)})
	}
}

func (c *checking) all(path string, runs []string) error {
	for _, s := range []string{"PRAGMA busy_timeout = 15000", "CREATE TEMP TABLE checked (run TEXT PRIMARY KEY)"} {
		if _, err := c.db.ExecContext(c.ctx, s); err != nil {
			return fmt.Errorf("check store: %w", err)
		}
	}
	if _, err := c.db.ExecContext(c.ctx, "ATTACH ? AS live", path); err != nil {
		return fmt.Errorf("check store: %w", err)
	}
	for _, run := range runs {
		if _, err := c.db.ExecContext(c.ctx, "INSERT INTO checked VALUES (?)", run); err != nil {
			return fmt.Errorf("check store: %w", err)
		}
	}
	for _, step := range []func() error{c.structure, c.schema, c.numbers, c.tables, c.feed} {
		if err := step(); err != nil {
			return fmt.Errorf("check store: %w", err)
		}
	}
	slices.Sort(c.others)
	c.others = slices.Compact(c.others)
	return nil
}

// structure runs SQLite's check of its pages, and of its indexes against their tables.
func (c *checking) structure() error {
	return c.rows(func(values []any) {
		if text := fmt.Sprint(values[0]); text != "ok" {
			c.add("", "SQLite's own check: %s", text)
		}
	}, "PRAGMA live.integrity_check")
}

// schema compares the definitions of tables, indexes, views and triggers.
func (c *checking) schema() error {
	const defined = "SELECT type, name, tbl_name, coalesce(sql, '') FROM %s.sqlite_schema WHERE NOT (type = 'table' AND name IN ('sqlite_stat1', 'sqlite_stat4'))"
	for _, side := range []struct{ a, b, text string }{{"main", "live", "is missing or has another definition"}, {"live", "main", "is not custody's"}} {
		err := c.rows(func(v []any) {
			c.add("", "the %s %s of table %s %s; custody rebuild repairs that", v[0], v[1], v[2], side.text)
		},
			fmt.Sprintf(defined, side.a)+" EXCEPT "+fmt.Sprintf(defined, side.b))
		if err != nil {
			return err
		}
	}
	return nil
}

// numbers compares values in the file's header.
func (c *checking) numbers() error {
	for _, pragma := range []string{"user_version", "application_id", "encoding"} {
		var is, want any
		for schema, into := range map[string]*any{"main": &want, "live": &is} {
			if err := c.db.QueryRowContext(c.ctx, "PRAGMA "+schema+"."+pragma).Scan(into); err != nil {
				return err
			}
		}
		if is != want {
			c.add("", "PRAGMA %s is %v, not %v", pragma, is, want)
		}
	}
	return nil
}

// tables compares all tables about runs.
func (c *checking) tables() error {
	var tables []string
	err := c.rows(func(v []any) { tables = append(tables, fmt.Sprint(v[0])) },
		"SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name")
	if err != nil {
		return err
	}
	for _, table := range tables {
		if err := c.table(table); err != nil && !undefined(err) { // schema has reported what is missing
			return fmt.Errorf("table %s: %w", table, err)
		}
	}
	return nil
}

func (c *checking) table(table string) error {
	var keys, columns []string
	err := c.rows(func(v []any) {
		name := `"` + fmt.Sprint(v[0]) + `"`
		switch {
		case table == "feed" && (name == `"id"` || name == `"mark"`): // the position of ingestion, not contents
		case table == "feed" && (name == `"run"` || name == `"idx"`), table != "feed" && fmt.Sprint(v[1]) != "0":
			keys = append(keys, name)
		default:
			columns = append(columns, name)
		}
	}, "SELECT name, pk FROM pragma_table_info(?, 'main')", table)
	if err != nil || !slices.Contains(keys, `"run"`) {
		return err // it is not about runs
	}
	same := make([]string, len(keys))
	for i, k := range keys {
		same[i] = "a." + k + " IS b." + k
	}
	row := "a." + strings.Join(keys, " || ' ' || a.")
	on := strings.Join(same, " AND ")
	for _, q := range []struct{ from, in, text string }{{"main", "live", "a row is missing"}, {"live", "main", "a row exists that no record has"}} {
		err := c.rows(func(v []any) { c.add(text(v[0]), "table %s: %s: %s", table, q.text, text(v[1])) },
			fmt.Sprintf("SELECT a.run, %s FROM %s.%s a WHERE a.run IN checked AND NOT EXISTS (SELECT 1 FROM %s.%s b WHERE %s)",
				row, q.from, table, q.in, table, on))
		if err != nil {
			return err
		}
	}
	for _, column := range columns {
		unless := notDerived[table+"."+strings.Trim(column, `"`)]
		err := c.rows(func(v []any) {
			said := "another value in the row " + text(v[1])
			if fmt.Sprint(v[2]) == "1" { // a repair compares what is signed, which is the same
				said = "the same value with another type in the row " + text(v[1]) + "; custody rebuild repairs that, custody ship --differ does not"
			}
			c.add(text(v[0]), "table %s, column %s: %s", table, strings.Trim(column, `"`), said)
		},
			fmt.Sprintf("SELECT a.run, %s, cast(a.%s AS BLOB) IS cast(b.%s AS BLOB) FROM main.%s a JOIN live.%s b ON %s WHERE (typeof(a.%s) IS NOT typeof(b.%s) OR cast(a.%s AS BLOB) IS NOT cast(b.%s AS BLOB))%s",
				row, column, column, table, table, on, column, column, column, column, unless))
		if err != nil {
			return err
		}
	}
	return c.rows(func(v []any) { c.others = append(c.others, text(v[0])) },
		fmt.Sprintf("SELECT DISTINCT run FROM live.%s WHERE run NOT IN checked", table))
}

// maxFeed is above all ids of a feed, which has one for each segment.
const maxFeed = 1 << 53

// feed checks what tables does not compare: the ids by which exporters read it. A row without an id above 0 is never exported, and no
// segment can be ingested after the largest integer.
func (c *checking) feed() error {
	for _, q := range []struct {
		text, query string
		args        []any
	}{
		{"table feed: the row %s of run %s has no id that exporters read", "SELECT id, run FROM live.feed WHERE id NOT BETWEEN 1 AND ?", []any{maxFeed}},
		{"table feed: the row %s of run %s has no mark of 8 bytes", "SELECT id, run FROM live.feed WHERE typeof(mark) <> 'blob' OR length(mark) <> 8", nil},
		{"table sqlite_sequence: the last id of the feed is %s, and the one that was given is %s",
			`SELECT f.id, s.seq FROM (SELECT coalesce(max(id), 0) AS id FROM live.feed) f LEFT JOIN live.sqlite_sequence s ON s.name = 'feed'
			WHERE f.id > 0 AND s.seq IS NULL OR typeof(s.seq) NOT IN ('integer', 'null') OR s.seq NOT BETWEEN f.id AND ?`, []any{maxFeed}},
		{"table scrub: the row %s is %s", "SELECT pending, 'not custody''s' FROM live.scrub WHERE pending <> 1", nil},
	} {
		err := c.rows(func(v []any) { c.add("", q.text+"; custody rebuild repairs that", text(v[0]), text(v[1])) }, q.query, q.args...)
		if err != nil && !undefined(err) { // schema has reported what is missing
			return err
		}
	}
	return nil
}

// text formats a value for display.
func text(v any) string {
	if b, ok := v.([]byte); ok {
		return fmt.Sprintf("%q", b)
	}
	return fmt.Sprint(v)
}

// rows calls each with the values of each row.
func (c *checking) rows(each func(values []any), query string, args ...any) error {
	rows, err := c.db.QueryContext(c.ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return err
	}
	for rows.Next() {
		values, into := make([]any, len(names)), make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			return err
		}
		each(values)
	}
	return rows.Err()
}
