package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/custody-project/custody/audit/store"
)

// rowsPerInsert rows go into one statement: the driver's cost is by statement.
// 9 columns each stay far below SQLite's limit of 32766 parameters.
const rowsPerInsert = 64

// Ingest adds a segment: its records, its manifest and what they change in the
// run's summary, durably and all at once. What is already there stays as it is.
// store.ErrConflict and store.ErrMalformed mean that trying again is useless.
func (s *Store) Ingest(ctx context.Context, segs ...store.Segment) error {
	for _, seg := range segs {
		if err := s.ingest(ctx, seg); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) ingest(ctx context.Context, seg store.Segment) error {
	if err := seg.Check(); err != nil {
		return fmt.Errorf("ingest: %w", err)
	}
	heads := make([]store.Head, len(seg.Frames))
	for i, f := range seg.Frames { // before the transaction, which others wait for
		h, err := store.HeadOf(seg.Run, f)
		if err != nil {
			return fmt.Errorf("ingest: %w", err)
		}
		heads[i] = h
	}
	err := s.inTx(ctx, func(tx *sql.Tx) error { return ingest(ctx, tx, seg, heads) })
	return s.wrap(fmt.Sprintf("ingest run %s seq %d to %d", seg.Run, seg.First, seg.Last), err)
}

func ingest(ctx context.Context, tx *sql.Tx, seg store.Segment, heads []store.Head) error {
	present, err := presentRows(ctx, tx, seg)
	if err != nil {
		return err
	}
	run, err := loadSummary(ctx, tx, seg.Run)
	if err != nil {
		return err
	}
	in := inserter{ctx: ctx, tx: tx}
	for i, f := range seg.Frames {
		if present[f.Seq] {
			continue
		}
		run.Add(heads[i])
		if err := in.add(heads[i], f); err != nil {
			return err
		}
	}
	if err := in.flush(rowsPerInsert); err != nil {
		return err
	}
	if in.total > 0 {
		if err := saveSummary(ctx, tx, run); err != nil {
			return err
		}
	}
	return addManifest(ctx, tx, seg)
}

// presentRows tells which frames of seg are stored already, and fails if one of
// them is stored with other bytes.
func presentRows(ctx context.Context, tx *sql.Tx, seg store.Segment) (map[uint64]bool, error) {
	if len(seg.Frames) == 0 {
		return nil, nil
	}
	rows, err := tx.QueryContext(ctx,
		"SELECT seq, body, salt FROM records WHERE run = ? AND seq BETWEEN ? AND ? ORDER BY seq",
		seg.Run, int64(seg.First), int64(seg.Last))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	present := map[uint64]bool{}
	frames := seg.Frames
	for rows.Next() {
		var seq int64
		var body, salt sql.RawBytes
		if err := rows.Scan(&seq, &body, &salt); err != nil {
			return nil, err
		}
		for len(frames) > 0 && frames[0].Seq < uint64(seq) {
			frames = frames[1:]
		}
		if len(frames) == 0 || frames[0].Seq != uint64(seq) {
			continue // stored, and not in this segment
		}
		if !bytes.Equal(frames[0].Body, body) || !bytes.Equal(frames[0].Salt[:], salt) {
			return nil, fmt.Errorf("record %d: %w", seq, store.ErrConflict)
		}
		present[uint64(seq)] = true
	}
	return present, rows.Err()
}

// inserter gathers rows and writes them many to a statement.
type inserter struct {
	ctx   context.Context
	tx    *sql.Tx
	full  *sql.Stmt // for rowsPerInsert rows
	args  []any
	total int
}

const columns = 9

func (in *inserter) add(h store.Head, f store.Frame) error {
	in.args = append(in.args, h.Run, int64(h.Seq), h.Time.UnixNano(), string(h.Kind), h.Step,
		string(h.Observer), h.Proc, f.Body, f.Salt[:])
	in.total++
	if len(in.args) < rowsPerInsert*columns {
		return nil
	}
	return in.flush(rowsPerInsert)
}

// flush writes what was gathered; full is the number of rows worth a prepared statement.
func (in *inserter) flush(full int) error {
	n := len(in.args) / columns
	if n == 0 {
		return nil
	}
	defer func() { in.args = in.args[:0] }()
	if n < full {
		_, err := in.tx.ExecContext(in.ctx, insertSQL(n), in.args...)
		return err
	}
	if in.full == nil {
		stmt, err := in.tx.PrepareContext(in.ctx, insertSQL(full)) // closed with the transaction
		if err != nil {
			return err
		}
		in.full = stmt
	}
	_, err := in.full.ExecContext(in.ctx, in.args...)
	return err
}

func insertSQL(rows int) string {
	return "INSERT INTO records (run, seq, time, kind, step, observer, proc, body, salt) VALUES " +
		strings.Repeat("(?,?,?,?,?,?,?,?,?),", rows-1) + "(?,?,?,?,?,?,?,?,?)"
}

// addManifest stores the manifest unless it is there; another one at its place is a conflict.
func addManifest(ctx context.Context, tx *sql.Tx, seg store.Segment) error {
	if len(seg.Manifest) == 0 {
		return nil
	}
	var have []byte
	err := tx.QueryRowContext(ctx, "SELECT bytes FROM manifests WHERE run = ? AND idx = ?", seg.Run, int64(seg.Index)).Scan(&have)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		_, err = tx.ExecContext(ctx, "INSERT INTO manifests (run, idx, first, last, root, bytes) VALUES (?,?,?,?,?,?)",
			seg.Run, int64(seg.Index), int64(seg.First), int64(seg.Last), seg.Root[:], seg.Manifest)
		return err
	case err != nil:
		return err
	case !bytes.Equal(have, seg.Manifest):
		return fmt.Errorf("manifest %d: %w", seg.Index, store.ErrConflict)
	}
	return nil
}
