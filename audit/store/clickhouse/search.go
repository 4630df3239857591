package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/custody-project/custody/audit/store"
)

// Search implements store.Store. The table lies by run, so that the newest of all runs are found by going
// back in stretches of time, of about as many records as a query gets through quickly.
func (s *Store) Search(ctx context.Context, q store.Search) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		if err := q.Check(); err != nil {
			yield(store.Row{}, err)
			return
		}
		g := searching{s: s, ctx: ctx, q: q, where: searchWhere(q), at: latest, yield: yield}
		if q.Before != nil {
			g.at = *q.Before
		}
		err := g.all()
		switch {
		case err == nil, errors.Is(err, errStop):
		case ctx.Err() != nil:
			yield(store.Row{}, &store.CutError{At: g.at, Err: context.Cause(ctx)})
		default:
			yield(store.Row{}, fmt.Errorf("search records: %w", err))
		}
	}
}

// Ends of what a record's time can be.
var (
	earliest = time.Unix(0, 0).UTC()
	latest   = store.Head{Time: time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC)}
)

// searching is a search under way.
type searching struct {
	s     *Store
	ctx   context.Context
	q     store.Search
	where string
	at    store.Head // all that matches before this place was yielded, and nothing from it on
	given int
	yield func(store.Row, error) bool
}

// all goes back from stretch to stretch.
func (g *searching) all() error {
	cuts, err := g.cuts()
	if err != nil {
		return err
	}
	for _, from := range append(cuts, earliest) {
		if from.After(g.at.Time) {
			continue
		}
		if err := g.stretch(from); err != nil {
			return err
		}
		if g.at = (store.Head{Time: from}); from.Before(g.q.From) {
			return nil
		}
	}
	return nil
}

// Records of a stretch. Fields are looked for in the first, where what is common is found, and then in
// so many times more; a text is read for, which is to take some tenths of a second at a time.
const (
	firstStretch = 200000
	moreStretch  = 8
	textStretch  = 400000
)

// cuts returns where stretches end, the newest first. They divide the time, and nothing else depends on them.
func (g *searching) cuts() ([]time.Time, error) {
	level := fmt.Sprintf("intDiv(sofar, %d)", textStretch)
	if g.q.Text == "" {
		level = fmt.Sprintf("toInt32(floor(log(greatest(sofar / %d, 0.9)) / log(%d)))", firstStretch, moreStretch)
	}
	where := append([]string{ofTenant(g.q.Tenant), "count > 0", "first_time <= " + instant(g.at.Time)}, timesBetween("first_time", g.q.From, g.q.To)...)
	rows, err := g.s.db.Query(g.ctx, fmt.Sprintf(`SELECT assumeNotNull(min(first_time)) AS cut FROM
		(SELECT first_time, sum(count) OVER (ORDER BY first_time DESC) AS sofar FROM segments WHERE %s)
		GROUP BY %s ORDER BY cut DESC`, strings.Join(where, " AND "), level))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var cuts []time.Time
	for rows.Next() {
		var t time.Time
		if err := rows.Scan(&t); err != nil {
			return nil, err
		}
		cuts = append(cuts, t.UTC())
	}
	return cuts, rows.Err()
}

// stretch yields what matches from g.at back to a time, that included.
func (g *searching) stretch(from time.Time) error {
	for {
		want := 0 // no limit
		if g.q.Limit > 0 {
			want = g.q.Limit - g.given + forkSpare
		}
		n, err := g.rows(from, want)
		if err != nil || want == 0 || n < want {
			return err
		}
	}
}

// rows yields at most limit rows of those, less what loses in a fork, and returns how many it read.
func (g *searching) rows(from time.Time, limit int) (n int, err error) {
	const order = " ORDER BY time DESC, run DESC, seq DESC, leaf, kind = '' LIMIT 1 BY tenant, run, seq, leaf"
	where := fmt.Sprintf("%s AND time >= %s AND time <= %s AND (time, run, seq) < (%[3]s, %[4]s, %[5]d)",
		g.where, instant(from), instant(g.at.Time), quote(g.at.Run), g.at.Seq)
	query := " FROM records WHERE " + where + order
	if limit > 0 { // bodies are read of those that are wanted only
		query = fmt.Sprintf(" FROM records WHERE (tenant, run, time, seq, leaf) IN (SELECT tenant, run, time, seq, leaf%s LIMIT %d) AND %s%s", query, limit, where, order)
	}
	rows, err := g.s.db.Query(g.ctx, gone(ofTenant(g.q.Tenant))+"SELECT "+readColumns+query)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var some []found // until it is known which of them lose in a fork
	for rows.Next() {
		f, err := scanRow(rows)
		if err != nil {
			return n, err
		}
		n++
		if some = append(some, f); len(some) == searchChunk {
			if err := g.give(some); err != nil {
				return n, err
			}
			some = some[:0]
		}
	}
	if err := rows.Err(); err != nil {
		return n, err
	}
	return n, g.give(some)
}

func searchWhere(q store.Search) string {
	var where []string
	for _, one := range []struct{ column, value string }{
		{"path", q.Path}, {"host", store.HostName(q.Host)}, {"hash", q.Hash}, {"secret", q.Secret}, {"rule", q.Rule},
	} {
		if one.value != "" {
			where = append(where, one.column+" = "+quote(one.value))
		}
	}
	if q.Text != "" { // as bytes, and of them only ASCII letters have a case
		where = append(where, "positionCaseInsensitive(body, "+quote(q.Text)+") > 0")
	}
	if len(where) > 0 {
		where = append(where, "NOT gone")
	}
	where = append(append(append(where, ofTenant(q.Tenant)), ofKinds(q.Kinds)...), timesBetween("time", q.From, q.To)...)
	return strings.Join(where, " AND ")
}

// forkSpare is how many rows more than wanted are asked for, in the place of those that lose in a fork.
const forkSpare = 16

// searchChunk rows are looked up at once: they fit into one query's text.
const searchChunk = 500

// give yields rows, but for those that lose in a fork.
func (g *searching) give(some []found) error {
	forks, err := g.s.forks(g.ctx, some)
	if err != nil {
		return err
	}
	for _, f := range some {
		if same := forks[place{f.Tenant, f.Run, f.Seq}]; same != nil {
			one, err := g.s.choose(g.ctx, runKey{f.Tenant, f.Run}, same)
			if err != nil {
				return err
			}
			if one.leaf != f.leaf {
				g.at = f.Head
				continue
			}
		}
		g.at = f.Head
		g.given++
		if !g.yield(f.Row, nil) || g.given == g.q.Limit {
			return errStop
		}
	}
	return nil
}

// forks returns what stands at those of the rows' places at which there are different rows.
func (s *Store) forks(ctx context.Context, rows []found) (map[place][]found, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	places := make([]string, len(rows))
	for i, f := range rows {
		places[i] = fmt.Sprintf("(%s, %s, %d)", quote(f.Tenant), quote(f.Run), f.Seq)
	}
	const at = "(tenant, run, seq) IN ("
	in := at + strings.Join(places, ", ") + ")"
	answer, err := s.db.Query(ctx, "SELECT DISTINCT tenant, run, seq, leaf, root FROM records WHERE "+in+" AND "+at+
		"SELECT tenant, run, seq FROM records WHERE "+in+" GROUP BY tenant, run, seq HAVING uniqExact(leaf) > 1) ORDER BY leaf")
	if err != nil {
		return nil, err
	}
	defer answer.Close()
	forks := map[place][]found{}
	for answer.Next() {
		var f found
		var leaf, root string
		if err := answer.Scan(&f.Tenant, &f.Run, &f.Seq, &leaf, &root); err != nil {
			return nil, err
		}
		copy(f.leaf[:], leaf)
		copy(f.root[:], root)
		key := place{f.Tenant, f.Run, f.Seq}
		forks[key] = append(forks[key], f)
	}
	return forks, answer.Err()
}
