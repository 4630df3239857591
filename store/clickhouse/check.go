package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/custody-project/custody/store"
)

// Differs describes how the rows of a sealed segment differ from its records, which Repair would correct; "" if they do not,
// or if the store does not have the segment.
func (s *Store) Differs(ctx context.Context, seg store.Segment) (string, error) {
	in, err := prepare(seg)
	if err != nil {
		return "", fmt.Errorf("check segment: %w", err)
	}
	k := &known{}
	var p *plan
	if k.erased, err = s.lookup.readErasures(ctx, []*segment{in}); err == nil {
		p, err = s.repairer.plan(ctx, in, k)
	}
	switch {
	case errors.Is(err, errNew):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("check segment: run %.140q: %w", seg.Run, err)
	}
	var what []string
	if slices.Sort(p.seqs); len(p.seqs) > 0 {
		what = append(what, fmt.Sprintf("%d of its rows are missing, altered or too many, the first at record %d", len(p.seqs), p.seqs[0]))
	}
	if p.marker || len(p.badMarkers) > 0 {
		what = append(what, "its row in table segments is altered, or there is another one")
	}
	return strings.Join(what, "; "), nil
}

// Check returns differences between the definitions of the tables and those of this version, and the runs that have rows
// but no segment: Ingest leaves such rows only briefly, or if it was killed and not repeated.
func (s *Store) Check(ctx context.Context) ([]store.Difference, error) {
	found, err := s.definitions(ctx)
	if err != nil {
		return nil, fmt.Errorf("check definitions: %w", err)
	}
	orphans, err := s.orphans(ctx)
	if err == nil && len(orphans) > 0 { // a segment that is being ingested appears soon
		before := orphans
		if err = sleep(ctx, min(s.feed.settle, 5*time.Second)); err == nil {
			orphans, err = s.orphans(ctx)
		}
		orphans = slices.DeleteFunc(orphans, func(d store.Difference) bool { return !slices.Contains(before, d) })
	}
	if err != nil {
		return nil, fmt.Errorf("check rows: %w", err)
	}
	return append(found, orphans...), nil
}

// maxOrphans bounds the number of runs that Check returns for each table.
const maxOrphans = 1000

// orphans returns the runs with rows that no segment has.
func (s *Store) orphans(ctx context.Context) (found []store.Difference, err error) {
	for _, table := range []string{"records", "feed"} {
		rows, err := s.db.conn.Query(ctx, fmt.Sprintf("SELECT DISTINCT tenant, run FROM %s WHERE (tenant, run) GLOBAL NOT IN (SELECT tenant, run FROM segments) ORDER BY run, tenant LIMIT %d", table, maxOrphans))
		if err != nil {
			return nil, err
		}
		for rows.Next() {
			var tenant, run string
			if err := rows.Scan(&tenant, &run); err != nil {
				return nil, errors.Join(err, rows.Close())
			}
			found = append(found, store.Difference{Run: run, Text: fmt.Sprintf("table %s has rows of it under tenant %q, and table segments has none", table, tenant)})
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// definitions compares the tables of this server with what the migrations make. The compression of columns, and settings,
// are left to the operator.
func (s *Store) definitions(ctx context.Context) (found []store.Difference, err error) {
	want, err := s.db.schema.tables()
	if err != nil {
		return nil, err
	}
	for _, table := range want {
		var have, comment string
		name := s.db.schema.local(table.name)
		rows, err := s.db.conn.Query(ctx, "SELECT formatQuery(create_table_query), comment FROM system.tables WHERE database = currentDatabase() AND name = "+quote(name))
		if err != nil {
			return nil, err
		}
		for rows.Next() {
			if err := rows.Scan(&have, &comment); err != nil {
				return nil, errors.Join(err, rows.Close())
			}
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return nil, err
		}
		if have == "" {
			found = append(found, store.Difference{Text: "table " + name + " is missing"})
			continue
		}
		var text string
		if err := s.db.conn.QueryRow(ctx, "SELECT formatQuery("+quote(table.statement(retained(comment)))+")").Scan(&text); err != nil {
			return nil, err
		}
		if what := compareDefinitions(lines(have), lines(text)); what != "" {
			found = append(found, store.Difference{Text: "table " + name + " is not defined as custody defines it: " + what})
		}
	}
	return found, nil
}

// definition is a table after all migrations.
type definition struct {
	name, create string
	more         []string // indexes and projections
}

// tables returns the tables that contain rows.
func (s schema) tables() ([]*definition, error) {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	all := []*definition{{name: "schema_versions", create: s.versions()}}
	for _, file := range files {
		statements, err := s.statements(file)
		if err != nil {
			return nil, err
		}
		for _, stmt := range statements {
			if m := creates.FindStringSubmatch(stmt); m != nil && !strings.Contains(stmt, "ENGINE = Distributed") {
				all = append(all, &definition{name: strings.TrimSuffix(m[1], "_local"), create: stmt})
			}
			m := adds.FindStringSubmatch(stmt)
			for _, d := range all {
				if m != nil && s.local(d.name) == m[1] {
					d.more = append(d.more, m[2]+" "+m[3])
				}
			}
		}
	}
	return all, nil
}

var (
	creates = regexp.MustCompile(`^CREATE TABLE IF NOT EXISTS (\w+)`)
	adds    = regexp.MustCompile(`(?s)^ALTER TABLE (\w+).* ADD (INDEX|PROJECTION) IF NOT EXISTS (.*)$`)
)

// statement returns the statement that creates the table in its final form, with its TTL.
func (d *definition) statement(ttl string) string {
	columns, engine, _ := strings.Cut(d.create, ") ENGINE = ")
	for _, one := range d.more {
		columns += ",\n" + one
	}
	if ttl != "" {
		engine = strings.Replace(engine, "\nSETTINGS ", "\nTTL "+ttl+"\nSETTINGS ", 1)
	}
	return columns + ") ENGINE = " + engine
}

var keeps = regexp.MustCompile(`(\w+)=(\d+)d`)

// retained returns the TTL that a table's comment encodes, "" without one.
func retained(comment string) string {
	kept := schema{Options: Options{Retain: map[Class]time.Duration{}}}
	if !strings.HasPrefix(comment, "retain:") {
		return ""
	}
	for _, m := range keeps.FindAllStringSubmatch(comment, -1) {
		days, _ := time.ParseDuration(m[2] + "h") // a comment that custody did not write is a difference
		kept.Retain[Class(m[1])] = 24 * days
	}
	ttl, _ := kept.retention()
	return ttl
}

var codec = regexp.MustCompile(` CODEC\(.*\)$`)

// lines returns the lines of a formatted CREATE TABLE, without names that differ and parts that the operator sets.
func lines(create string) (all []string) {
	for _, line := range strings.Split(create, "\n") {
		line = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSpace(strings.ReplaceAll(line, "`", "")), ","), "()")
		line = codec.ReplaceAllString(line, "")
		switch {
		case strings.HasPrefix(line, "CREATE TABLE"):
			line = "CREATE TABLE"
		case strings.HasPrefix(line, "SETTINGS "), strings.HasPrefix(line, "COMMENT "):
			continue
		}
		all = append(all, line)
	}
	return all
}

// compareDefinitions describes how have differs from want.
func compareDefinitions(have, want []string) string {
	if slices.Equal(have, want) {
		return ""
	}
	var what []string
	for _, line := range want {
		if !slices.Contains(have, line) {
			what = append(what, "missing: "+line)
		}
	}
	for _, line := range have {
		if !slices.Contains(want, line) {
			what = append(what, "unexpected: "+line)
		}
	}
	if len(what) == 0 {
		return "its parts are in another order"
	}
	return strings.Join(what, "; ")
}
