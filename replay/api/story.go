package api

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/store"
)

const (
	defaultStoryBytes = 512 << 20
	// storyAge is how long a run is served from memory before it is read again, so that records that were erased
	// in the store disappear.
	storyAge = 5 * time.Minute
	// growEvery is how often a live run's new records are read.
	growEvery = 200 * time.Millisecond
	// readingsAtOnce bounds how many runs are read into memory at the same time.
	readingsAtOnce = 4
	// readFor bounds the time of one read.
	readFor = time.Minute
	// rowCost is the approximate memory of a record beside its bytes.
	rowCost = 700
)

// story is a run in memory.
//
//	empty -- first question --> read -- the run has grown --> more is read
//	   ^                         `-- older than storyAge --> empty
//	   `-- too big: all further requests fail
type story struct {
	turn chan struct{} // holds a token unless a reader has it; guards the fields below except model
	last uint64
	size int64
	full time.Time // when it was read from the beginning
	grew time.Time // when new records were last read
	ends bool      // its run had ended then
	err  error     // errTooBig

	model atomic.Pointer[model]
}

// model is the content of a story. Only the Story changes.
type model struct {
	*replay.Story
	facts    audit.Lifecycle
	kinds    map[audit.Kind]uint64
	policies []replay.Policy
	doubt    *Doubt                    // nil: all records are what was signed
	full     bool                      // no more output is recorded
	steps    func() []replay.StepState // all of them; found out once
}

// stories caches the most recently used runs within a limit of memory.
type stories struct {
	hubs    *hubs
	markers *markers
	now     func() time.Time
	ctx     context.Context // of the Server: a read outlives the request that began it
	most    int64
	reading chan struct{} // a token for each that is being read

	mu       sync.Mutex // guards the fields below
	held     *simplelru.LRU[runKey, *story]
	heldSize map[runKey]int64
	total    int64
}

func newStories(ctx context.Context, most int64, hubs *hubs, markers *markers, now func() time.Time) *stories {
	if most == 0 {
		most = defaultStoryBytes
	}
	held, err := simplelru.NewLRU[runKey, *story](1<<16, nil)
	if err != nil {
		panic(err) // the size is valid
	}
	return &stories{hubs: hubs, markers: markers, now: now, ctx: ctx, most: most, reading: make(chan struct{}, readingsAtOnce), held: held, heldSize: map[runKey]int64{}}
}

// errTooBig is the error for a run that exceeds the limit of memory.
func errTooBig() *access.Problem {
	return access.NewProblem(http.StatusInsufficientStorage, "too-big", "the run has more records than this server may hold in memory",
		"its records, search, exports and bundles work; custody timeline answers the rest, or raise the bound in host.yaml")
}

func (c *stories) of(key runKey) *story {
	c.mu.Lock()
	defer c.mu.Unlock()
	if st, ok := c.held.Get(key); ok {
		return st
	}
	st := &story{turn: make(chan struct{}, 1)}
	st.turn <- struct{}{}
	c.held.Add(key, st)
	return st
}

// weigh records the size of a story, and drops the least recently used ones if the limit of memory is exceeded.
func (c *stories) weigh(key runKey, st *story) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now, ok := c.held.Peek(key); !ok || now != st {
		return // it was dropped meanwhile
	}
	c.total += st.size - c.heldSize[key]
	c.heldSize[key] = st.size
	for c.total > c.most && c.held.Len() > 1 {
		old, _, _ := c.held.RemoveOldest()
		c.total -= c.heldSize[old]
		delete(c.heldSize, old)
	}
}

// model returns the run's model with all that the store has of it now.
func (c *stories) model(ctx context.Context, run store.Run) (*model, error) {
	key := keyOf(run)
	st := c.of(key)
	select {
	case <-st.turn:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { st.turn <- struct{}{} }()
	if st.err != nil {
		return nil, st.err
	}
	if time.Since(st.full) > storyAge {
		st.model.Store(nil)
		st.last, st.size, st.ends = 0, 0, false
	}
	m := st.model.Load()
	if m != nil && !st.stale(run) {
		return m, nil
	}
	// If the client disconnects, the next request finds what was read.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readFor)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	m, err := c.grow(ctx, st, m, run)
	c.weigh(key, st)
	return m, err
}

// stale reports whether the run may have records that the story lacks.
func (st *story) stale(run store.Run) bool {
	if run.End != nil {
		return !st.ends || st.last < run.LastSeq
	}
	return st.last < run.LastSeq || time.Since(st.grew) > growEvery
}

// grow reads what the story lacks. The caller holds the token of st.
func (c *stories) grow(ctx context.Context, st *story, m *model, run store.Run) (*model, error) {
	select {
	case c.reading <- struct{}{}:
		defer func() { <-c.reading }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	now := time.Now()
	src := c.hubs.reader(run)
	next := &model{kinds: map[audit.Kind]uint64{}, policies: []replay.Policy{}}
	if m != nil {
		next = &model{Story: m.Story, facts: m.facts, kinds: maps.Clone(m.kinds), policies: slices.Clone(m.policies), doubt: m.doubt, full: m.full}
	}
	rows := c.counted(st, next, c.markers.rows(ctx, src.Records(ctx, store.Query{Tenant: run.Tenant, Run: run.ID, AfterSeq: st.last})))
	var err error
	if m == nil {
		st.full = now
		next.Story, err = replay.Read(run, rows)
	} else {
		err = next.Story.Add(run, rows)
	}
	var tooBig *access.Problem
	switch {
	case errors.As(err, &tooBig):
		st.err, st.size = err, 0
		st.model.Store(nil)
		return nil, err
	case err != nil:
		st.full = time.Time{} // what was read is dropped: the next request begins again
		return nil, err
	}
	st.size, st.grew, st.ends = max(next.Story.Size(), st.size), now, run.End != nil
	end := endOf(run, c.now())
	next.steps = sync.OnceValue(func() []replay.StepState { return next.Steps().At(end) })
	st.model.Store(next)
	return next, nil
}

// counted passes rows on, and collects from them what the Story does not have.
func (c *stories) counted(st *story, m *model, rows iter.Seq2[store.Row, error]) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		for row, err := range rows {
			if err == nil {
				st.size += int64(len(row.Body)) + rowCost
				if st.size > c.most {
					err = errTooBig()
				} else {
					st.last = row.Seq
					m.learn(row)
				}
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

func (m *model) learn(row store.Row) {
	m.doubt = m.doubt.add(row)
	if row.Erased != nil {
		return
	}
	m.kinds[row.Kind]++
	if row.Observer != audit.Host || !slices.Contains([]audit.Kind{audit.KindRun, audit.KindPolicy, audit.KindGap}, row.Kind) {
		return
	}
	var r audit.Record
	if json.Unmarshal(row.Body, &r) != nil {
		return
	}
	switch {
	case r.Lifecycle != nil && r.Lifecycle.Phase == audit.PhaseStart:
		m.facts = *r.Lifecycle
	case r.Gap != nil && r.Gap.Stage == audit.StageOutput:
		m.full = true
	case r.Policy != nil:
		m.policies = append(m.policies, replay.Policy{Generation: r.Policy.Generation, Digest: r.Policy.Digest, Seq: row.Seq})
	}
}
