package remote

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"time"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/store"
)

// Process is the process of a Store. It is safe for concurrent use.
type Process interface {
	// Conn returns the connection to the process, whose store is open. If the process has ended, for example because it was killed, it starts
	// another one.
	Conn(ctx context.Context) (*privsep.Conn, error)
	Close() error
}

// Store is a store in another process. It is safe for concurrent use.
type Store struct{ process Process }

var _ store.Store = (*Store)(nil)

// New returns a Store, which closes the process when it is closed.
func New(p Process) *Store { return &Store{p} }

// Close closes the store and ends the process. Calls under way fail.
func (s *Store) Close() error { return s.process.Close() }

// limitOf returns how long a call may take.
func limitOf(ctx context.Context) time.Duration {
	if until, ok := ctx.Deadline(); ok {
		return min(time.Until(until), maxCall)
	}
	return maxCall
}

// give makes a call with segments.
func (s *Store) give(ctx context.Context, call string, segs ...store.Segment) error {
	c, err := s.process.Conn(ctx)
	if err != nil {
		return err
	}
	f, err := privsep.Memory("segments", segments{segs})
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = c.Call(ctx, call, within{limitOf(ctx)}, nil, f)
	return err
}

// ask makes a call whose result is in a file in memory. limit bounds it besides ctx.
func ask[A, R any](ctx context.Context, s *Store, call string, args A, limit time.Duration) (r R, err error) {
	c, err := s.process.Conn(ctx)
	if err != nil {
		return r, err
	}
	var files []*os.File
	if files, err = c.Call(ctx, call, timed[A]{args, limit}, nil); err != nil {
		return r, err
	}
	return r, fromMemory(files, &r)
}

// Ingest implements store.Store. It passes large batches on in parts.
func (s *Store) Ingest(ctx context.Context, segs ...store.Segment) error {
	var part []store.Segment
	size := 0
	for _, seg := range segs {
		if err := checkSize(seg); err != nil {
			return fmt.Errorf("ingest: %w", err)
		}
		n := sizeOf(seg)
		if len(part) > 0 && size+n > maxBatch {
			if err := s.give(ctx, callIngest, part...); err != nil {
				return err
			}
			part, size = nil, 0
		}
		part, size = append(part, seg), size+n
	}
	if len(part) == 0 {
		return nil
	}
	return s.give(ctx, callIngest, part...)
}

// Repair implements store.Store.
func (s *Store) Repair(ctx context.Context, seg store.Segment) error {
	if err := checkSize(seg); err != nil {
		return fmt.Errorf("repair: %w", err)
	}
	return s.give(ctx, callRepair, seg)
}

// pages yields the elements of all pages, at most limit if that is not 0. next returns the next page of at most so many elements.
func pages[T any](limit int, next func(limit int) (page[T], error), yield func(T, error) bool) {
	for n := 0; ; {
		p, err := next(max(limit-n, 0))
		if err != nil {
			var none T
			yield(none, err)
			return
		}
		for _, e := range p.All {
			if !yield(e, nil) {
				return
			}
			if n++; n == limit {
				return
			}
		}
		if !p.More {
			return
		}
	}
}

// list returns the elements of all pages.
func list[T any](limit int, next func(limit int) (page[T], error)) (all []T, err error) {
	pages(limit, next, func(e T, failed error) bool {
		if err = failed; err == nil {
			all = append(all, e)
		}
		return err == nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// errOrder ends what would otherwise go on without an end.
var errOrder = errors.New("the store's process returns pages that do not continue each other")

func rowsOf(p page[row]) page[store.Row] {
	rows := page[store.Row]{More: p.More, At: p.At}
	for _, r := range p.All {
		rows.All = append(rows.All, r.row())
	}
	return rows
}

// Records implements store.Store.
func (s *Store) Records(ctx context.Context, q store.Query) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		q := q
		pages(q.Limit, func(limit int) (page[store.Row], error) {
			q.Limit = limit
			got, err := ask[query, page[row]](ctx, s, callRecords, queryOf(q), limitOf(ctx))
			p := rowsOf(got)
			for _, r := range p.All {
				if r.Seq <= q.AfterSeq {
					return p, errOrder
				}
				q.AfterSeq = r.Seq
			}
			p.More = p.More && len(p.All) > 0
			return p, err
		}, yield)
	}
}

// newest is a position before all records.
var newest = store.Head{Time: time.Unix(0, math.MaxInt64).UTC(), Run: "\U0010ffff", Seq: store.MaxSeq}

// Search implements store.Store.
func (s *Store) Search(ctx context.Context, q store.Search) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		q, at, slice := q, newest, firstSlice
		if q.Before != nil {
			at = *q.Before
		}
		pages(q.Limit, func(limit int) (page[store.Row], error) {
			q.Limit = limit
			if ctx.Err() != nil {
				return page[store.Row]{}, &store.CutError{At: at, Err: context.Cause(ctx)}
			}
			got, err := ask[search, page[row]](ctx, s, callSearch, searchOf(q), min(slice, limitOf(ctx)))
			if err != nil && ctx.Err() != nil {
				err = &store.CutError{At: at, Err: context.Cause(ctx)}
			}
			if err != nil {
				return page[store.Row]{}, err
			}
			p, reached := rowsOf(got), at
			switch {
			case p.At != nil:
				reached = *p.At.head()
			case len(p.All) > 0:
				reached = p.All[len(p.All)-1].Head
			}
			if samePlace(reached, at) {
				slice = min(2*slice, maxCall)
			}
			if p.More && len(p.All) > 0 && samePlace(reached, at) {
				return p, errOrder
			}
			if at = reached; !samePlace(at, newest) {
				q.Before = &at
			}
			return p, nil
		}, yield)
	}
}

func samePlace(a, b store.Head) bool { return a.Time.Equal(b.Time) && a.Run == b.Run && a.Seq == b.Seq }

// Runs implements store.Store.
func (s *Store) Runs(ctx context.Context, f store.Filter) ([]store.Run, error) {
	last := ""
	return list(f.Limit, func(limit int) (p page[store.Run], err error) {
		f.Limit = limit
		got, err := ask[filter, page[summary]](ctx, s, callRuns, filterOf(f), limitOf(ctx))
		for _, r := range got.All {
			p.All = append(p.All, r.run())
		}
		if n := len(p.All); n > 0 {
			if p.All[n-1].ID == last {
				return p, errOrder
			}
			f.Before, last = &p.All[n-1], p.All[n-1].ID
		}
		p.More = got.More && len(p.All) > 0
		return p, err
	})
}

// Run implements store.Store.
func (s *Store) Run(ctx context.Context, tenant, name string) (store.Run, error) {
	r, err := ask[place, summary](ctx, s, callRun, place{tenant, name}, limitOf(ctx))
	return r.run(), err
}

// Manifests implements store.Store.
func (s *Store) Manifests(ctx context.Context, tenant, run string) ([]store.Manifest, error) {
	c := chain{place: place{tenant, run}}
	return list(0, func(int) (page[store.Manifest], error) {
		p, err := ask[chain, page[store.Manifest]](ctx, s, callManifests, c, limitOf(ctx))
		for _, m := range p.All {
			if m.Index < c.From {
				return p, errOrder
			}
			c.From = m.Index + 1
		}
		p.More = p.More && len(p.All) > 0
		return p, err
	})
}

// Feed implements store.Store.
func (s *Store) Feed(ctx context.Context, after string, limit int) ([]store.Ref, error) {
	return list(limit, func(limit int) (page[store.Ref], error) {
		p, err := ask[position, page[store.Ref]](ctx, s, callFeed, position{after, limit}, limitOf(ctx))
		if n := len(p.All); n > 0 {
			if after == p.All[n-1].Cursor {
				return p, errOrder
			}
			after = p.All[n-1].Cursor
		}
		p.More = p.More && len(p.All) > 0
		return p, err
	})
}

// Erase implements store.Store.
func (s *Store) Erase(ctx context.Context, tenant, run string, seq uint64) error {
	_, err := ask[record, none](ctx, s, callErase, record{place{tenant, run}, seq}, limitOf(ctx))
	return err
}
