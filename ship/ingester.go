package ship

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/store"
)

// Batch bounds the segments that an ingester passes to the store in one call.
type Batch struct {
	Rows  int           // 0 means 50,000
	Bytes int           // of messages; 0 means 32 MiB
	Wait  time.Duration // maximum wait of the first segment for others; 0 means 1 s
	Idle  time.Duration // maximum wait for another segment; 0 means 50 ms
}

func (b Batch) withDefaults() Batch {
	if b.Rows <= 0 {
		b.Rows = 50_000
	}
	if b.Bytes <= 0 {
		b.Bytes = 32 << 20
	}
	if b.Wait <= 0 {
		b.Wait = time.Second
	}
	if b.Idle <= 0 {
		b.Idle = 50 * time.Millisecond
	}
	return b
}

// IngestOptions are the optional settings of an ingester. Its functions are called from one goroutine.
type IngestOptions struct {
	Batch Batch
	// AckWait is the time after an ingester's last sign of life at which the stream redelivers its messages. All ingesters use
	// the same value; the first one sets it. 0 means 30 s.
	AckWait time.Duration
	// Keys verifies the signatures of manifests: the key must have the host's name. Nil: the ingester does not verify
	// signatures; the readers of the store can.
	Keys note.Verifiers
	// Refused is called with each segment that no store can accept. The stream CUSTODY_REFUSED stores it.
	Refused func(Refused)
	// Observe is called with each commit, including failed ones.
	Observe func(Commit)
}

// Refused is a segment that no store can accept.
type Refused struct {
	Subject string // which names tenant, host and run
	ID      string // of the message
	Size    int    // bytes
	Err     error  // wraps store.ErrConflict or store.ErrMalformed
}

// Commit is one call of Store.Ingest or Store.Repair.
type Commit struct {
	Segments, Rows, Bytes int
	Oldest                time.Duration // age of the oldest of them since it was received from the stream
	Took                  time.Duration
	Err                   error
}

// Ingester passes segments from the stream to a store. Several, in any
// number of processes and machines, share the work.
//
//	stream --pull--> intake --batch--> Store.Ingest --ok--> ack, notice to the host
//	   ^               | bounded          |  |
//	   |   "working"   |                  |  +--conflict, malformed: one by one --> CUSTODY_REFUSED, term
//	   +---------------+                  +--other error: retried with increasing delays, not acked
type Ingester struct {
	where   Config
	store   Store
	options IngestOptions
	*link   // while Run runs

	mu      sync.Mutex // guards the fields below
	counts  Stats
	failing error
	intake  *intake
}

// NewIngester returns an ingester into s; Run starts it.
func NewIngester(c Config, s Store, o IngestOptions) *Ingester {
	o.Batch = o.Batch.withDefaults()
	if o.AckWait <= 0 {
		o.AckWait = ackWait
	}
	return &Ingester{where: c, store: s, options: o}
}

// Ingest creates an ingester and calls Run.
func Ingest(ctx context.Context, c Config, s Store, o IngestOptions) error {
	return NewIngester(c, s, o).Run(ctx)
}

// finishTime is how long an active commit may take at the end of Run.
const finishTime = 10 * time.Second

// Run works until ctx ends, which is not an error; then the active commit is completed and all
// other segments return to the stream. It waits for unavailable servers and stores. An *Error is a permanent
// failure of the servers or the configuration. It must be called at most once.
func (g *Ingester) Run(ctx context.Context) (err error) {
	if g.link, err = connect(ctx, g.where); err != nil {
		return quiet(ctx, err)
	}
	defer g.link.close()
	if err := g.prepare(ctx); err != nil {
		return quiet(ctx, fmt.Errorf("use NATS at %s: %w", g.where.servers(), err))
	}
	if err := g.prepareRefused(ctx); err != nil {
		return quiet(ctx, fmt.Errorf("use NATS at %s: %w", g.where.servers(), err))
	}
	var wait time.Duration
	err = g.persist(ctx, func() error {
		consumer, err := g.consumer(ctx)
		if err == nil {
			wait = consumer.CachedInfo().Config.AckWait // the current setting, made by any ingester
		}
		return err
	})
	if err != nil {
		return quiet(ctx, fmt.Errorf("use NATS at %s: %w", g.where.servers(), err))
	}
	g.checkSync(ctx)
	return g.work(ctx, wait)
}

func quiet(ctx context.Context, err error) error {
	if ctx.Err() != nil && !final(err) {
		return nil
	}
	return err
}

func (g *Ingester) work(ctx context.Context, wait time.Duration) error {
	in := newIntake(g.options.Batch)
	g.mu.Lock()
	g.intake = in
	g.mu.Unlock()
	stop, err := g.answer(ctx)
	if err != nil {
		return fmt.Errorf("answer questions: %w", err)
	}
	defer stop()
	keeping, kept := context.WithCancel(context.WithoutCancel(ctx))
	var helpers sync.WaitGroup
	helpers.Go(func() { in.keep(keeping, wait/4) })
	received := make(chan struct{})
	go func() { defer close(received); g.receive(ctx, in) }()
	for batch := in.next(ctx); len(batch) > 0; batch = in.next(ctx) {
		g.commit(ctx, batch)
	}
	<-received
	kept()
	helpers.Wait()
	in.giveBack()
	return g.conn.FlushTimeout(time.Second)
}

// ingest passes segments, or one that needs repair, to the store. It may complete a call after ctx ends.
func (g *Ingester) ingest(ctx context.Context, items []*item) error {
	finish, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		pause(finish, finishTime)
		cancel()
	})()
	c := Commit{Segments: len(items), Oldest: time.Since(items[0].at)}
	segs := make([]store.Segment, len(items))
	for i, it := range items {
		segs[i] = it.seg
		c.Rows += len(it.seg.Frames)
		c.Bytes += it.size
	}
	start := time.Now()
	if items[0].repair {
		c.Err = g.store.Repair(finish, segs[0])
	} else {
		c.Err = g.store.Ingest(finish, segs...)
	}
	c.Took = time.Since(start)
	g.observe(c)
	return c.Err
}

func (g *Ingester) observe(c Commit) {
	if g.options.Observe != nil {
		g.options.Observe(c)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case c.Err == nil:
		g.failing = nil
		g.counts.Commit.add(c.Took)
		g.counts.Stored += uint64(c.Segments)
		g.counts.StoredRows += uint64(c.Rows)
	case !isFinal(c.Err):
		g.failing = c.Err
		g.counts.StoreFailures++
	}
}

// isFinal reports whether the error is permanent.
func isFinal(err error) bool {
	return errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrMalformed)
}

func (g *Ingester) note(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failing = err
}

// Stats returns statistics of this ingester.
func (g *Ingester) Stats() Stats {
	g.mu.Lock()
	s, in, failing := g.counts, g.intake, g.failing
	g.mu.Unlock()
	if failing != nil {
		s.Failing = failing.Error()
	}
	if in == nil {
		return s
	}
	s.Reconnects = g.reconnects.Load()
	in.mu.Lock()
	defer in.mu.Unlock()
	for it := range in.mine {
		s.Segments++
		s.Bytes += int64(it.size)
		s.Oldest = max(s.Oldest, time.Since(it.at))
	}
	return s
}
