// Package remote is a store in another process: a process of root gives it segments and asks questions, and parses none of the bytes of a
// server behind it.
//
//	root: Store --privsep--> process: Server --> store.Store --> a database server
//
// What the process returns is typed and bounded: rows, runs, manifests and references come in pages of at most pageBytes. A process that was
// taken over by the database server can return false ones, as that server can.
package remote

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/store"
)

// The calls of a Store.
const (
	callIngest    = "store-ingest"
	callRepair    = "store-repair"
	callRecords   = "store-records"
	callSearch    = "store-search"
	callRuns      = "store-runs"
	callRun       = "store-run"
	callManifests = "store-manifests"
	callFeed      = "store-feed"
	callErase     = "store-erase"
)

// Kinds are the errors that keep their identity across the connection. Both ends of it have them.
var Kinds = privsep.Kinds{
	"unsigned": store.ErrUnsigned, "not-found": store.ErrNotFound, "no-record": store.ErrNoRecord, "ambiguous": store.ErrAmbiguous,
	"conflict": store.ErrConflict, "malformed": store.ErrMalformed, "search-all": store.ErrSearchAll,
	"canceled": context.Canceled, "deadline": context.DeadlineExceeded,
}

// Limits of a call.
const (
	pageBytes = 8 << 20  // of a page, and of its last element besides
	pageCount = 10_000   // elements of a page
	maxBatch  = 16 << 20 // bytes of the segments that one call ingests, unless it is one segment
	maxCall   = 10 * time.Minute
	// firstSlice is how long one call of a search goes on before it returns what it has. It is doubled while a call finds no way forward.
	firstSlice = 2 * time.Second
)

type (
	none   struct{}
	within struct{ Within time.Duration } // the limit of a call
	// segments and those below are arguments. Those of within the call are sent with it, large ones and all pages in a file in memory.
	segments struct{ Segments []store.Segment }
	place    struct{ Tenant, Run string }
	chain    struct {
		place
		From uint64 // index of the first manifest
	}
	position struct {
		After string
		Limit int
	}
	record struct {
		place
		Seq uint64
	}
	// instant is a time, and head a store.Head. JSON has neither all times nor bytes that are no UTF-8, which a path can have.
	instant struct{ Seconds, Nano int64 }
	head    struct {
		Head store.Head
		Path []byte
		Time instant
	}
	query struct {
		Query    store.Query
		From, To instant
	}
	row struct {
		Row  store.Row
		Path []byte
	}
	search struct {
		Search     store.Search
		Path, Text []byte
		From, To   instant
		Before     *head
	}
	filter struct {
		Filter   store.Filter
		From, To instant
		Before   *head // of the run that Filter names: its name and start
	}
	// summary is a store.Run with the field that its form in JSON lacks.
	summary struct {
		Run   store.Run
		First time.Time
	}
	page[T any] struct {
		All  []T
		More bool  // there can be further elements
		At   *head //  the position that a search reached before its time was over
	}
)

func instantOf(t time.Time) instant { return instant{t.Unix(), int64(t.Nanosecond())} }

func (i instant) time() time.Time { return time.Unix(i.Seconds, i.Nano).UTC() }

func queryOf(q store.Query) query {
	w := query{q, instantOf(q.From), instantOf(q.To)}
	w.Query.From, w.Query.To = time.Time{}, time.Time{}
	return w
}

func (w query) query() store.Query {
	w.Query.From, w.Query.To = w.From.time(), w.To.time()
	return w.Query
}

func headOf(h *store.Head) *head {
	if h == nil {
		return nil
	}
	w := &head{*h, []byte(h.Path), instantOf(h.Time)}
	w.Head.Path, w.Head.Time = "", time.Time{}
	return w
}

func (h *head) head() *store.Head {
	if h == nil {
		return nil
	}
	h.Head.Path, h.Head.Time = string(h.Path), h.Time.time()
	return &h.Head
}

func rowOf(r store.Row) row {
	w := row{r, []byte(r.Path)}
	w.Row.Path = ""
	return w
}

// row returns a row without what only root's process sets.
func (w row) row() store.Row {
	w.Row.Path, w.Row.Mark, w.Row.Early = string(w.Path), nil, false
	return w.Row
}

func searchOf(q store.Search) search {
	w := search{q, []byte(q.Path), []byte(q.Text), instantOf(q.From), instantOf(q.To), headOf(q.Before)}
	w.Search.From, w.Search.To = time.Time{}, time.Time{}
	w.Search.Path, w.Search.Text, w.Search.Before = "", "", nil
	return w
}

func (w search) search() store.Search {
	w.Search.Path, w.Search.Text, w.Search.Before = string(w.Path), string(w.Text), w.Before.head()
	w.Search.From, w.Search.To = w.From.time(), w.To.time()
	return w.Search
}

func filterOf(f store.Filter) filter {
	w := filter{Filter: f, From: instantOf(f.From), To: instantOf(f.To)}
	w.Filter.From, w.Filter.To = time.Time{}, time.Time{}
	if b := f.Before; b != nil {
		w.Before, w.Filter.Before = headOf(&store.Head{Run: b.ID, Time: b.Start}), nil
	}
	return w
}

func (w filter) filter() store.Filter {
	w.Filter.From, w.Filter.To = w.From.time(), w.To.time()
	if b := w.Before.head(); b != nil {
		w.Filter.Before = &store.Run{ID: b.Run, Start: b.Time}
	}
	return w.Filter
}

func summaryOf(r store.Run) summary { return summary{r, r.FirstTime} }

func (s summary) run() store.Run {
	s.Run.FirstTime = s.First
	return s.Run
}

// memory returns a value in a file in memory, together with an empty result.
func memory(v any, err error) (any, []*os.File, error) {
	if err != nil {
		return nil, nil, err
	}
	f, err := privsep.Memory("store", v)
	if err != nil {
		return nil, nil, err
	}
	return none{}, []*os.File{f}, nil
}

// fromMemory decodes a value that came as the only file.
func fromMemory(files []*os.File, into any) error {
	if len(files) != 1 {
		for _, f := range files {
			f.Close()
		}
		return errors.New("a value of the store is one file")
	}
	return privsep.FromMemory(files[0], into)
}

// sizeOf returns the bytes of a segment, of which JSON makes a third more.
func sizeOf(s store.Segment) int {
	n := len(s.Manifest)
	for _, f := range s.Frames {
		n += len(f.Body) + frameBytes
	}
	return n
}

const (
	frameBytes = 160 // bound of a frame's other fields in JSON
	maxSegment = privsep.MaxMemory / 4 * 3
)

func checkSize(s store.Segment) error {
	if n := sizeOf(s); n > maxSegment {
		return fmt.Errorf("%w: segment %d of run %.140q has %d bytes, at most %d are accepted", store.ErrMalformed, s.Index, s.Run, n, maxSegment)
	}
	return nil
}
