package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/custody-project/custody/store"
)

// Ingest adds segments: their records, their manifests and what they change in the runs' summaries, durably and in one
// transaction. Existing rows do not change. store.ErrConflict and store.ErrMalformed mean that retrying
// is useless. After an error nothing of them is stored.
func (s *Store) Ingest(ctx context.Context, segs ...store.Segment) error {
	heads := make([][]store.Head, len(segs))
	for i, seg := range segs { // before the transaction, for which others wait
		var err error
		if heads[i], err = check(seg); err != nil {
			return fmt.Errorf("ingest: run %.40q: %w", seg.Run, err)
		}
	}
	return s.wrap("ingest", s.inTx(ctx, func(tx *sql.Tx) error {
		b := batch{ctx: ctx, tx: tx, runs: map[string]*store.Run{}, in: inserter{ctx: ctx, tx: tx}}
		for i, seg := range segs {
			if err := b.add(seg, heads[i]); err != nil {
				return fmt.Errorf("run %s seq %d to %d: %w", seg.Run, seg.First, seg.Last, err)
			}
		}
		return b.save()
	}))
}

func check(seg store.Segment) ([]store.Head, error) {
	if err := seg.Check(); err != nil {
		return nil, err
	}
	return seg.Heads()
}

// batch is the state of one transaction.
type batch struct {
	ctx  context.Context
	tx   *sql.Tx
	in   inserter
	runs map[string]*store.Run // current summaries
}

func (b *batch) add(seg store.Segment, heads []store.Head) error {
	run, err := b.run(seg)
	if err != nil {
		return err
	}
	present, err := presentRows(b.ctx, b.tx, seg)
	if err != nil {
		return err
	}
	added := 0
	for i, f := range seg.Frames {
		if present[f.Seq] {
			continue
		}
		run.Add(heads[i])
		if err := b.in.add(heads[i], f); err != nil {
			return err
		}
		added++
	}
	if err := b.in.flush(); err != nil {
		return err
	}
	isNew, err := addManifest(b.ctx, b.tx, seg)
	if err != nil || added == 0 && !isNew {
		return err
	}
	return addFeed(b.ctx, b.tx, seg)
}

// run returns the summary to which seg is added. A run has one tenant and one host,
// so that no other can write to it; what an older Custody wrote may lack the host.
func (b *batch) run(seg store.Segment) (*store.Run, error) {
	run := b.runs[seg.Run]
	if run == nil {
		r, err := loadSummary(b.ctx, b.tx, seg)
		if err != nil {
			return nil, err
		}
		run = &r
		b.runs[seg.Run] = run
	}
	if run.Host == "" {
		run.Host = seg.Host
	}
	if run.Tenant != seg.Tenant || run.Host != seg.Host {
		return nil, fmt.Errorf("the run is tenant %q's on host %q, not tenant %q's on host %q: %w",
			run.Tenant, run.Host, seg.Tenant, seg.Host, store.ErrConflict)
	}
	return run, nil
}

// save writes the summaries of runs that have records.
func (b *batch) save() error {
	for _, run := range b.runs {
		if run.Events == 0 {
			continue
		}
		if err := saveSummary(b.ctx, b.tx, *run); err != nil {
			return err
		}
	}
	return nil
}

// presentRows returns which frames of seg are stored already, and fails if one of them is stored with other bytes. Of
// an erased record it compares the leaf.
func presentRows(ctx context.Context, tx *sql.Tx, seg store.Segment) (map[uint64]bool, error) {
	if len(seg.Frames) == 0 {
		return nil, nil
	}
	rows, err := tx.QueryContext(ctx,
		"SELECT seq, body, salt, leaf FROM records WHERE run = ? AND seq BETWEEN ? AND ? ORDER BY seq",
		seg.Run, int64(seg.First), int64(seg.Last))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var present map[uint64]bool
	frames := seg.Frames
	for rows.Next() {
		var seq uint64
		var body, salt, leaf sql.RawBytes
		if err := rows.Scan(&seq, &body, &salt, &leaf); err != nil {
			return nil, err
		}
		for len(frames) > 0 && frames[0].Seq < seq {
			frames = frames[1:]
		}
		if len(frames) == 0 || frames[0].Seq != seq {
			continue // stored, and not in this segment
		}
		if !sameRecord(frames[0], body, salt, leaf) {
			return nil, fmt.Errorf("record %d: %w", seq, store.ErrConflict)
		}
		if present == nil {
			present = make(map[uint64]bool, len(seg.Frames))
		}
		present[seq] = true
	}
	return present, rows.Err()
}

// sameRecord compares f with a row. If one of them is erased, it compares leaves.
func sameRecord(f store.Frame, body, salt, leaf []byte) bool {
	if leaf == nil && f.Erased == nil {
		return bytes.Equal(f.Body, body) && bytes.Equal(f.Salt[:], salt)
	}
	if leaf == nil {
		have := store.Frame{Body: body, Salt: [16]byte(salt)}.Leaf()
		leaf = have[:]
	}
	want := f.Leaf()
	return bytes.Equal(want[:], leaf)
}

// addManifest stores the manifest unless it exists; another one with its index is a conflict.
func addManifest(ctx context.Context, tx *sql.Tx, seg store.Segment) (isNew bool, err error) {
	if len(seg.Manifest) == 0 {
		return false, nil
	}
	var have []byte
	err = tx.QueryRowContext(ctx, "SELECT bytes FROM manifests WHERE run = ? AND idx = ?", seg.Run, int64(seg.Index)).Scan(&have)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		_, err = tx.ExecContext(ctx,
			"INSERT INTO manifests (run, idx, first, last, root, bytes, tenant, host, count) VALUES (?,?,?,?,?,?,?,?,?)",
			seg.Run, int64(seg.Index), int64(seg.First), int64(seg.Last), seg.Root[:], seg.Manifest,
			seg.Tenant, seg.Host, len(seg.Frames))
		return true, err
	case err != nil:
		return false, err
	case !bytes.Equal(have, seg.Manifest):
		return false, fmt.Errorf("manifest %d: %w", seg.Index, store.ErrConflict)
	}
	return false, nil
}

// rowSteps are the numbers of rows in one statement: the driver's cost
// is per statement. The largest stays far below SQLite's limit of 32766 parameters.
var rowSteps = [...]int{64, 8, 1}

// inserter collects rows and inserts many with one statement.
type inserter struct {
	ctx   context.Context
	tx    *sql.Tx
	stmts [len(rowSteps)]*sql.Stmt // closed with the transaction
	args  []any
}

func (in *inserter) add(h store.Head, f store.Frame) error {
	in.args = rowArgs(in.args, h, f)
	if len(in.args) < rowSteps[0]*columns {
		return nil
	}
	return in.flush()
}

// flush writes the collected rows.
func (in *inserter) flush() error {
	args := in.args
	for i, rows := range rowSteps {
		for ; len(args) >= rows*columns; args = args[rows*columns:] {
			if err := in.exec(i, args[:rows*columns]); err != nil {
				return err
			}
		}
	}
	in.args = in.args[:0]
	return nil
}

func (in *inserter) exec(step int, args []any) error {
	if in.stmts[step] == nil {
		stmt, err := in.tx.PrepareContext(in.ctx, insertSQL(rowSteps[step]))
		if err != nil {
			return err
		}
		in.stmts[step] = stmt
	}
	_, err := in.stmts[step].ExecContext(in.ctx, args...)
	return err
}

// insertSQL leaves the effects of a failed statement to the transaction, which is rolled back as a whole. So SQLite
// need not copy each page that the statement changes in order to undo it.
func insertSQL(rows int) string {
	row := "(" + strings.Repeat("?,", columns-1) + "?)"
	return "INSERT OR FAIL INTO records (" + columnNames + ") VALUES " + strings.Repeat(row+",", rows-1) + row
}
