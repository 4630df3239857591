package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/custody-project/custody/audit/store"
)

// errAll keeps a search from being the whole store by mistake.
var errAll = errors.New("search records: one of path, host, hash, secret, rule or from is needed")

// Search implements store.Store; of records of one time, those of later runs and seqs are first.
func (s *Store) Search(ctx context.Context, q store.Search) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		if err := s.search(ctx, q, yield); err != nil && !errors.Is(err, errStop) {
			yield(store.Row{}, fmt.Errorf("search records: %w", err))
		}
	}
}

func (s *Store) search(ctx context.Context, q store.Search, yield func(store.Row, error) bool) error {
	where, err := searchWhere(q)
	if err != nil {
		return err
	}
	const order = " ORDER BY time DESC, run DESC, seq DESC, leaf, kind = '' LIMIT 1 BY tenant, run, seq, leaf"
	from := " FROM records WHERE " + where + order
	if q.Limit > 0 { // bodies are read of those that are wanted only
		from = fmt.Sprintf(" FROM records WHERE (tenant, run, time, seq, leaf) IN (SELECT tenant, run, time, seq, leaf%s LIMIT %d) AND %s%s", from, q.Limit+forkSpare, where, order)
	}
	rows, err := s.db.Query(ctx, gone(ofTenant(q.Tenant))+"SELECT "+readColumns+from)
	if err != nil {
		return err
	}
	defer rows.Close()
	out := searchOut{s: s, ctx: ctx, left: q.Limit, yield: yield}
	for rows.Next() {
		f, err := scanRow(rows)
		if err != nil {
			return err
		}
		if err := out.add(f); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return out.flush()
}

func searchWhere(q store.Search) (string, error) {
	var where []string
	for _, one := range []struct{ column, value string }{
		{"path", q.Path}, {"host", store.HostName(q.Host)}, {"hash", q.Hash}, {"secret", q.Secret}, {"rule", q.Rule},
	} {
		if one.value != "" {
			where = append(where, one.column+" = "+quote(one.value))
		}
	}
	if len(where) == 0 && q.From.IsZero() {
		return "", errAll
	}
	if len(where) > 0 {
		where = append(where, "NOT gone")
	}
	where = append(append(append(where, ofTenant(q.Tenant)), ofKinds(q.Kinds)...), between(q.From, q.To)...)
	return strings.Join(where, " AND "), nil
}

// forkSpare is how many rows more than wanted are asked for, in the place of those that lose in a fork.
const forkSpare = 16

// searchChunk rows are looked up at once: they fit into one query's text.
const searchChunk = 500

// searchOut holds back rows until it is known which of them lose in a fork.
type searchOut struct {
	s     *Store
	ctx   context.Context
	left  int // 0 at the begin means no limit
	given int
	rows  []found
	yield func(store.Row, error) bool
}

func (o *searchOut) add(f found) error {
	o.rows = append(o.rows, f)
	if len(o.rows) < searchChunk {
		return nil
	}
	return o.flush()
}

func (o *searchOut) flush() error {
	forks, err := o.s.forks(o.ctx, o.rows)
	if err != nil {
		return err
	}
	for _, f := range o.rows {
		if same := forks[place{f.Tenant, f.Run, f.Seq}]; same != nil {
			one, err := o.s.choose(o.ctx, runKey{f.Tenant, f.Run}, same)
			if err != nil {
				return err
			}
			if one.leaf != f.leaf {
				continue
			}
		}
		if !o.yield(f.Row, nil) {
			return errStop
		}
		if o.given++; o.given == o.left {
			return errStop
		}
	}
	o.rows = o.rows[:0]
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
