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

// Search implements store.Store. The table lies by run, so that the newest of all runs are found by going
// back in stretches of time, of about as many records as a query gets through quickly.
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

// Ends of what a record's time can be.
var (
	earliest = time.Unix(0, 0).UTC()
	latest   = store.Head{Time: time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC)}
)

// searching is a search under way.
type searching struct {
	reader reader
	first  uint64 // records of the first stretch
	ctx    context.Context
	q      store.Search
	where  string
	class  string     // the partitions in which it can be
	at     store.Head // all that matches before this place was yielded, and nothing from it on
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

// Records of a stretch. A search for fields begins with the first, where what is common is found. How many more records the
// next one takes depends on how many matched so far. A text is read for, some tenths of a second at a time.
const (
	firstStretch = 200000
	moreStretch  = 8   // times as many, without a limit: all that matches in a stretch is sorted with its body
	mostStretch  = 64  // times as many at most, with a limit
	finestCut    = 1.5 // times as many from one cut to the next
	firstText    = 50000
	textStretch  = 400000
)

// goal returns how many of the newest records are searched after the next stretch: as many as should have the rest of the
// limit, with a quarter to spare.
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

// cut is a place at which a stretch can end.
type cut struct {
	at    time.Time
	sofar uint64 // records from there on, about
}

// cuts returns where stretches can end, the newest first; the last is the beginning of time. They divide the time, and nothing
// else depends on them.
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
	cuts[len(cuts)-1].at = earliest // also what is older than its segment says
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

// rows yields what matches at the next places, of which there are at most limit, and returns how many rows it
// read: less than limit at the end of the stretch. Bodies are read of those places only.
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
	var some []found // until it is known which of them lose in a fork
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

// searchWhere selects what may match: that it was erased meanwhile is found when it is read.
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
	if q.Text != "" { // as bytes, and of them only ASCII letters have a case
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

// kindAnd is the condition that a column has the value in a record of one of the kinds, as the index by_kind has it: what is
// common in records of other kinds then prunes as well as what is rare. Nothing without kinds.
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

// searchClasses are those of the records that can have what is searched for; nil is all. They divide
// the partitions.
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

// forkSpare is how many rows more than wanted are asked for, in the place of those that lose in a fork.
const forkSpare = 16

// searchChunk is the number of rows in one lookup: they fit into one query's text.
const searchChunk = 500

// give yields rows, but for those that do not match once they are read, or that lose in a fork.
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

// acknowledged says of each row whether its segment has a marker, and it is the only one of these at its
// place: then none that differs can win over it. Hardly any has none, and needs more of a look.
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

// forks returns what stands at those of the rows' places at which there are different rows.
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
