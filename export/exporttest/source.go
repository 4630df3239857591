// Package exporttest has helpers for the tests of exporters and sinks: a feed that grows while it
// is read, certificates, and servers with faults.
package exporttest

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"sync"

	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// Source is an in-memory feed with injected faults. It is safe for concurrent use.
type Source struct {
	mu   sync.Mutex // guards the fields below
	refs []store.Ref
	rows map[string][]store.Row // by run
	Fail func() error           // called before each operation, if set before the first
}

// Add ingests segments like a store. Segments without frames are in the feed as well.
func (s *Source) Add(segs ...store.Segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rows == nil {
		s.rows = map[string][]store.Row{}
	}
	for _, seg := range segs {
		for _, f := range seg.Frames {
			row := store.Row{Tenant: seg.Tenant, Body: f.Body, Salt: f.Salt, Erased: f.Erased, Head: store.Head{Run: seg.Run, Seq: f.Seq}}
			if f.Erased == nil {
				h, err := store.HeadOf(seg.Run, f)
				if err != nil {
					panic(err) // generated segments are valid
				}
				row.Head = h
			}
			s.rows[seg.Run] = append(s.rows[seg.Run], row)
		}
		slices.SortFunc(s.rows[seg.Run], func(a, b store.Row) int { return int(a.Seq) - int(b.Seq) })
		s.refs = append(s.refs, store.Ref{Tenant: seg.Tenant, Host: seg.Host, Run: seg.Run, Index: seg.Index,
			First: seg.First, Last: seg.Last, Count: uint64(len(seg.Frames)), Cursor: strconv.Itoa(len(s.refs) + 1)})
	}
}

// Foreign puts bytes into the store that need not be those of a record.
func (s *Source) Foreign(run string, seq uint64, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rows == nil {
		s.rows = map[string][]store.Row{}
	}
	s.rows[run] = append(s.rows[run], store.Row{Body: body, Head: store.Head{Run: run, Seq: seq}})
}

// Erase does what a store's Erase does.
func (s *Source) Erase(run string, seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.rows[run] {
		if r := &s.rows[run][i]; r.Seq == seq {
			leaf := r.Frame().Leaf()
			*r = store.Row{Tenant: r.Tenant, Erased: &leaf, Head: store.Head{Run: run, Seq: seq, Time: r.Time}}
		}
	}
}

// Lose removes a record, which no store should.
func (s *Source) Lose(run string, seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows[run] = slices.DeleteFunc(s.rows[run], func(r store.Row) bool { return r.Seq == seq })
}

func (s *Source) failure() error {
	if s.Fail == nil {
		return nil
	}
	return s.Fail()
}

// Feed implements export.Source.
func (s *Source) Feed(_ context.Context, after string, limit int) ([]store.Ref, error) {
	if err := s.failure(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	if after != "" {
		var err error
		if n, err = strconv.Atoi(after); err != nil || n > len(s.refs) {
			return nil, fmt.Errorf("cursor %q is not of this store", after)
		}
	}
	return slices.Clone(s.refs[n:min(n+limit, len(s.refs))]), nil
}

// Records implements export.Source.
func (s *Source) Records(_ context.Context, q store.Query) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		if err := s.failure(); err != nil {
			yield(store.Row{}, err)
			return
		}
		s.mu.Lock()
		rows := slices.Clone(s.rows[q.Run])
		s.mu.Unlock()
		n := 0
		for _, r := range rows {
			if r.Seq <= q.AfterSeq && q.AfterSeq > 0 || len(q.Kinds) > 0 && !slices.Contains(q.Kinds, r.Kind) {
				continue
			}
			if q.Limit > 0 && n == q.Limit {
				return
			}
			n++
			if !yield(r, nil) {
				return
			}
		}
	}
}

// IDs returns the id of each record of the source.
func (s *Source) IDs() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := map[string]bool{}
	for run, rows := range s.rows {
		for _, r := range rows {
			ids[run+":"+strconv.FormatUint(r.Seq, 10)] = true
		}
	}
	return ids
}

// Run generates the segments of a run of a tenant.
func Run(tenant, run string, records, size int) []store.Segment {
	segs := storetest.Run(run, records, size)
	for i := range segs {
		segs[i].Tenant, segs[i].Host = tenant, "host1"
	}
	return segs
}

// Items returns n events of a run, in the native format.
func Items(run string, n int) []export.Item {
	items := make([]export.Item, 0, n)
	for _, f := range storetest.Frames(run, storetest.Events(max(n, 4)))[:n] {
		h, err := store.HeadOf(run, f)
		if err != nil {
			panic(err) // generated events always encode
		}
		items = append(items, export.Item{ID: fmt.Sprintf("%s:%d", run, f.Seq), Time: h.Time, Severity: export.Info, Kind: h.Kind,
			Tenant: "acme", Host: "host1", Run: run, Seq: f.Seq, Data: f.Body})
	}
	return items
}
