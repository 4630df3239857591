package remote

import (
	"context"
	"errors"
	"iter"
	"os"
	"time"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/store"
)

// Server carries out the calls of a Store. It is safe for concurrent use.
type Server struct{ store store.Store }

// NewServer returns a Server for a store, which the caller closes.
func NewServer(s store.Store) Server { return Server{s} }

// Calls returns the names of the calls.
func Calls() []string {
	return []string{callIngest, callRepair, callRecords, callSearch, callRuns, callRun, callManifests, callFeed, callErase}
}

// Handlers returns the calls.
func (s Server) Handlers() map[string]privsep.Handler {
	return map[string]privsep.Handler{
		callIngest:    s.ingest,
		callRepair:    s.repair,
		callRecords:   handle(s.records),
		callSearch:    handle(s.search),
		callRuns:      handle(s.runs),
		callRun:       handle(s.run),
		callManifests: handle(s.manifests),
		callFeed:      handle(s.feed),
		callErase:     handle(s.erase),
	}
}

// timed are the arguments of a call with its limit.
type timed[T any] struct {
	Args   T
	Within time.Duration
}

// handle returns a handler whose result is in a file in memory.
func handle[A, R any](do func(ctx context.Context, args A) (R, error)) privsep.Handler {
	return privsep.Handle(func(ctx context.Context, c timed[A]) (any, []*os.File, error) {
		ctx, cancel := context.WithTimeout(ctx, min(c.Within, maxCall))
		defer cancel()
		r, err := do(ctx, c.Args)
		return memory(r, err)
	})
}

// given decodes the segments and the limit of a call.
func given(ctx context.Context, body []byte, files []*os.File) (segs []store.Segment, _ context.Context, cancel context.CancelFunc, err error) {
	var all segments
	if err := fromMemory(files, &all); err != nil {
		return nil, nil, nil, err
	}
	var w within
	if err := privsep.Decode(body, &w); err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel = context.WithTimeout(ctx, min(w.Within, maxCall))
	return all.Segments, ctx, cancel, nil
}

func (s Server) ingest(ctx context.Context, body []byte, files []*os.File) (any, []*os.File, error) {
	segs, ctx, cancel, err := given(ctx, body, files)
	if err != nil {
		return nil, nil, err
	}
	defer cancel()
	return none{}, nil, s.store.Ingest(ctx, segs...)
}

func (s Server) repair(ctx context.Context, body []byte, files []*os.File) (any, []*os.File, error) {
	segs, ctx, cancel, err := given(ctx, body, files)
	if err != nil {
		return nil, nil, err
	}
	defer cancel()
	if len(segs) != 1 {
		return nil, nil, errors.New("a repair is of one segment")
	}
	return none{}, nil, s.store.Repair(ctx, segs[0])
}

// limited returns the limit of a page.
func limited(limit int) int {
	if limit <= 0 {
		return pageCount
	}
	return min(limit, pageCount)
}

// collect reads a page of rows.
func collect(rows iter.Seq2[store.Row, error], limit int) (p page[row], err error) {
	size := 0
	for r, err := range rows {
		if err != nil {
			return p, err
		}
		p.All = append(p.All, rowOf(r))
		if size += len(r.Body) + frameBytes; size >= pageBytes || len(p.All) >= limit {
			p.More = true
			break
		}
	}
	return p, nil
}

func (s Server) records(ctx context.Context, w query) (page[row], error) {
	q := w.query()
	q.Limit = limited(q.Limit)
	return collect(s.store.Records(ctx, q), q.Limit)
}

// search searches until the page is full or its time is over: then the page has the position that it reached.
func (s Server) search(ctx context.Context, w search) (page[row], error) {
	q := w.search()
	q.Limit = limited(q.Limit)
	p, err := collect(s.store.Search(ctx, q), q.Limit)
	if cut := (*store.CutError)(nil); errors.As(err, &cut) {
		p.At, p.More = headOf(&cut.At), true
		return p, nil
	}
	return p, err
}

func (s Server) runs(ctx context.Context, w filter) (p page[summary], err error) {
	f := w.filter()
	f.Limit = limited(f.Limit)
	all, err := s.store.Runs(ctx, f)
	for _, r := range all {
		p.All = append(p.All, summaryOf(r))
	}
	p.More = len(all) >= f.Limit
	return p, err
}

func (s Server) run(ctx context.Context, at place) (summary, error) {
	r, err := s.store.Run(ctx, at.Tenant, at.Run)
	return summaryOf(r), err
}

func (s Server) manifests(ctx context.Context, c chain) (p page[store.Manifest], err error) {
	all, err := s.store.Manifests(ctx, c.Tenant, c.Run)
	size := 0
	for _, m := range all {
		if m.Index < c.From {
			continue
		}
		p.All = append(p.All, m)
		if size += len(m.Bytes) + frameBytes; size >= pageBytes || len(p.All) >= pageCount {
			p.More = true
			break
		}
	}
	return p, err
}

func (s Server) feed(ctx context.Context, at position) (p page[store.Ref], err error) {
	limit := limited(at.Limit)
	p.All, err = s.store.Feed(ctx, at.After, limit)
	p.More = len(p.All) >= limit
	return p, err
}

func (s Server) erase(ctx context.Context, r record) (none, error) {
	return none{}, s.store.Erase(ctx, r.Tenant, r.Run, r.Seq)
}
