package ship

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/custody-project/custody/store"
)

// Settings of the consumer that all ingesters share.
const (
	// ackWait is the default of IngestOptions.AckWait.
	ackWait = 30 * time.Second
	// maxAckPending bounds the segments at all ingesters.
	maxAckPending = 8192
	// pullMessages is the number of segments in one pull request.
	pullMessages = 512
	// A pull request ends after pullExpiry; the server sends a heartbeat each
	// pullHeartbeat.
	pullExpiry    = 30 * time.Second
	pullHeartbeat = 10 * time.Second
)

func consumerConfig(wait time.Duration) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:       consumerName,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       wait,
		MaxDeliver:    -1, // redelivered until the store has it
		MaxAckPending: maxAckPending,
	}
}

// item is a segment from the stream.
type item struct {
	msg     jetstream.Msg
	id      string
	seg     store.Segment
	invalid error // why it is not a valid segment
	repair  bool  // for Store.Repair
	size    int
	again   uint64 // how often it was delivered before
	at      time.Time
}

// intake queues items from the stream until they are committed, and keeps the server
// from redelivering them to other ingesters.
type intake struct {
	batch Batch

	mu      sync.Mutex // guards the fields below
	changed chan struct{}
	queue   []*item
	bytes   int                // of queue
	mine    map[*item]struct{} // in the queue or with the committer
}

func newIntake(b Batch) *intake { return &intake{batch: b, mine: map[*item]struct{}{}} }

// add adds an item and reports whether there is space for more.
func (in *intake) add(it *item) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.mine[it] = struct{}{}
	in.queue = append(in.queue, it)
	in.bytes += it.size
	in.signal()
	return in.room()
}

// room reports whether to pull more. The caller holds mu.
func (in *intake) room() bool { return in.bytes < in.batch.Bytes && len(in.queue) < 2*pullMessages }

// done removes an item.
func (in *intake) done(items ...*item) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, it := range items {
		delete(in.mine, it)
	}
}

func (in *intake) signal() {
	if in.changed != nil {
		close(in.changed)
		in.changed = nil
	}
}

// wait returns when something changes, after d, or at the end of ctx. The caller holds mu, which wait releases meanwhile.
func (in *intake) wait(ctx context.Context, d time.Duration) {
	if in.changed == nil {
		in.changed = make(chan struct{})
	}
	changed := in.changed
	in.mu.Unlock()
	defer in.mu.Lock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
	}
}

const forever = time.Hour

// waitRoom waits until there is space for another request.
func (in *intake) waitRoom(ctx context.Context) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for !in.room() && ctx.Err() == nil {
		in.wait(ctx, forever)
	}
}

// next returns a batch when it is full, the first item has waited for Batch.Wait, or
// no item arrived for Batch.Idle. It is empty at the end of ctx.
func (in *intake) next(ctx context.Context) []*item {
	in.mu.Lock()
	defer in.mu.Unlock()
	for len(in.queue) == 0 && ctx.Err() == nil {
		in.wait(ctx, forever)
	}
	for ctx.Err() == nil {
		count, full := in.fill()
		oldest, newest := in.queue[0].at, in.queue[len(in.queue)-1].at
		left := min(in.batch.Wait-time.Since(oldest), in.batch.Idle-time.Since(newest))
		if full || left <= 0 {
			batch := in.queue[:count:count]
			in.queue = append([]*item(nil), in.queue[count:]...)
			for _, it := range batch {
				in.bytes -= it.size
			}
			in.signal()
			return batch
		}
		in.wait(ctx, left)
	}
	return nil
}

// fill returns how many items of the queue fit in one batch, and whether it is full.
func (in *intake) fill() (count int, full bool) {
	rows, bytes := 0, 0
	for i, it := range in.queue {
		rows += len(it.seg.Frames)
		bytes += it.size
		if i > 0 && (rows > in.batch.Rows || bytes > in.batch.Bytes) {
			return i, true
		}
	}
	return len(in.queue), rows >= in.batch.Rows || bytes >= in.batch.Bytes || !in.room()
}

// keep periodically extends the ack deadline of all items, until ctx ends.
func (in *intake) keep(ctx context.Context, every time.Duration) {
	for pause(ctx, every); ctx.Err() == nil; pause(ctx, every) {
		in.mu.Lock()
		mine := make([]*item, 0, len(in.mine))
		for it := range in.mine {
			mine = append(mine, it)
		}
		in.mu.Unlock()
		for _, it := range mine {
			_ = it.msg.InProgress() // at worst it is redelivered
		}
	}
}

// giveBack returns all items to the stream immediately.
func (in *intake) giveBack() {
	in.mu.Lock()
	defer in.mu.Unlock()
	for it := range in.mine {
		_ = it.msg.Nak()
	}
	in.mine, in.queue, in.bytes = map[*item]struct{}{}, nil, 0
}

// receive pulls segments from the stream into in until ctx ends.
func (g *Ingester) receive(ctx context.Context, in *intake) {
	for delay := firstRetry; ctx.Err() == nil; delay = min(2*delay, lastRetry) {
		in.waitRoom(ctx)
		err := g.pull(ctx, in)
		if err == nil {
			delay = firstRetry
			continue
		}
		g.note(err)
		g.probe(err)
		if errors.Is(err, jetstream.ErrStreamNotFound) { // the servers lost everything: hosts send it again
			g.where.warn("the NATS servers have lost the stream %s with its messages; it is created again", streamName)
			g.note(g.prepare(ctx))
		}
		g.rest(ctx, jitter(delay))
	}
}

// pull receives messages until there is no space for more, and then those already requested.
func (g *Ingester) pull(ctx context.Context, in *intake) error {
	consumer, err := g.consumer(ctx)
	if err != nil {
		return err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(pullMessages, max(in.batch.Bytes, 2*MaxMessage)),
		jetstream.PullExpiry(pullExpiry), jetstream.PullHeartbeat(pullHeartbeat), jetstream.WithMessagesErrOnMissingHeartbeat(true))
	if err != nil {
		return err
	}
	defer messages.Stop()
	turned, release := g.guarded(ctx, "") // a restarted server may have lost the consumer
	defer release()
	defer context.AfterFunc(turned, messages.Drain)()
	for {
		m, err := messages.Next()
		switch {
		case errors.Is(err, jetstream.ErrMsgIteratorClosed):
			return nil
		case err != nil:
			return err
		}
		if !in.add(g.read(m)) {
			messages.Drain()
		}
	}
}

// consumer returns the consumer that all ingesters share, created if it does not exist.
func (g *Ingester) consumer(ctx context.Context) (consumer jetstream.Consumer, err error) {
	err = g.api(ctx, "$JS.API.CONSUMER.INFO."+streamName+"."+consumerName, func(ctx context.Context) (err error) {
		consumer, err = g.js.Consumer(ctx, streamName, consumerName)
		return err
	})
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		err = g.api(ctx, "$JS.API.CONSUMER.CREATE."+streamName+"."+consumerName, func(ctx context.Context) (err error) {
			consumer, err = g.js.CreateConsumer(ctx, streamName, consumerConfig(g.options.AckWait))
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("consumer %s of stream %s: %w", consumerName, streamName, err)
	}
	return consumer, checkConsumer(consumer.CachedInfo().Config)
}

func checkConsumer(c jetstream.ConsumerConfig) error {
	if c.AckPolicy != jetstream.AckExplicitPolicy || c.MaxDeliver > 0 || c.FilterSubject != "" || len(c.FilterSubjects) > 0 {
		return hinted(fmt.Errorf("%w: its consumer %s drops or skips segments", ErrStream, consumerName), "remove the consumer: it is created again with the right settings")
	}
	return nil
}

// read makes an item of a message, with any error.
func (g *Ingester) read(m jetstream.Msg) *item {
	it := &item{msg: m, id: m.Headers().Get(jetstream.MsgIDHeader), size: len(m.Data()), at: time.Now(), repair: isRepair(m.Headers())}
	if meta, err := m.Metadata(); err == nil && meta.NumDelivered > 1 {
		it.again = meta.NumDelivered - 1
	}
	it.seg, it.invalid = g.inspect(m.Subject(), m.Data())
	return it
}
