package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// windowRows is the approximate number of rows that the server sorts at a time. Rows are stored by time, and so
// almost by seq: a window of seqs is a few adjacent granules.
const windowRows = 50000

// Records implements store.Store. It reads a long run in several queries, and may see rows that are
// ingested meanwhile.
func (s *Store) Records(ctx context.Context, q store.Query) iter.Seq2[store.Row, error] {
	return s.reader.all(ctx, q)
}

// reader reads records.
type reader struct{ db *database }

// all returns the records of a run that match.
func (r reader) all(ctx context.Context, q store.Query) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		if err := r.each(ctx, q, yield); err != nil {
			yield(store.Row{}, fmt.Errorf("read records: %w", err))
		}
	}
}

// errStop ends a query because the caller has stopped.
var errStop = errors.New("the caller has stopped")

func (r reader) each(ctx context.Context, q store.Query, yield func(store.Row, error) bool) error {
	run, err := r.keyOf(ctx, q.Tenant, q.Run)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	where := recordsWhere(run, q)
	with := gone(fmt.Sprintf("tenant = %s AND run = %s", quote(run.tenant), quote(run.run)))
	var rows, from, to uint64
	err = r.db.conn.QueryRow(ctx, with+"SELECT count(), min(seq), max(seq) FROM records WHERE "+where).Scan(&rows, &from, &to)
	if err != nil || rows == 0 {
		return err
	}
	left := q.Limit
	if left == 0 {
		left = math.MaxInt
	}
	width := windowWidth(rows, from, to, q.Limit)
	for from <= to && left > 0 {
		upTo := to
		if to-from >= width {
			upTo = from + width - 1
		}
		n, err := r.window(ctx, run, with, where, from, upTo, left, yield)
		if errors.Is(err, errStop) {
			return nil
		}
		if err != nil {
			return err
		}
		left -= n
		if n == 0 { // the rows are not spread evenly
			width *= 2
		}
		from = upTo + 1
	}
	return nil
}

// windowWidth returns the number of seqs that have about the wanted number of rows.
func windowWidth(rows, from, to uint64, limit int) uint64 {
	want := uint64(windowRows)
	if limit > 0 && limit < windowRows {
		want = uint64(limit) + uint64(limit)/4 + 16
	}
	if rows <= want {
		return math.MaxUint64
	}
	return max(1, uint64(float64(to-from+1)/float64(rows)*float64(want)))
}

// window yields at most limit records with seq from first to last.
func (r reader) window(ctx context.Context, run runKey, with, where string, first, last uint64, limit int, yield func(store.Row, error) bool) (int, error) {
	rows, err := r.db.conn.Query(ctx, fmt.Sprintf("%sSELECT %s FROM records WHERE %s AND seq BETWEEN %d AND %d ORDER BY seq, leaf, kind = '' LIMIT 1 BY seq, leaf",
		with, readColumns, where, first, last))
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	n := 0
	var same []found // rows with one seq: one, or a fork
	give := func() error {
		if len(same) == 0 || n == limit {
			return nil
		}
		one, err := r.choose(ctx, run, same)
		if err != nil {
			return err
		}
		same = same[:0]
		n++
		if !yield(one.Row, nil) {
			return errStop
		}
		return nil
	}
	for n < limit && rows.Next() {
		f, err := scanRow(rows)
		if err != nil {
			return n, err
		}
		if len(same) > 0 && same[0].Seq != f.Seq {
			if err := give(); err != nil {
				return n, err
			}
		}
		same = append(same, f)
	}
	if n == limit {
		return n, nil
	}
	if err := rows.Err(); err != nil {
		return n, err
	}
	return n, give()
}

// choose returns the row that readers get of those with one seq: see Store.
func (r reader) choose(ctx context.Context, run runKey, same []found) (found, error) {
	if len(same) == 1 {
		return same[0], nil
	}
	rows, err := r.db.conn.Query(ctx, fmt.Sprintf("SELECT root FROM segments WHERE tenant = %s AND run = %s AND first <= %d AND last >= %[3]d",
		quote(run.tenant), quote(run.run), same[0].Seq))
	if err != nil {
		return found{}, err
	}
	defer rows.Close()
	marked := map[string]bool{}
	for rows.Next() {
		var root string
		if err := rows.Scan(&root); err != nil {
			return found{}, err
		}
		marked[root] = true
	}
	if err := rows.Err(); err != nil {
		return found{}, err
	}
	for _, f := range same {
		if marked[string(f.root[:])] {
			return f, nil
		}
	}
	return same[0], nil // ordered by leaf
}

// gone defines the expression gone of readColumns: a record was erased, or its erasure is pending. of narrows the erasures.
func gone(of string) string {
	return "WITH (kind = '' OR (tenant, run, seq) GLOBAL IN (SELECT tenant, run, seq FROM erasures WHERE " + of + ")) AS gone "
}

func recordsWhere(run runKey, q store.Query) string {
	where := []string{fmt.Sprintf("tenant = %s AND run = %s", quote(run.tenant), quote(run.run))}
	if q.AfterSeq > 0 { // seqs may begin at 0
		where = append(where, fmt.Sprintf("seq > %d", q.AfterSeq))
	}
	return strings.Join(append(append(where, ofKinds(q.Kinds)...), timesBetween("time", q.From, q.To)...), " AND ")
}

func ofKinds(kinds []audit.Kind) []string {
	if len(kinds) == 0 {
		return nil
	}
	return []string{ofClasses(classesOf(kinds)), kindIn(kinds), "NOT gone"}
}

func kindIn(kinds []audit.Kind) string {
	quoted := make([]string, len(kinds))
	for i, k := range kinds {
		quoted[i] = quote(string(k))
	}
	return "kind IN (" + strings.Join(quoted, ", ") + ")"
}

// classesOf returns the classes of records of the kinds; records that an older Custody ingested before it knew a kind are evidence.
func classesOf(kinds []audit.Kind) []Class {
	classes := []Class{Evidence}
	for _, k := range kinds {
		if c := classOf(k); !slices.Contains(classes, c) {
			classes = append(classes, c)
		}
	}
	return classes
}

// ofClasses returns a condition that excludes the partitions of other classes; nil means all.
func ofClasses(classes []Class) string {
	if len(classes) == 0 {
		return "1"
	}
	quoted := make([]string, len(classes))
	for i, c := range classes {
		quoted[i] = quote(string(c))
	}
	return "class IN (" + strings.Join(quoted, ", ") + ")"
}

func timesBetween(column string, from, to time.Time) (where []string) {
	if !from.IsZero() {
		where = append(where, column+" >= "+instant(from))
	}
	if !to.IsZero() {
		where = append(where, column+" < "+instant(to))
	}
	return where
}

// instant formats t, or the nearest time that a record can have.
func instant(t time.Time) string {
	ns := t.UnixNano()
	if y := t.Year(); y < 1970 {
		ns = 0
	} else if y > 2261 {
		ns = time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	}
	return fmt.Sprintf("fromUnixTimestamp64Nano(toInt64(%d), 'UTC')", ns)
}

// keyOf returns the key of the tenant's run. If any tenant is allowed, it finds the run's tenant; see tenantOf.
func (r reader) keyOf(ctx context.Context, tenant, run string) (runKey, error) {
	if tenant != "" {
		return runKey{tenantName(tenant), run}, nil
	}
	have, err := r.tenantOf(ctx, run)
	return runKey{have, run}, err
}

// tenantOf returns the tenant of a run. The error is store.ErrNotFound, or ErrAmbiguous if several tenants have a run
// with that name: then the caller must name the tenant.
func (r reader) tenantOf(ctx context.Context, run string) (string, error) {
	rows, err := r.db.conn.Query(ctx, "SELECT DISTINCT tenant FROM segments WHERE run = "+quote(run)+" LIMIT 2")
	if err != nil {
		return "", err
	}
	defer rows.Close()
	var tenants []string
	for rows.Next() {
		var t string
		if err := rows.Scan(&t); err != nil {
			return "", err
		}
		tenants = append(tenants, t)
	}
	switch {
	case rows.Err() != nil:
		return "", rows.Err()
	case len(tenants) == 0:
		return "", fmt.Errorf("%w: %.140q", store.ErrNotFound, run)
	case len(tenants) > 1:
		return "", fmt.Errorf("run %.140q belongs to several tenants: %w", run, store.ErrAmbiguous)
	}
	return tenants[0], nil
}

// Manifests implements store.Store.
func (s *Store) Manifests(ctx context.Context, tenant, run string) ([]store.Manifest, error) {
	rows, err := s.db.conn.Query(ctx, "SELECT idx, first, last, count, root, manifest FROM segments FINAL WHERE "+ofTenant(tenant)+
		" AND run = "+quote(run)+" AND manifest != '' ORDER BY idx, ingested LIMIT 1 BY idx")
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	defer rows.Close()
	var chain []store.Manifest
	for rows.Next() {
		var m store.Manifest
		var root, manifest string
		if err := rows.Scan(&m.Index, &m.First, &m.Last, &m.Count, &root, &manifest); err != nil {
			return nil, fmt.Errorf("read manifests: %w", err)
		}
		copy(m.Root[:], root)
		m.Bytes = []byte(manifest)
		chain = append(chain, m)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	return chain, nil
}
