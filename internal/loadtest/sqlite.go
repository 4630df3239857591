package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/redact"
)

// sqliteEnd measures the whole way of events into the store of one machine:
// recorded, durable, sealed, carried, stored. Beside it the same rows go into a
// database with the same tables and settings in large statements and transactions.
func (r *report) sqliteEnd(ctx context.Context, dir string) error {
	used := cpuTime()
	took, err := endToEnd(ctx, dir, r.events)
	if err != nil {
		return err
	}
	used = cpuTime() - used
	db := filepath.Join(dir, "custody.db")
	bare, bareUsed, err := bareSQLite(ctx, db, filepath.Join(dir, "bare.db"))
	if err != nil {
		return err
	}
	r.add("event to SQLite, the whole way", perSecond(r.events, took, "events"),
		"the same rows by batched inserts: "+perSecond(r.events, bare, "rows"), ratio(took, bare))
	r.add("of it processor time an event", micros(used, r.events), micros(bareUsed, r.events), ratio(used, bareUsed))
	info, err := os.Stat(db)
	if err != nil {
		return err
	}
	r.add("SQLite, bytes an event", fmt.Sprint(info.Size()/int64(r.events)), "", "")
	return nil
}

// endToEnd records events in a home and returns how long it took until the store
// that the home names had all of them.
func endToEnd(ctx context.Context, dir string, events int) (time.Duration, error) {
	h, err := host.Open(dir)
	if err != nil {
		return 0, err
	}
	red, err := newRedactor()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	run, err := begin(ctx, h, red)
	if err != nil {
		return 0, err
	}
	if err := post(ctx, run.Recorder, events); err != nil {
		return 0, err
	}
	record, store := run.Close(ctx, wal.Sealed)
	if record != nil || store != nil {
		return 0, fmt.Errorf("close: record %w, store %w", record, store)
	}
	return time.Since(began), nil
}

func begin(ctx context.Context, h *host.Host, red *redact.Redactor) (*host.Run, error) {
	now := time.Now()
	run, err := h.Begin(ctx, host.RunOptions{ID: host.NewRunID(now), Mode: wal.Strict, Facts: statement.Facts{Tier: "none"}, Redactor: red})
	if err != nil {
		return nil, err
	}
	run.Ship(ctx)
	_, err = run.Post(ctx, started("", now))
	return run, err
}

// Rows a statement and a transaction of the bare insert.
const (
	bareStatement = 64
	bareBatch     = 10_240
)

// bareSQLite copies the records of a database into a new one of the same make,
// and returns how long the inserts took, and the processor time of it.
func bareSQLite(ctx context.Context, from, to string) (took, used time.Duration, err error) {
	src, err := sql.Open("sqlite", "file:"+from+"?mode=ro")
	if err != nil {
		return 0, 0, err
	}
	defer src.Close()
	dst, err := sql.Open("sqlite", "file:"+to+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate")
	if err != nil {
		return 0, 0, err
	}
	defer dst.Close()
	if err := copySchema(ctx, src, dst); err != nil {
		return 0, 0, err
	}
	rows, columns, err := allRows(ctx, src)
	if err != nil {
		return 0, 0, err
	}
	cpu, began := cpuTime(), time.Now()
	for len(rows) > 0 {
		n := min(bareBatch, len(rows)/columns) * columns
		if err := insertBatch(ctx, dst, rows[:n], columns); err != nil {
			return 0, 0, err
		}
		rows = rows[n:]
	}
	return time.Since(began), cpuTime() - cpu, nil
}

// copySchema makes the table of records with its indexes.
func copySchema(ctx context.Context, src, dst *sql.DB) error {
	made, err := src.QueryContext(ctx, "SELECT sql FROM sqlite_master WHERE tbl_name = 'records' AND sql IS NOT NULL ORDER BY type DESC")
	if err != nil {
		return err
	}
	defer made.Close()
	for made.Next() {
		var stated string
		if err := made.Scan(&stated); err != nil {
			return err
		}
		if _, err := dst.ExecContext(ctx, stated); err != nil {
			return err
		}
	}
	return made.Err()
}

// allRows reads the records one column after the other.
func allRows(ctx context.Context, src *sql.DB) (values []any, columns int, err error) {
	rows, err := src.QueryContext(ctx, "SELECT * FROM records ORDER BY run, seq")
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return nil, 0, err
	}
	for rows.Next() {
		row, at := make([]any, len(names)), make([]any, len(names))
		for i := range row {
			at[i] = &row[i]
		}
		if err := rows.Scan(at...); err != nil {
			return nil, 0, err
		}
		values = append(values, row...)
	}
	return values, len(names), rows.Err()
}

func insertBatch(ctx context.Context, dst *sql.DB, values []any, columns int) error {
	tx, err := dst.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	one := "(" + strings.TrimSuffix(strings.Repeat("?,", columns), ",") + ")"
	many, err := tx.PrepareContext(ctx, "INSERT INTO records VALUES "+strings.TrimSuffix(strings.Repeat(one+",", bareStatement), ","))
	if err != nil {
		return err
	}
	for ; len(values) >= bareStatement*columns; values = values[bareStatement*columns:] {
		if _, err := many.ExecContext(ctx, values[:bareStatement*columns]...); err != nil {
			return err
		}
	}
	for ; len(values) > 0; values = values[columns:] {
		if _, err := tx.ExecContext(ctx, "INSERT INTO records VALUES "+one, values[:columns]...); err != nil {
			return err
		}
	}
	return tx.Commit()
}
