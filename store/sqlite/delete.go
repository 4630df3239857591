package sqlite

import (
	"context"
	"database/sql"
	"fmt"
)

// Delete removes runs: records, manifests and summaries. It ignores runs that do not exist. The rows of the
// feed stay, without records, so that the cursors of exporters stay valid.
//
// The bytes may still be in the file and in its write-ahead log: Scrub removes them.
func (s *Store) Delete(ctx context.Context, runs ...string) error {
	err := s.inTx(ctx, func(tx *sql.Tx) error {
		for _, run := range runs {
			for _, stmt := range []string{
				"INSERT OR REPLACE INTO scrub VALUES (1)",
				"DELETE FROM records WHERE run = ?1", "DELETE FROM manifests WHERE run = ?1", "DELETE FROM runs WHERE run = ?1",
				"UPDATE feed SET count = 0 WHERE run = ?1 AND count > 0",
			} {
				args := []any{run}
				if stmt[0] == 'I' {
					args = nil
				}
				if _, err := tx.ExecContext(ctx, stmt, args...); err != nil {
					return fmt.Errorf("run %.140q: %w", run, err)
				}
			}
		}
		return nil
	})
	return s.wrap("delete runs", err)
}

// Scrub rewrites the file if rows were erased or deleted since the last rewrite, as EraseAll does, and removes a copy
// that Rebuild kept and the leftovers of a Rebuild or Check that was killed. Neither may be running. It takes as long as
// copying the file. If it failed or was killed, repeating it completes it.
func (s *Store) Scrub(ctx context.Context) error {
	err := s.scrub(ctx)
	for _, suffix := range []string{damagedSuffix, rebuildSuffix, checkedSuffix} {
		if err == nil {
			err = remove(s.path + suffix)
		}
	}
	return s.wrap("scrub store", err)
}

// Has returns those of runs that have a row.
func (s *Store) Has(ctx context.Context, runs ...string) (there []string, err error) {
	for _, run := range runs {
		n := 0
		err := s.db.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM records WHERE run = ?1)
			OR EXISTS (SELECT 1 FROM manifests WHERE run = ?1) OR EXISTS (SELECT 1 FROM runs WHERE run = ?1)`, run).Scan(&n)
		if err != nil {
			return nil, s.wrap("find rows of a run", err)
		}
		if n > 0 {
			there = append(there, run)
		}
	}
	return there, nil
}

// Behind lists the runs that have a segment with records in the feed after a cursor.
func (s *Store) Behind(ctx context.Context, cursor string) (map[string]bool, error) {
	id, err := s.feedID(ctx, cursor)
	if err != nil {
		return nil, s.wrap("read feed", err)
	}
	rows, err := s.db.QueryContext(ctx, "SELECT DISTINCT run FROM feed WHERE id > ? AND count > 0", id)
	if err != nil {
		return nil, s.wrap("read feed", err)
	}
	defer rows.Close()
	runs := map[string]bool{}
	for rows.Next() {
		var run string
		if err := rows.Scan(&run); err != nil {
			return nil, s.wrap("read feed", err)
		}
		runs[run] = true
	}
	return runs, s.wrap("read feed", rows.Err())
}
