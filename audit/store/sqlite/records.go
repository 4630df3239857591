package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"strings"

	"github.com/custody-project/custody/audit/store"
)

// Records returns the records that match, in order of seq. Each range over it
// asks anew; it sees one state of the store, whatever is written meanwhile. An
// error ends it. A row's Body is its own copy.
func (s *Store) Records(ctx context.Context, q store.Query) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		query, args := recordsSQL(q)
		rows, err := s.db.QueryContext(ctx, query, args...)
		if err != nil {
			yield(store.Row{}, s.wrap("read records", err))
			return
		}
		defer rows.Close()
		for rows.Next() {
			row, err := scanRow(q.Run, rows)
			if err != nil {
				yield(store.Row{}, s.wrap("read records", err))
				return
			}
			if !yield(row, nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(store.Row{}, s.wrap("read records", err))
		}
	}
}

func recordsSQL(q store.Query) (string, []any) {
	var b strings.Builder
	b.WriteString("SELECT seq, time, kind, step, observer, proc, body, salt FROM records WHERE run = ? AND seq > ?")
	args := []any{q.Run, int64(q.AfterSeq)}
	if q.AfterSeq == 0 {
		args[1] = int64(-1) // a log may count from 0
	}
	if len(q.Kinds) > 0 {
		b.WriteString(" AND kind IN (?" + strings.Repeat(",?", len(q.Kinds)-1) + ")")
		for _, k := range q.Kinds {
			args = append(args, string(k))
		}
	}
	if !q.From.IsZero() {
		b.WriteString(" AND time >= ?")
		args = append(args, q.From.UnixNano())
	}
	if !q.To.IsZero() {
		b.WriteString(" AND time < ?")
		args = append(args, q.To.UnixNano())
	}
	b.WriteString(" ORDER BY seq")
	if q.Limit > 0 {
		fmt.Fprintf(&b, " LIMIT %d", q.Limit)
	}
	return b.String(), args
}

func scanRow(run string, rows *sql.Rows) (store.Row, error) {
	r := store.Row{Head: store.Head{Run: run}}
	var seq, ns int64
	var salt []byte
	err := rows.Scan(&seq, &ns, &r.Kind, &r.Step, &r.Observer, &r.Proc, &r.Body, &salt)
	if err != nil {
		return r, err
	}
	r.Seq, r.Time = uint64(seq), fromNano(ns)
	if copy(r.Salt[:], salt) != len(r.Salt) || len(salt) != len(r.Salt) {
		return r, fmt.Errorf("record %d has a salt of %d bytes", seq, len(salt))
	}
	return r, nil
}

// Manifests returns the run's chain of manifests in order.
func (s *Store) Manifests(ctx context.Context, tenant, run string) ([]store.Manifest, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT idx, first, last, root, bytes FROM manifests WHERE run = ? ORDER BY idx", run)
	if err != nil {
		return nil, s.wrap("read manifests", err)
	}
	defer rows.Close()
	var chain []store.Manifest
	for rows.Next() {
		var m store.Manifest
		var idx, first, last int64
		var root []byte
		if err := rows.Scan(&idx, &first, &last, &root, &m.Bytes); err != nil {
			return nil, s.wrap("read manifests", err)
		}
		m.Index, m.First, m.Last = uint64(idx), uint64(first), uint64(last)
		copy(m.Root[:], root)
		chain = append(chain, m)
	}
	return chain, s.wrap("read manifests", rows.Err())
}
