package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// Search implements store.Store. The table is ordered by run, so that the newest records of all runs are found by going
// back in time intervals ("stretches") with about as many records as a query processes quickly.
func (s *Store) Search(ctx context.Context, q store.Search) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		if err := q.Check(); err != nil {
			yield(store.Row{}, err)
			return
		}
		g := searching{reader: s.reader, first: s.stretch, ctx: ctx, q: q, where: searchWhere(q), class: ofClasses(searchClasses(q)), at: latest, yield: yield}
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

// Ends of the range of a record's time.
var (
	earliest = time.Unix(0, 0).UTC()
	latest   = store.Head{Time: time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC)}
)

// searching is the state of a search.
type searching struct {
	reader reader
	first  uint64 // records in the first stretch
	ctx    context.Context
	q      store.Search
	where  string
	class  string     // the partitions that can have matches
	at     store.Head // all matches before this position were yielded, and none from it on
	given  int
	yield  func(store.Row, error) bool
}

// all goes back from stretch to stretch.
func (g *searching) all() error {
	cuts, err := g.cuts()
	if err != nil {
		return err
	}
	for goal := g.first; len(cuts) > 0; {
		n := 1
		for n < len(cuts) && cuts[n].sofar <= goal {
			n++
		}
		cut := cuts[n-1]
		cuts = cuts[n:]
		if cut.at.After(g.at.Time) {
			continue
		}
		if err := g.stretch(cut.at); err != nil {
			return err
		}
		if g.at = (store.Head{Time: cut.at}); cut.at.Before(g.q.From) {
			return nil
		}
		goal = g.goal(cut.sofar)
	}
	return nil
}

// Numbers of records in a stretch. A search for fields begins with the first, which finds common values. The size of the
// next one depends on how many matched so far. A search for text takes some tenths of a second for each stretch.
const (
	firstStretch = 200000
	moreStretch  = 8   // maximum growth without a limit: all matches in a stretch are sorted with their bodies
	mostStretch  = 64  // maximum growth with a limit
	finestCut    = 1.5 // growth from one cut to the next
	firstText    = 50000
	textStretch  = 400000
)

// goal returns how many of the newest records are searched after the next stretch: as many as should have the rest of the
// limit, with a quarter in reserve.
func (g *searching) goal(searched uint64) uint64 {
	switch {
	case g.q.Text != "":
		return 0 // to the next cut
	case g.q.Limit <= 0:
		return moreStretch * searched
	}
	perMatch := float64(searched) / float64(g.given+1)
	more := 1.25 * perMatch * float64(g.q.Limit-g.given+forkSpare)
	return searched + uint64(min(more, mostStretch*float64(searched)))
}

// cut is a time at which a stretch can end.
type cut struct {
	at    time.Time
	sofar uint64 // approximate number of records from there on
}

// cuts returns the times at which stretches can end, the newest first; the last is the beginning of time. They affect
// only the speed.
func (g *searching) cuts() ([]cut, error) {
	level := fmt.Sprintf("if(sofar <= %d, 0, 1 + intDiv(sofar, %d))", firstText, textStretch)
	if g.q.Text == "" {
		level = fmt.Sprintf("toInt32(floor(log(greatest(sofar / %d, 0.9)) / log(%g)))", g.first, finestCut)
	}
	where := append([]string{ofTenant(g.q.Tenant), "count > 0", "first_time <= " + instant(g.at.Time)}, timesBetween("first_time", g.q.From, g.q.To)...)
	rows, err := g.reader.db.conn.Query(g.ctx, fmt.Sprintf(`SELECT assumeNotNull(min(first_time)) AS cut, max(sofar) FROM
		(SELECT first_time, sum(count) OVER (ORDER BY first_time DESC) AS sofar FROM segments WHERE %s)
		GROUP BY %s ORDER BY cut DESC`, strings.Join(where, " AND "), level))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var cuts []cut
	for rows.Next() {
		var c cut
		if err := rows.Scan(&c.at, &c.sofar); err != nil {
			return nil, err
		}
		c.at = c.at.UTC()
		cuts = append(cuts, c)
	}
	if len(cuts) == 0 {
		return []cut{{at: earliest}}, rows.Err()
	}
	cuts[len(cuts)-1].at = earliest // also rows that are older than their segment's first time
	return cuts, rows.Err()
}

// stretch yields the matches from g.at back to a time, inclusive.
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

// rows yields the matches at the next positions, at most limit, and returns how many rows it
// read: less than limit at the end of the stretch. It reads bodies at those positions only.
func (g *searching) rows(from time.Time, limit int) (n int, err error) {
	const order = " ORDER BY time DESC, run DESC, seq DESC"
	query := fmt.Sprintf(" FROM records WHERE "+g.class+" AND %s AND time >= %s AND time <= %s AND (time, run, seq) < (%[3]s, %[4]s, %[5]d)%s",
		g.where, instant(from), instant(g.at.Time), quote(g.at.Run), g.at.Seq, order)
	if limit > 0 {
		query = fmt.Sprintf(" FROM records WHERE "+g.class+" AND (tenant, run, time, seq) IN (SELECT tenant, run, time, seq%s LIMIT %d)%s", query, limit, order)
	}
	rows, err := g.reader.db.conn.Query(g.ctx, gone(ofTenant(g.q.Tenant))+"SELECT "+readColumns+query+", leaf, kind = ''")
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var some []found // kept until it is known which of them lose in a fork
	for rows.Next() {
		f, err := scanRow(rows)
		if err != nil {
			return n, err
		}
		n++
		if last := len(some) - 1; last >= 0 && some[last].leaf == f.leaf && some[last].Newer(f.Head) == 0 && some[last].Tenant == f.Tenant {
			continue // a copy that is not merged yet
		}
		if len(some) >= searchChunk && some[len(some)-1].Newer(f.Head) != 0 {
			if err := g.give(some); err != nil {
				return n, err
			}
			some = some[:0]
		}
		some = append(some, f)
	}
	if err := rows.Err(); err != nil {
		return n, err
	}
	return n, g.give(some)
}

// searchWhere selects possible matches: reading the rows shows whether they were erased meanwhile.
func searchWhere(q store.Search) string {
	var where []string
	for _, one := range []struct{ column, value string }{
		{"path", q.Path}, {"host", store.HostName(q.Host)}, {"hash", q.Hash}, {"secret", q.Secret}, {"rule", q.Rule},
	} {
		if one.value != "" {
			where = append(where, one.column+" = "+quote(one.value))
			if kinded[one.column] {
				where = append(where, kindAnd(q.Kinds, one.column, one.value)...)
			}
		}
	}
	if q.Text != "" { // as bytes; only ASCII letters have a case
		where = append(where, "positionCaseInsensitive(body, "+quote(q.Text)+") > 0")
	}
	if len(q.Kinds) > 0 {
		where = append(where, kindIn(q.Kinds))
	}
	where = append(append(where, ofTenant(q.Tenant)), timesBetween("time", q.From, q.To)...)
	return strings.Join(where, " AND ")
}

// kinded are the columns that the index by_kind has together with the kind (migrations/004_kinds.sql).
var kinded = map[string]bool{"path": true, "host": true, "hash": true}

// kindAnd returns the condition that a column has the value in a record of one of the kinds, in the form of the index
// by_kind: a value that is common in other kinds only is then pruned too. It returns nothing without kinds.
func kindAnd(kinds []audit.Kind, column, value string) []string {
	if len(kinds) == 0 {
		return nil
	}
	both := make([]string, len(kinds))
	for i, kind := range kinds {
		both[i] = quote(string(kind) + " " + value)
	}
	return []string{"concat(toString(kind), ' ', " + column + ") IN (" + strings.Join(both, ", ") + ")"}
}

// searchClasses returns the classes of records that can match; nil is all. They partition
// the table.
func searchClasses(q store.Search) []Class {
	switch {
	case len(q.Kinds) > 0:
		return classesOf(q.Kinds)
	case q.Rule != "":
		return []Class{Evidence}
	case q.Path+q.Hash+q.Host+q.Secret != "":
		return []Class{Activity, Evidence}
	}
	return nil
}

// forkSpare is how many additional rows are requested to replace those that lose in a fork.
const forkSpare = 16

// searchChunk is the number of rows in one lookup: they fit in one query's text.
const searchChunk = 500

// give yields rows, except those that do not match when they are read, or that lose in a fork.
func (g *searching) give(some []found) error {
	clear, err := g.reader.acknowledged(g.ctx, some)
	if err != nil {
		return err
	}
	var doubtful []found
	for i, f := range some {
		if !clear[i] {
			doubtful = append(doubtful, f)
		}
	}
	forks, err := g.reader.forks(g.ctx, doubtful)
	if err != nil {
		return err
	}
	for _, f := range some {
		same := forks[place{f.Tenant, f.Run, f.Seq}]
		wins := true
		if same != nil {
			one, err := g.reader.choose(g.ctx, runKey{f.Tenant, f.Run}, same)
			if err != nil {
				return err
			}
			wins = one.leaf == f.leaf
		}
		g.at = f.Head
		if !wins || !g.matches(f.Row) {
			continue
		}
		g.given++
		if !g.yield(f.Row, nil) || g.given == g.q.Limit {
			return errStop
		}
	}
	return nil
}

func (g *searching) matches(r store.Row) bool {
	q := g.q
	q.Before = nil
	return q.Match(r)
}

// acknowledged reports for each row whether its segment has a marker, and is the only one at its
// position: then no different one can win over it. Almost all rows do; the others need another lookup.
func (r reader) acknowledged(ctx context.Context, rows []found) ([]bool, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	type key struct{ tenant, run, root string }
	keyOf := func(f found) key { return key{f.Tenant, f.Run, string(f.root[:])} }
	asked := map[key]bool{}
	var list []string
	for _, f := range rows {
		if k := keyOf(f); !asked[k] {
			asked[k] = true
			list = append(list, fmt.Sprintf("(%s, %s, unhex('%x'))", quote(k.tenant), quote(k.run), k.root))
		}
	}
	answer, err := r.db.conn.Query(ctx, "SELECT DISTINCT tenant, run, root FROM segments WHERE (tenant, run, root) IN ("+strings.Join(list, ", ")+")")
	if err != nil {
		return nil, err
	}
	defer answer.Close()
	marked := map[key]bool{}
	for answer.Next() {
		var k key
		if err := answer.Scan(&k.tenant, &k.run, &k.root); err != nil {
			return nil, err
		}
		marked[k] = true
	}
	at := map[place]int{}
	for _, f := range rows {
		at[place{f.Tenant, f.Run, f.Seq}]++
	}
	clear := make([]bool, len(rows))
	for i, f := range rows {
		clear[i] = marked[keyOf(f)] && at[place{f.Tenant, f.Run, f.Seq}] == 1
	}
	return clear, answer.Err()
}

// forks returns the rows at those positions that have different rows.
func (r reader) forks(ctx context.Context, rows []found) (map[place][]found, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	places := make([]string, len(rows))
	for i, f := range rows {
		places[i] = fmt.Sprintf("(%s, %s, %d)", quote(f.Tenant), quote(f.Run), f.Seq)
	}
	const at = "(tenant, run, seq) IN ("
	in := at + strings.Join(places, ", ") + ")"
	answer, err := r.db.conn.Query(ctx, "SELECT DISTINCT tenant, run, seq, leaf, root FROM records WHERE "+in+" AND "+at+
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
