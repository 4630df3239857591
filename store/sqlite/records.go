package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// Records returns the matching records, in order of seq. Each range over it runs the query again and sees one state
// of the store, unaffected by concurrent writes. It stops after an error. The caller owns a row's Body.
func (s *Store) Records(ctx context.Context, q store.Query) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		tenant, err := s.tenantOf(ctx, q.Run)
		if errors.Is(err, sql.ErrNoRows) || err == nil && !store.OfTenant(q.Tenant, tenant) {
			return
		}
		if err != nil {
			yield(store.Row{}, s.wrap("read records", err))
			return
		}
		s.rows(ctx, "read records", recordsSQL(q, tenant), yield)
	}
}

func (s *Store) tenantOf(ctx context.Context, run string) (tenant string, err error) {
	err = s.db.QueryRowContext(ctx, "SELECT tenant FROM runs WHERE run = ?", run).Scan(&tenant)
	return tenant, err
}

// rows yields the results of a selection.
func (s *Store) rows(ctx context.Context, doing string, sel *selection, yield func(store.Row, error) bool) {
	rows, err := s.db.QueryContext(ctx, sel.text.String(), sel.args...)
	if err != nil {
		yield(store.Row{}, s.wrap(doing, err))
		return
	}
	defer rows.Close()
	for rows.Next() {
		row, err := scanRow(rows)
		if err != nil {
			yield(store.Row{}, s.wrap(doing, err))
			return
		}
		if !yield(row, nil) {
			return
		}
	}
	if err := rows.Err(); err != nil {
		yield(store.Row{}, s.wrap(doing, err))
	}
}

// selection builds a statement.
type selection struct {
	text strings.Builder
	args []any
}

// selectRecords starts a selection for scanRow; tenant is an expression.
func selectRecords(tenant string, args ...any) *selection {
	sel := &selection{args: args}
	sel.text.WriteString("SELECT " + tenant + ", " + columnNames + " FROM records WHERE 1")
	return sel
}

func (sel *selection) and(condition string, args ...any) {
	sel.text.WriteString(" AND " + condition)
	sel.args = append(sel.args, args...)
}

func (sel *selection) kinds(kinds []audit.Kind) {
	if len(kinds) > 0 {
		c := kindIn("kind", kinds)
		sel.and(c.text, c.args...)
	}
}

func (sel *selection) span(from, to time.Time) {
	if !from.IsZero() {
		sel.and("time >= ?", nano(from))
	}
	if !to.IsZero() {
		sel.and("time < ?", nano(to))
	}
}

func (sel *selection) order(by string, limit int) *selection {
	sel.text.WriteString(" ORDER BY " + by)
	if limit > 0 {
		sel.text.WriteString(" LIMIT ?")
		sel.args = append(sel.args, limit)
	}
	return sel
}

func recordsSQL(q store.Query, tenant string) *selection {
	sel := selectRecords("?", tenant) // it is the same for all rows
	after := int64(min(q.AfterSeq, store.MaxSeq))
	if after == 0 {
		after = -1 // seqs may begin at 0
	}
	sel.and("run = ? AND seq > ?", q.Run, after)
	sel.kinds(q.Kinds)
	sel.span(q.From, q.To)
	return sel.order("seq", q.Limit)
}

// Manifests returns the run's chain of manifests in order.
func (s *Store) Manifests(ctx context.Context, tenant, run string) ([]store.Manifest, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT idx, first, last, count, root, bytes FROM manifests
		WHERE run = ? AND (? = '' OR tenant = ?) ORDER BY idx`, run, tenant, tenantName(tenant))
	if err != nil {
		return nil, s.wrap("read manifests", err)
	}
	defer rows.Close()
	var chain []store.Manifest
	for rows.Next() {
		var m store.Manifest
		var root []byte
		if err := rows.Scan(&m.Index, &m.First, &m.Last, &m.Count, &root, &m.Bytes); err != nil {
			return nil, s.wrap("read manifests", rowError(rows, "manifests", run, err))
		}
		copy(m.Root[:], root)
		chain = append(chain, m)
	}
	return chain, s.wrap("read manifests", rows.Err())
}
