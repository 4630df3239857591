package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// Erase removes the contents of a record, from the row and from the file. It is
// EraseAll for one record.
func (s *Store) Erase(ctx context.Context, tenant, run string, seq uint64) error {
	return s.EraseAll(ctx, tenant, run, seq)
}

// EraseAll erases the contents of records of a run, and keeps their seqs, times and
// leaves. The summary of the run is computed from its remaining records. If the
// error is store.ErrNotFound or store.ErrNoRecord, nothing is erased.
//
//	stored --rows emptied--> scrub pending --file rewritten--> erased
//
// Emptying a row does not remove its old bytes from the file: pages that were split keep copies in their slack, and so
// does the write-ahead log. EraseAll therefore rewrites the whole file (VACUUM) and truncates the log. That takes as long
// as copying the file, up to twice its size, and requires that no reader uses an older state: EraseAll waits for
// readers as long as ctx allows, at most 15 s. If it failed or was killed, repeating it completes the erasure.
//
// It also removes a copy that Rebuild kept as ".damaged". It cannot erase free blocks of the file system,
// nor backups.
func (s *Store) EraseAll(ctx context.Context, tenant, run string, seqs ...uint64) error {
	err := s.inTx(ctx, func(tx *sql.Tx) error { return eraseRows(ctx, tx, tenant, run, seqs) })
	if err == nil {
		err = s.scrub(ctx)
	}
	if err == nil {
		err = remove(s.path + damagedSuffix)
	}
	return s.wrap(fmt.Sprintf("erase of run %.140q", run), err)
}

func eraseRows(ctx context.Context, tx *sql.Tx, tenant, run string, seqs []uint64) error {
	sum, err := scanRun(tx.QueryRowContext(ctx, "SELECT "+runColumns+" FROM runs WHERE run = ?", run).Scan)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !store.OfTenant(tenant, sum.Tenant) {
		return store.ErrNotFound
	}
	if err != nil {
		return err
	}
	erased := 0
	for _, seq := range seqs {
		done, err := eraseRow(ctx, tx, run, seq)
		if err != nil {
			return fmt.Errorf("record %d: %w", seq, err)
		}
		if done {
			erased++
		}
	}
	if erased == 0 {
		return nil
	}
	if err := refold(ctx, tx, &sum); err != nil {
		return err
	}
	if err := saveSummary(ctx, tx, sum); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "INSERT OR REPLACE INTO scrub VALUES (1)")
	return err
}

// eraseRow empties a row; done is false if it was empty.
func eraseRow(ctx context.Context, tx *sql.Tx, run string, seq uint64) (done bool, err error) {
	if seq > store.MaxSeq {
		return false, store.ErrNoRecord
	}
	var body, salt, leaf []byte
	err = tx.QueryRowContext(ctx, "SELECT body, salt, leaf FROM records WHERE run = ? AND seq = ?", run, int64(seq)).
		Scan(&body, &salt, &leaf)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return false, store.ErrNoRecord
	case err != nil || leaf != nil:
		return false, err
	case len(salt) != 16:
		return false, fmt.Errorf("it has a salt of %d bytes", len(salt))
	}
	kept := store.Frame{Body: body, Salt: [16]byte(salt)}.Leaf()
	_, err = tx.ExecContext(ctx, `UPDATE records SET kind = '', step = '', observer = '', proc = '', path = NULL, host = NULL,
		hash = NULL, secret = NULL, rule = NULL, body = x'', salt = x'', leaf = ? WHERE run = ? AND seq = ?`, kept[:], run, int64(seq))
	return true, err
}

// refold computes the summary again from the records that affect more than its counts.
func refold(ctx context.Context, tx *sql.Tx, sum *store.Run) error {
	rows, err := tx.QueryContext(ctx, "SELECT body FROM records WHERE run = ? AND kind IN (?, ?, ?)",
		sum.ID, string(audit.KindRun), string(audit.KindGap), string(audit.KindFinding))
	if err != nil {
		return err
	}
	defer rows.Close()
	r := store.NewRun(sum.ID)
	for rows.Next() {
		var body sql.RawBytes
		if err := rows.Scan(&body); err != nil {
			return err
		}
		h, err := store.ParseHead(body)
		if errors.Is(err, store.ErrMalformed) {
			continue // the row was altered; the repair of its segment counts it
		}
		r.Add(h)
	}
	r.Tenant, r.Host, r.Events, r.LastSeq, r.FirstTime = sum.Tenant, sum.Host, sum.Events, sum.LastSeq, sum.FirstTime
	*sum = r
	return rows.Err()
}

// scrub rewrites the file, if rows were erased since the last rewrite.
func (s *Store) scrub(ctx context.Context) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	pending := 0
	if err := conn.QueryRowContext(ctx, "SELECT count(*) FROM scrub").Scan(&pending); err != nil || pending == 0 {
		return err
	}
	for _, step := range []func(context.Context, *sql.Conn) error{truncateLog, vacuum, truncateLog} {
		if err := step(ctx, conn); err != nil {
			return err
		}
	}
	_, err = conn.ExecContext(ctx, "DELETE FROM scrub")
	return err
}

func vacuum(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, "VACUUM")
	return err
}

// truncateLog moves the write-ahead log into the file and truncates it, once no reader
// uses an older state.
func truncateLog(ctx context.Context, conn *sql.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, busyTimeout)
	defer cancel()
	for {
		var busy, pages, moved int
		err := conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &pages, &moved)
		if err != nil || busy == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.New("a reader still uses the state before the erasure; repeat it when that has ended")
		case <-time.After(20 * time.Millisecond):
		}
	}
}
