package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/custody-project/custody/store"
)

const runColumns = `run, tenant, host, project, start, first_time, "end", status, result, exit_code, tier, mode, template,
	events, findings, gaps, lost, last_seq`

const (
	began     = "coalesce(start, first_time)" // when a run began, as an expression
	runsOrder = began + " DESC, run DESC"
)

// Runs returns the summaries of the runs that match, newest first.
func (s *Store) Runs(ctx context.Context, f store.Filter) ([]store.Run, error) {
	runs, err := s.runs(ctx, runsSQL(f), f.Limit)
	return runs, s.wrap("list runs", err)
}

func runsSQL(f store.Filter) *selection {
	sel := selectRuns(f.Tenant, f.Class)
	if f.Project != "" {
		sel.and("project = ?", f.Project)
	}
	if f.Status != "" {
		sel.and("status = ?", string(f.Status))
	}
	if f.Findings {
		sel.and("findings > 0")
	}
	if !f.From.IsZero() {
		sel.and(began+" >= ?", nano(f.From))
	}
	if !f.To.IsZero() {
		sel.and(began+" < ?", nano(f.To))
	}
	if f.Before != nil {
		at := nano(f.Before.Began())
		sel.and(began+" <= ? AND ("+began+", run) < (?, ?)", at, at, f.Before.ID) // SQLite does not use an index on an expression for the second condition alone
	}
	return sel
}

// tenantName returns the tenant as stored in a row.
func tenantName(asked string) string {
	if asked == store.NoTenant {
		return ""
	}
	return asked
}

// selectRuns starts a selection for runs.
func selectRuns(tenant string, class store.Class) *selection {
	sel := &selection{}
	sel.text.WriteString("SELECT " + runColumns + " FROM runs WHERE 1")
	if tenant != "" {
		sel.and("tenant = ?", tenantName(tenant))
	}
	switch class {
	case "":
	case store.Accesses:
		sel.and("substr(run, 1, ?) = ?", len(store.AccessPrefix), store.AccessPrefix)
	case store.Sandboxes:
		sel.and("substr(run, 1, ?) <> ?", len(store.AccessPrefix), store.AccessPrefix)
	default:
		sel.and("0")
	}
	return sel
}

// Run finds a run of a tenant, or of any if that is empty, by its name, by a
// unique prefix, or as Last. The error is store.ErrNotFound or store.ErrAmbiguous.
func (s *Store) Run(ctx context.Context, tenant, name string) (store.Run, error) {
	var runs []store.Run
	var err error
	if name == store.Last {
		runs, err = s.runs(ctx, selectRuns(tenant, store.Sandboxes), 1)
	} else if name != "" {
		// An exact name takes precedence over a longer one with that prefix.
		sel := selectRuns(tenant, "")
		sel.and("run = ?", name)
		runs, err = s.runs(ctx, sel, 1)
		if err == nil && len(runs) == 0 {
			sel := selectRuns(tenant, "")
			sel.and("run > ? AND substr(run, 1, length(?)) = ?", name, name, name)
			runs, err = s.runs(ctx, sel, 2)
		}
	}
	switch {
	case err != nil:
		return store.Run{}, s.wrap("find run", err)
	case len(runs) == 0:
		return store.Run{}, fmt.Errorf("%w: %.140q", store.ErrNotFound, name)
	case len(runs) > 1:
		return store.Run{}, fmt.Errorf("%w: %.140q", store.ErrAmbiguous, name)
	}
	return runs[0], nil
}

func (s *Store) runs(ctx context.Context, sel *selection, limit int) ([]store.Run, error) {
	sel.order(runsOrder, limit)
	rows, err := s.db.QueryContext(ctx, sel.text.String(), sel.args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var runs []store.Run
	for rows.Next() {
		r, err := scanRun(rows.Scan)
		if err != nil {
			return nil, rowError(rows, "runs", r.ID, err)
		}
		r.Start = r.Began()
		runs = append(runs, r)
	}
	return runs, rows.Err()
}

func scanRun(scan func(...any) error) (store.Run, error) {
	var r store.Run
	var start, end, exit sql.NullInt64
	var first int64
	err := scan(&r.ID, &r.Tenant, &r.Host, &r.Project, &start, &first, &end, &r.Status, &r.Result, &exit, &r.Tier, &r.Mode,
		&r.Template, &r.Events, &r.Findings, &r.Gaps, &r.Lost, &r.LastSeq)
	if err != nil {
		return r, err
	}
	r.FirstTime = fromNano(first)
	if start.Valid {
		r.Start = fromNano(start.Int64)
	}
	if end.Valid {
		t := fromNano(end.Int64)
		r.End = &t
		r.DurationNS = int64(t.Sub(r.Began()))
	}
	if exit.Valid {
		code := int(exit.Int64)
		r.ExitCode = &code
	}
	return r, nil
}

// loadSummary returns the run's stored summary, or that of a new run
// with the tenant and host of seg.
func loadSummary(ctx context.Context, tx *sql.Tx, seg store.Segment) (store.Run, error) {
	r, err := scanRun(tx.QueryRowContext(ctx, "SELECT "+runColumns+" FROM runs WHERE run = ?", seg.Run).Scan)
	if !errors.Is(err, sql.ErrNoRows) {
		return r, err
	}
	r = store.NewRun(seg.Run)
	r.Tenant, r.Host = seg.Tenant, seg.Host
	// A closing manifest that was ingested first has no records, and so no summary.
	err = tx.QueryRowContext(ctx, "SELECT tenant, host FROM manifests WHERE run = ? LIMIT 1", seg.Run).Scan(&r.Tenant, &r.Host)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return r, err
}

func saveSummary(ctx context.Context, tx *sql.Tx, r store.Run) error {
	var start, end, exit any
	if !r.Start.IsZero() {
		start = r.Start.UnixNano()
	}
	if r.End != nil {
		end = r.End.UnixNano()
	}
	if r.ExitCode != nil {
		exit = *r.ExitCode
	}
	_, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO runs ("+runColumns+") VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
		r.ID, r.Tenant, r.Host, r.Project, start, r.FirstTime.UnixNano(), end, string(r.Status), string(r.Result), exit, r.Tier, r.Mode,
		r.Template, int64(r.Events), int64(r.Findings), int64(r.Gaps), int64(r.Lost), int64(r.LastSeq))
	return err
}

// nano returns t as stored in the database, or the nearest value that it can store.
func nano(t time.Time) int64 {
	switch {
	case t.Before(fromNano(math.MinInt64)):
		return math.MinInt64
	case t.After(fromNano(math.MaxInt64)):
		return math.MaxInt64
	}
	return t.UnixNano()
}

func fromNano(ns int64) time.Time { return time.Unix(0, ns).UTC() }
