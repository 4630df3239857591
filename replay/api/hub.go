package api

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/custody-project/custody/store"
)

const (
	// pollEvery is how often a live run's new records are read, and pollRun its state.
	pollEvery, pollRun = 200 * time.Millisecond, time.Second
	// ringRows and ringBytes bound what a hub keeps; a reader that is further behind reads the store.
	ringRows, ringBytes = 4096, 8 << 20
	// pollRows bounds one read.
	pollRows = 1000
)

// hub polls one live run for all its readers.
//
//	polling -- the run has ended, and all of it was read --> over
//	   `------ the last reader has gone -------------------> stopped
type hub struct {
	key     runKey
	source  Source  // for the state of the run
	src     Records // for its records
	markers *markers
	stop    context.CancelFunc
	done    chan struct{} // closed when the poll has ended
	users   int           // guarded by hubs.mu

	mu      sync.Mutex // guards the fields below
	changed chan struct{}
	run     store.Run
	rows    []store.Row // the latest, in order
	bytes   int         // of them
	floor   uint64      // all later rows are in rows, up to last
	last    uint64
	over    bool
	err     error // why it ended before the run did
}

// hubs has one hub for each run with readers.
type hubs struct {
	source  Source
	ahead   func(ctx context.Context, src Source, run store.Run) (Records, error) // nil: source has the records
	markers *markers
	ctx     context.Context // a hub outlives the request that began it
	stop    context.CancelFunc
	polls   sync.WaitGroup

	mu  sync.Mutex // guards all, their users, and that none begins once ctx has ended
	all map[runKey]*hub
}

func newHubs(ctx context.Context, source Source, ahead func(context.Context, Source, store.Run) (Records, error), m *markers) *hubs {
	hs := &hubs{source: source, ahead: ahead, markers: m, all: map[runKey]*hub{}}
	hs.ctx, hs.stop = context.WithCancel(ctx)
	return hs
}

// close ends all hubs and waits for them.
func (hs *hubs) close() {
	hs.mu.Lock()
	hs.stop()
	hs.mu.Unlock()
	hs.polls.Wait()
}

// join returns the run's hub; leave releases it.
func (hs *hubs) join(run store.Run) (*hub, error) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.ctx.Err() != nil {
		return nil, errEnding()
	}
	key := keyOf(run)
	if h := hs.all[key]; h != nil {
		h.users++
		return h, nil
	}
	ctx, stop := context.WithCancel(hs.ctx)
	src, err := hs.open(ctx, run)
	if err != nil {
		stop()
		return nil, err
	}
	h := &hub{key: key, source: hs.source, src: src, markers: hs.markers, stop: stop, done: make(chan struct{}), users: 1,
		changed: make(chan struct{}), run: run, floor: run.LastSeq, last: run.LastSeq}
	hs.all[key] = h
	hs.polls.Go(func() { h.poll(ctx) })
	return h, nil
}

// leave releases the hub. The last reader stops it and waits for its end.
func (hs *hubs) leave(h *hub) {
	hs.mu.Lock()
	h.users--
	gone := h.users == 0
	if gone {
		delete(hs.all, h.key)
	}
	hs.mu.Unlock()
	if gone {
		h.stop()
		<-h.done
	}
}

// open returns the best reader of a live run's records.
func (hs *hubs) open(ctx context.Context, run store.Run) (Records, error) {
	if hs.ahead == nil {
		return asIs{hs.source}, nil
	}
	src, err := hs.ahead(ctx, hs.source, run)
	return src, away(ctx, err)
}

// reader returns the best source of a run's records: the hub's, if the run has one.
func (hs *hubs) reader(run store.Run) interface {
	Records(ctx context.Context, q store.Query) iter.Seq2[store.Row, error]
} {
	if run.End == nil {
		hs.mu.Lock()
		defer hs.mu.Unlock()
		if h := hs.all[keyOf(run)]; h != nil {
			return h.src
		}
	}
	return hs.source
}

// asIs is a Source whose Close does nothing.
type asIs struct{ Source }

// Close does nothing.
func (asIs) Close() error { return nil }

// poll reads until the run has ended, no reader is left, or the store fails.
func (h *hub) poll(ctx context.Context) {
	defer close(h.done)
	defer h.src.Close()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	var looked time.Time
	for {
		run := h.run
		var err error
		if time.Since(looked) >= pollRun { // before the rows: a run that had ended then has no later rows
			run, err = h.source.Run(ctx, scopeOf(h.key.tenant), h.key.run)
			looked = time.Now()
		}
		n := 0
		if err == nil {
			n, err = h.read(ctx)
		}
		if h.settle(run, n, err) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// read reads the rows after the last.
func (h *hub) read(ctx context.Context) (int, error) {
	n := 0
	q := store.Query{Tenant: h.key.tenant, Run: h.key.run, AfterSeq: h.last, Limit: pollRows}
	for row, err := range h.markers.rows(ctx, h.src.Records(ctx, q)) {
		if err != nil {
			return n, err
		}
		h.take(row)
		n++
	}
	return n, nil
}

func (h *hub) take(row store.Row) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rows = append(h.rows, row)
	h.bytes += len(row.Body)
	h.last = row.Seq
	drop := 0
	for len(h.rows)-drop > 1 && (len(h.rows)-drop > ringRows || h.bytes > ringBytes) {
		h.bytes -= len(h.rows[drop].Body)
		h.floor = h.rows[drop].Seq
		h.rows[drop] = store.Row{}
		drop++
	}
	h.rows = h.rows[drop:]
}

// settle publishes the results of a poll and reports whether to continue.
func (h *hub) settle(run store.Run, n int, err error) (over bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	news := n > 0 || err != nil || run.Events != h.run.Events || run.Status != h.run.Status
	h.run, h.err = run, err
	h.over = err != nil || run.End != nil && n == 0 && h.last >= run.LastSeq
	if news || h.over {
		close(h.changed)
		h.changed = make(chan struct{})
	}
	return h.over
}

// glimpse is the state of a hub as a reader sees it.
type glimpse struct {
	floor   uint64
	rows    []store.Row
	run     store.Run
	behind  bool // the rows after the reader's position are not kept any more
	over    bool
	err     error
	changed <-chan struct{} // closed at the next change
}

// look returns the rows after seq after, at most those of one event.
func (h *hub) look(after uint64) glimpse {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := glimpse{run: h.run, over: h.over, err: h.err, changed: h.changed, floor: h.floor, behind: after < h.floor}
	if v.behind {
		return v
	}
	bytes := 0
	for _, row := range h.rows {
		if row.Seq <= after {
			continue
		}
		if len(v.rows) == eventRows || bytes > eventBytes {
			break
		}
		v.rows = append(v.rows, row)
		bytes += len(row.Body)
	}
	return v
}

// catchUp reads from the store what is not kept any more.
func (h *hub) catchUp(ctx context.Context, after uint64) iter.Seq2[store.Row, error] {
	return h.markers.rows(ctx, h.src.Records(ctx, store.Query{Tenant: h.key.tenant, Run: h.key.run, AfterSeq: after, Limit: eventRows}))
}
