package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"iter"
	"math"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// Search returns the matching records of all runs, newest first. It reads an index backward;
// if that alone does not suffice, it proceeds in steps, and sees changes that are made between two of them.
func (s *Store) Search(ctx context.Context, q store.Search) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		if err := q.Check(); err != nil {
			yield(store.Row{}, err)
			return
		}
		w := walk{store: s, ctx: ctx, q: q, way: wayOf(q), at: newest, left: q.Limit, yield: yield}
		if !q.To.IsZero() {
			w.at = store.Head{Time: q.To}
		}
		if q.Before != nil && w.at.Newer(*q.Before) < 0 {
			w.at = *q.Before
		}
		err := w.all()
		switch {
		case err == nil, errors.Is(err, errStop):
		case ctx.Err() != nil:
			yield(store.Row{}, &store.CutError{At: w.at, Err: context.Cause(ctx)})
		default:
			yield(store.Row{}, s.wrap("search records", err))
		}
	}
}

// errStop ends a search because the caller has stopped.
var errStop = errors.New("the caller has stopped")

// newest is after all records: the range of times in a store ends in 2261.
var newest = store.Head{Time: time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC)}

// way is the index that a search reads: the rows whose column is value, or all by time.
type way struct {
	index  string
	column string // "" for records_by_time
	value  any
	// more is true for all rows of a partial index; SQLite uses the index only if the query contains it.
	more string
}

// fewKinds is the condition of records_by_kind.
const fewKinds = "f.kind NOT IN ('', 'output', 'exec', 'exit', 'file', 'dns', 'flow', 'http')"

// wayOf selects the index that is likely to be the fastest.
func wayOf(q store.Search) way {
	for _, w := range []way{
		{index: "records_by_hash", column: "hash", value: hashColumn(q.Hash)},
		{index: "records_by_rule", column: "rule", value: orNull(q.Rule)},
		{index: "records_by_path", column: "path", value: orNull(q.Path)},
		{index: "records_by_secret", column: "secret", value: orNull(q.Secret)},
		{index: "records_by_host", column: "host", value: orNull(store.HostName(q.Host))},
	} {
		if w.value != nil {
			return w
		}
	}
	if len(q.Kinds) == 1 && isFew(q.Kinds[0]) {
		return way{index: "records_by_kind", column: "kind", value: string(q.Kinds[0]), more: " AND " + fewKinds}
	}
	return way{index: "records_by_time"}
}

func isFew(k audit.Kind) bool {
	return !strings.Contains(fewKinds, "'"+string(k)+"'")
}

// walk is the state of a search.
type walk struct {
	store *Store
	ctx   context.Context
	q     store.Search
	way   way
	at    store.Head // all matches before this position were yielded, and none from it on
	left  int        // 0 at the beginning means no limit
	given int
	yield func(store.Row, error) bool
}

// Numbers of index entries that a step reads. The first is small, as most searches find enough there;
// the last takes about a tenth of a second, which is how late the end of the context may be noticed. A search for a text
// reads rows, which takes longer than entries.
const (
	firstStep = 2000
	lastStep  = 50000
	textStep  = 10000
)

// all goes back in steps until the end of the index or of the limit. For a small tenant the index may have few entries
// among many of others: after as many entries as the tenant has records, it reads the tenant's records instead.
func (w *walk) all() error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	none, own, err := w.tenant()
	if err != nil || none {
		return err
	}
	rest := w.rest()
	if len(rest) == 0 {
		return w.rows(nil, nil)
	}
	most := lastStep
	if w.q.Text != "" {
		most = textStep
	}
	for step, seen := firstStep, 0; ; step = min(2*step, most) {
		if seen > own {
			return w.read(w.own(rest))
		}
		end, err := w.skip(step)
		if err != nil {
			return err
		}
		if err := w.rows(rest, end); err != nil || end == nil {
			return err
		}
		w.at = *end
		seen += step
		if err := w.ctx.Err(); err != nil {
			return err
		}
	}
}

// Maximum numbers of runs and records of a small tenant: they are read within about a tenth of a second.
const (
	ownRuns    = 200
	ownRecords = 30000
)

// tenant reports whether the search's tenant has no runs at all, and how many records it has if it is a small one. It
// uses the summaries: a wrong one costs time, and does not change the result.
func (w *walk) tenant() (none bool, own int, err error) {
	if w.q.Tenant == "" {
		return false, math.MaxInt, nil
	}
	var runs, records int
	err = w.store.db.QueryRowContext(w.ctx, "SELECT count(*), coalesce(sum(max(0, min(events, ?))), 0) FROM (SELECT events FROM runs WHERE tenant = ? LIMIT ?)",
		ownRecords+1, tenantName(w.q.Tenant), ownRuns+1).Scan(&runs, &records)
	if runs > ownRuns || records > ownRecords || w.q.Text != "" { // a search for a text takes tenths of a second
		records = math.MaxInt
	}
	return runs == 0, records, err
}

// own selects the matches from w.at backward from all records of the tenant's runs.
func (w *walk) own(rest []condition) *selection {
	sel := &selection{}
	sel.text.WriteString("SELECT f.tenant, " + recordColumns +
		" FROM runs AS f INDEXED BY runs_by_tenant CROSS JOIN records INDEXED BY sqlite_autoindex_records_1 ON records.run = f.run WHERE 1")
	sel.and("f.tenant = ?", tenantName(w.q.Tenant))
	if w.way.column != "" {
		sel.and("records."+w.way.column+" = ?", w.way.value)
	}
	sel.and("(records.time, records.run, records.seq) < (?, ?, ?)", nano(w.at.Time), w.at.Run, int64(min(w.at.Seq, store.MaxSeq)))
	if !w.q.From.IsZero() {
		sel.and("records.time >= ?", nano(w.q.From))
	}
	for _, c := range rest {
		sel.and(c.text, c.args...)
	}
	return sel.order(strings.ReplaceAll(backwards, "f.", "records."), max(0, w.left-w.given))
}

// condition is one condition of a selection.
type condition struct {
	text string
	args []any
}

// tenantOfRow is the empty string if the store has no summary of the run, so that its records are found and marked.
const tenantOfRow = "coalesce((SELECT tenant FROM runs WHERE runs.run = f.run), '')"

// rest returns the conditions that the index does not check. The tenant comes first, as it is known before a
// record's row is read.
func (w *walk) rest() (rest []condition) {
	if w.q.Tenant != "" {
		rest = append(rest, condition{tenantOfRow + " = ?", []any{tenantName(w.q.Tenant)}})
	}
	for _, one := range []struct {
		column string
		value  any
	}{
		{"hash", hashColumn(w.q.Hash)}, {"rule", orNull(w.q.Rule)}, {"path", orNull(w.q.Path)},
		{"secret", orNull(w.q.Secret)}, {"host", orNull(store.HostName(w.q.Host))},
	} {
		if one.value != nil && one.column != w.way.column {
			rest = append(rest, condition{"records." + one.column + " = ?", []any{one.value}})
		}
	}
	if len(w.q.Kinds) > 0 && w.way.column != "kind" {
		rest = append(rest, kindIn("records.kind", w.q.Kinds))
	}
	if w.q.Text != "" { // as bytes: as characters, a part of one would not be found
		rest = append(rest, condition{"instr(CAST(lower(records.body) AS BLOB), ?) > 0", []any{w.q.Needle()}})
	}
	return rest
}

// recordColumns are columnNames qualified for joins.
var recordColumns = "records." + strings.ReplaceAll(columnNames, ", ", ", records.")

const backwards = "f.time DESC, f.run DESC, f.seq DESC"

// along selects from entries f of the index, from w.at backward, and from the tables joined to them.
func (w *walk) along(columns, join string) *selection {
	sel := &selection{}
	sel.text.WriteString("SELECT " + columns + " FROM records AS f INDEXED BY " + w.way.index + join + " WHERE 1" + w.way.more)
	if w.way.column != "" {
		sel.and("f."+w.way.column+" = ?", w.way.value)
	}
	sel.and("(f.time, f.run, f.seq) < (?, ?, ?)", nano(w.at.Time), w.at.Run, int64(min(w.at.Seq, store.MaxSeq)))
	return sel
}

// until ends a selection at a position, inclusive, or where nothing older is wanted. A condition on times alone
// would be compared with each entry; one on positions bounds the scan.
func (w *walk) until(sel *selection, end *store.Head) {
	if end == nil && !w.q.From.IsZero() {
		end = &store.Head{Time: w.q.From}
	}
	if end != nil {
		sel.and("(f.time, f.run, f.seq) >= (?, ?, ?)", nano(end.Time), end.Run, int64(end.Seq))
	}
}

// skip returns the position of the n-th entry from w.at backward, nil if there are fewer. It reads no row.
func (w *walk) skip(n int) (*store.Head, error) {
	sel := w.skipping(n)
	var ns int64
	var h store.Head
	err := w.store.db.QueryRowContext(w.ctx, sel.text.String(), sel.args...).Scan(&ns, &h.Run, &h.Seq)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	h.Time = fromNano(ns)
	return &h, err
}

func (w *walk) skipping(n int) *selection {
	sel := w.along("f.time, f.run, f.seq", "")
	w.until(sel, nil)
	sel.order(backwards, 1)
	sel.text.WriteString(" OFFSET ?")
	sel.args = append(sel.args, n-1)
	return sel
}

// rows yields the matches from w.at back to end, inclusive; nil is the end of the index.
func (w *walk) rows(rest []condition, end *store.Head) error { return w.read(w.selection(rest, end)) }

// read yields the results of a selection.
func (w *walk) read(sel *selection) error {
	rows, err := w.store.db.QueryContext(w.ctx, sel.text.String(), sel.args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		row, err := scanRow(rows)
		if err != nil {
			return err
		}
		w.at = row.Head
		w.given++
		if !w.yield(row, nil) || w.given == w.left {
			return errStop
		}
	}
	return rows.Err()
}

func (w *walk) selection(rest []condition, end *store.Head) *selection {
	sel := w.along(tenantOfRow+", "+recordColumns,
		" CROSS JOIN records ON records.run = f.run AND records.seq = f.seq") // CROSS: in this order
	w.until(sel, end)
	for _, c := range rest {
		sel.and(c.text, c.args...)
	}
	return sel.order(backwards, max(0, w.left-w.given))
}

func kindIn(column string, kinds []audit.Kind) condition {
	args := make([]any, len(kinds))
	for i, k := range kinds {
		args[i] = string(k)
	}
	return condition{column + " IN (?" + strings.Repeat(",?", len(kinds)-1) + ")", args}
}
