package clickhouse

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// runsSQL folds segments into runs. Sums are correct unless segments overlap, which the last column reports.
const runsSQL = `WITH arraySort(groupArrayIf((s.first, s.last), s.count > 0)) AS spans SELECT tenant, run, any(host), max(s.start) AS began_at, min(s.first_time) AS earliest, max(s.end) AS ended,
	anyIf(s.project, s.start IS NOT NULL) AS in_project, anyIf(s.template, s.start IS NOT NULL), anyIf(s.tier, s.start IS NOT NULL),
	anyIf(s.mode, s.start IS NOT NULL), anyIf(s.result, s.end IS NOT NULL) AS how, anyIf(s.exit_code, s.end IS NOT NULL),
	sum(s.count) AS events, sum(s.findings), sum(s.gaps), sum(s.lost), max(s.last_seq),
	arrayExists(i -> spans[i].1 <= spans[i - 1].2, range(2, length(spans) + 1)),
	multiIf(ended IS NULL, 'running', how = 'interrupted', 'interrupted', 'sealed') AS status
	FROM segments AS s FINAL WHERE %s GROUP BY tenant, run HAVING events > 0 ORDER BY coalesce(began_at, earliest) DESC, run DESC, tenant`

// pickSQL finds the runs for runsSQL: it reads few columns, and allows duplicate segments.
const pickSQL = `SELECT tenant, run FROM (SELECT tenant, run, max(start) AS began_at, min(first_time) AS earliest, coalesce(began_at, earliest) AS began, max(end) AS ended,
	anyIf(project, start IS NOT NULL) AS in_project, anyIf(result, end IS NOT NULL) AS how, max(findings) AS found,
	multiIf(ended IS NULL, 'running', how = 'interrupted', 'interrupted', 'sealed') AS status
	FROM segments WHERE %s GROUP BY tenant, run HAVING max(count) > 0 AND %s ORDER BY began DESC, run DESC, tenant%s)`

// Runs implements store.Store.
func (s *Store) Runs(ctx context.Context, f store.Filter) ([]store.Run, error) {
	where := []string{ofTenant(f.Tenant)}
	switch f.Class {
	case "":
	case store.Accesses:
		where = append(where, "startsWith(run, "+quote(store.AccessPrefix)+")")
	case store.Sandboxes:
		where = append(where, "NOT startsWith(run, "+quote(store.AccessPrefix)+")")
	default:
		where = append(where, "0")
	}
	runs, err := s.summarizer.runs(ctx, strings.Join(where, " AND "), having(f), f.Limit)
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	return runs, nil
}

// having returns the conditions on a run as a whole.
func having(f store.Filter) string {
	having := []string{"1"}
	if f.Project != "" {
		having = append(having, "in_project = "+quote(f.Project))
	}
	if f.Status != "" {
		having = append(having, "status = "+quote(string(f.Status)))
	}
	if f.Findings {
		having = append(having, "found > 0")
	}
	if !f.From.IsZero() {
		having = append(having, "began >= "+instant(f.From))
	}
	if !f.To.IsZero() {
		having = append(having, "began < "+instant(f.To))
	}
	if f.Before != nil {
		having = append(having, fmt.Sprintf("(began, run) < (%s, %s)", instant(f.Before.Began()), quote(f.Before.ID)))
	}
	return strings.Join(having, " AND ")
}

// tenantName returns the tenant as stored in a row.
func tenantName(asked string) string {
	if asked == store.NoTenant {
		return ""
	}
	return asked
}

// asking is the inverse of tenantName: it returns the filter for just that tenant.
func asking(tenant string) string {
	if tenant == "" {
		return store.NoTenant
	}
	return tenant
}

func ofTenant(asked string) string {
	if asked == "" {
		return "1"
	}
	return "tenant = " + quote(tenantName(asked))
}

// Run implements store.Store.
func (s *Store) Run(ctx context.Context, tenant, name string) (store.Run, error) {
	var runs []store.Run
	var err error
	of := ofTenant(tenant)
	if name == store.Last {
		runs, err = s.Runs(ctx, store.Filter{Tenant: tenant, Class: store.Sandboxes, Limit: 1})
	} else if name != "" {
		// An exact name takes precedence over a longer one with that prefix.
		runs, err = s.summarizer.runs(ctx, of+" AND run = "+quote(name), "1", 2)
		if err == nil && len(runs) == 0 {
			runs, err = s.summarizer.runs(ctx, of+" AND startsWith(run, "+quote(name)+")", "1", 2)
		}
	}
	switch {
	case err != nil:
		return store.Run{}, fmt.Errorf("find run: %w", err)
	case len(runs) == 0:
		return store.Run{}, fmt.Errorf("%w: %.140q", store.ErrNotFound, name)
	case len(runs) > 1:
		return store.Run{}, fmt.Errorf("%w: %.140q", store.ErrAmbiguous, name)
	}
	return runs[0], nil
}

// summarizer computes the summaries of runs: from their markers, or if those do not suffice from their rows.
type summarizer struct {
	db     *database
	reader reader
}

// runs returns the runs whose segments satisfy where and which satisfy having; with a limit, the newest of them.
func (s summarizer) runs(ctx context.Context, where, having string, limit int) ([]store.Run, error) {
	upTo := ""
	if limit > 0 {
		upTo = fmt.Sprintf(" LIMIT %d", limit)
	}
	picked := fmt.Sprintf(pickSQL, where, having, upTo)
	rows, err := s.db.conn.Query(ctx, fmt.Sprintf(runsSQL, where+" AND (tenant, run) GLOBAL IN ("+picked+")"))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var runs []store.Run
	var recount []int
	for rows.Next() {
		r, overlap, err := scanRun(rows)
		if err != nil {
			return nil, err
		}
		if overlap {
			recount = append(recount, len(runs))
		}
		runs = append(runs, r)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	for _, i := range recount {
		if err := s.recount(ctx, &runs[i]); err != nil {
			return nil, err
		}
	}
	return runs, nil
}

func scanRun(rows driver.Rows) (r store.Run, overlap bool, err error) {
	var start, first, end *time.Time
	var exit *int64
	var overlaps uint8
	var result, status string
	err = rows.Scan(&r.Tenant, &r.ID, &r.Host, &start, &first, &end, &r.Project, &r.Template, &r.Tier, &r.Mode, &result, &exit,
		&r.Events, &r.Findings, &r.Gaps, &r.Lost, &r.LastSeq, &overlaps, &status)
	if err != nil {
		return r, false, err
	}
	r.Status, r.Result = store.Status(status), audit.Status(result)
	if first != nil {
		r.FirstTime = first.UTC()
	}
	if start != nil {
		r.Start = start.UTC()
	}
	r.Start = r.Began()
	if end != nil {
		t := end.UTC()
		r.End, r.DurationNS = &t, int64(t.Sub(r.Start))
	}
	if exit != nil {
		code := int(*exit)
		r.ExitCode = &code
	}
	return r, overlaps != 0, nil
}

// recount computes from the rows what overlapping segments count twice.
func (s summarizer) recount(ctx context.Context, r *store.Run) error {
	sum, err := s.fold(ctx, runKey{r.Tenant, r.ID}, 0, store.MaxSeq)
	r.Events, r.Findings, r.Gaps, r.Lost = sum.Events, sum.Findings, sum.Gaps, sum.Lost
	return err
}

// fold computes a summary from the rows of a run from first to last: it reads those that affect it, and counts the others.
func (s summarizer) fold(ctx context.Context, run runKey, first, last uint64) (store.Run, error) {
	r := store.NewRun(run.run)
	where := fmt.Sprintf("tenant = %s AND run = %s AND seq BETWEEN %d AND %d", quote(run.tenant), quote(run.run), first, last)
	var events, lastSeq uint64
	var earliest time.Time
	err := s.db.conn.QueryRow(ctx, "SELECT uniqExact(seq), max(seq), min(time) FROM records WHERE "+where).Scan(&events, &lastSeq, &earliest)
	if err != nil || events == 0 {
		return r, err
	}
	speaking := []audit.Kind{audit.KindRun, audit.KindGap, audit.KindFinding}
	for row, err := range s.reader.all(ctx, store.Query{Tenant: asking(run.tenant), Run: run.run, Kinds: speaking}) {
		if err != nil {
			return r, err
		}
		if row.Seq < first || row.Seq > last {
			continue
		}
		h, err := store.ParseHead(row.Body)
		if err != nil {
			return r, err
		}
		r.Add(h)
	}
	r.Events, r.LastSeq, r.FirstTime = events, lastSeq, earliest.UTC()
	return r, nil
}
