package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/custody-project/custody/store"
)

// Repair implements store.Store, in one transaction.
func (s *Store) Repair(ctx context.Context, seg store.Segment) error {
	err := seg.CheckSigned()
	var heads []store.Head
	if err == nil {
		heads, err = seg.Heads()
	}
	if err != nil {
		return fmt.Errorf("repair: run %.40q: %w", seg.Run, err)
	}
	return s.wrap("repair", s.inTx(ctx, func(tx *sql.Tx) error {
		b := batch{ctx: ctx, tx: tx, runs: map[string]*store.Run{}, in: inserter{ctx: ctx, tx: tx}}
		if err := b.repair(seg, heads); err != nil {
			return fmt.Errorf("run %s seq %d to %d: %w", seg.Run, seg.First, seg.Last, err)
		}
		return b.save()
	}))
}

func (b *batch) repair(seg store.Segment, heads []store.Head) error {
	run, err := b.run(seg)
	if err != nil {
		return err
	}
	isNew, changed, err := repairManifest(b.ctx, b.tx, seg)
	if err != nil {
		return err
	}
	if isNew {
		if err := b.add(seg, heads); err != nil {
			return err
		}
		return recount(b.ctx, b.tx, run)
	}
	if len(seg.Frames) > 0 {
		rows, err := b.repairRows(seg, heads)
		if err != nil {
			return err
		}
		changed = changed || rows
	}
	if err := recount(b.ctx, b.tx, run); err != nil || !changed {
		return err
	}
	return addFeed(b.ctx, b.tx, seg)
}

// repairManifest repairs the other columns of a manifest's row. isNew is set if there is no row.
func repairManifest(ctx context.Context, tx *sql.Tx, seg store.Segment) (isNew, changed bool, err error) {
	var have []byte
	err = tx.QueryRowContext(ctx, "SELECT CAST(bytes AS BLOB) FROM manifests WHERE run = ? AND idx = ?", seg.Run, int64(seg.Index)).Scan(&have)
	switch {
	case err == sql.ErrNoRows:
		return true, false, nil
	case err != nil:
		return false, false, err
	case !bytes.Equal(have, seg.Manifest):
		return false, false, fmt.Errorf("manifest %d: %w", seg.Index, store.ErrConflict)
	}
	args := []any{int64(seg.First), int64(seg.Last), seg.Root[:], seg.Manifest, seg.Tenant, seg.Host, len(seg.Frames), seg.Run, int64(seg.Index)}
	done, err := tx.ExecContext(ctx, `UPDATE manifests SET first = ?1, last = ?2, root = ?3, bytes = ?4, tenant = ?5, host = ?6, count = ?7
		WHERE run = ?8 AND idx = ?9 AND (first, last, root, bytes, tenant, host, count) IS NOT (?1, ?2, ?3, ?4, ?5, ?6, ?7)`, args...)
	if err != nil {
		return false, false, err
	}
	n, err := done.RowsAffected()
	return false, n > 0, err
}

// repairRows writes rows that are missing or wrong, and removes those that seg lacks.
func (b *batch) repairRows(seg store.Segment, heads []store.Head) (changed bool, err error) {
	have, err := rawRows(b.ctx, b.tx, seg)
	if err != nil {
		return false, err
	}
	for i, f := range seg.Frames {
		seq := any(int64(f.Seq))
		row, there := have[seq]
		delete(have, seq)
		h := heads[i]
		if there {
			if f, h, err = store.Mended(seg.Run, f, h, row.frame(), fromNano(row.time())); err != nil {
				return false, err
			}
			if slices.EqualFunc(row, rowArgs(nil, h, f), sameValue) {
				continue
			}
			if err := b.remove(seg.Run, seq); err != nil {
				return false, err
			}
		}
		changed = true
		if err := b.in.add(h, f); err != nil {
			return false, err
		}
	}
	for seq := range have {
		changed = true
		if err := b.remove(seg.Run, seq); err != nil {
			return false, err
		}
	}
	return changed, b.in.flush()
}

func (b *batch) remove(run string, seq any) error {
	_, err := b.tx.ExecContext(b.ctx, "DELETE FROM records WHERE run = ? AND seq = ?", run, seq)
	return err
}

// rawRow has columnNames as in the database, whatever was altered.
type rawRow []any

func (r rawRow) time() int64 {
	ns, _ := r[2].(int64)
	return ns
}

// frame returns the frame of a row's columns; it leaves out an invalid body or salt.
func (r rawRow) frame() store.Frame {
	if r[14] != nil {
		leaf := new([32]byte)
		b, _ := r[14].([]byte)
		copy(leaf[:], b)
		return store.Frame{Erased: leaf}
	}
	var f store.Frame
	f.Body, _ = r[12].([]byte)
	salt, _ := r[13].([]byte)
	copy(f.Salt[:], salt)
	return f
}

// sameValue compares two values of a column, and their types.
func sameValue(a, b any) bool {
	blob, is := a.([]byte)
	other, isToo := b.([]byte)
	if is || isToo {
		return is && isToo && bytes.Equal(blob, other)
	}
	return a == b
}

// rawRows reads the rows with the seqs of seg, by seq, for which SQLite allows any number.
func rawRows(ctx context.Context, tx *sql.Tx, seg store.Segment) (map[any]rawRow, error) {
	rows, err := tx.QueryContext(ctx, "SELECT "+columnNames+" FROM records WHERE run = ? AND seq BETWEEN ? AND ?", seg.Run, int64(seg.First), int64(seg.Last))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[any]rawRow{}
	for rows.Next() {
		row, into := make(rawRow, columns), make([]any, columns)
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		all[row[1]] = row
	}
	return all, rows.Err()
}

// recount computes the whole summary from the rows.
func recount(ctx context.Context, tx *sql.Tx, run *store.Run) error {
	var events, last uint64
	var first int64
	err := tx.QueryRowContext(ctx, "SELECT count(*), coalesce(max(seq), 0), coalesce(min(time), 0) FROM records WHERE run = ?", run.ID).Scan(&events, &last, &first)
	if err != nil || events == 0 {
		return err
	}
	run.Events, run.LastSeq, run.FirstTime = events, last, fromNano(first)
	return refold(ctx, tx, run)
}
