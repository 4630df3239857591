package ship

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/custody-project/custody/store"
)

// patience is how many times a store may fail to ingest a batch before its segments are tried
// separately: the failure may be due to one of them.
const patience = 3

// commit refuses invalid segments, and passes the rest to the store; repairs separately.
func (g *Ingester) commit(ctx context.Context, batch []*item) {
	var plain, repairs []*item
	for _, it := range g.sieve(ctx, batch) {
		if it.repair {
			repairs = append(repairs, it)
		} else {
			plain = append(plain, it)
		}
	}
	g.insist(ctx, plain)
	for _, it := range repairs {
		g.insist(ctx, []*item{it})
	}
}

// insist passes a batch to the store until it has all of it, ctx ends, or the rest is back
// in the stream. It acks after the commit.
func (g *Ingester) insist(ctx context.Context, batch []*item) {
	delay := firstRetry
	for failures := 0; len(batch) > 0 && ctx.Err() == nil; {
		err := g.ingest(ctx, batch)
		switch {
		case err == nil:
			g.stored(batch...)
			return
		case isFinal(err) && len(batch) == 1:
			g.refuse(ctx, batch[0], err)
			return
		case isFinal(err):
			batch = g.single(ctx, batch)
			failures = 0
			continue
		}
		if failures++; failures%patience == 0 {
			batch = g.single(ctx, batch)
		}
		pause(ctx, jitter(delay))
		delay = min(2*delay, lastRetry)
	}
}

// sieve refuses invalid segments and returns the rest.
func (g *Ingester) sieve(ctx context.Context, batch []*item) []*item {
	rest := make([]*item, 0, len(batch))
	for _, it := range batch {
		if it.again > 0 {
			g.count(func(s *Stats) { s.Redelivered++ })
		}
		if it.invalid != nil {
			g.refuse(ctx, it, it.invalid)
		} else {
			rest = append(rest, it)
		}
	}
	return rest
}

// single passes segments to the store separately, in no order, and returns those that are not finished. If the
// store accepts some, those that fail return to the stream for a while, so that they do not block the others. If it
// accepts none, it is unavailable.
func (g *Ingester) single(ctx context.Context, batch []*item) []*item {
	var failed []*item
	taken := false
	order := rand.Perm(len(batch))
	for n, i := range order {
		it := batch[i]
		err := g.ingest(ctx, []*item{it})
		switch {
		case err == nil:
			g.stored(it)
			taken = true
		case isFinal(err):
			g.refuse(ctx, it, err)
			taken = true
		default:
			failed = append(failed, it)
		}
		if ctx.Err() != nil || !taken && len(failed) == patience {
			for _, i := range order[n+1:] {
				failed = append(failed, batch[i])
			}
			return failed
		}
	}
	if !taken && len(batch) > 1 {
		return failed
	}
	for _, it := range failed {
		g.later(it)
	}
	return nil
}

// later returns an item to the stream, with an increasing delay.
func (g *Ingester) later(it *item) {
	_ = it.msg.NakWithDelay(min(time.Second<<min(it.again, 10), time.Minute))
	g.intake.done(it)
}

// stored acks what is committed and notifies the hosts. A lost ack causes a redelivery, which the store
// ignores.
func (g *Ingester) stored(items ...*item) {
	told := map[string]*notice{}
	for _, it := range items {
		_ = it.msg.Ack()
		if n := g.noticeFor(told, it); n != nil {
			n.Stored = append(n.Stored, it.id)
		}
	}
	g.intake.done(items...)
	g.tell(told)
}

// noticeFor returns the notice for the item's host, nil if no host waits for one.
func (g *Ingester) noticeFor(told map[string]*notice, it *item) *notice {
	whose, err := names(segmentRoot, it.msg.Subject(), 3)
	if err != nil || it.id == "" {
		return nil
	}
	subject, err := subject(storedRoot, whose[:2]...)
	if err != nil {
		return nil
	}
	if told[subject] == nil {
		told[subject] = &notice{}
	}
	return told[subject]
}

func (g *Ingester) tell(told map[string]*notice) {
	for subject, n := range told {
		if body, err := json.Marshal(n); err == nil {
			_ = g.conn.Publish(subject, body) // an optimization: without it the host asks
		}
	}
}

// refuse moves a segment that no store can accept to the stream of refused ones, reports it, and acks it.
func (g *Ingester) refuse(ctx context.Context, it *item, why error) {
	if err := g.keepRefused(ctx, it, why); err != nil {
		g.note(fmt.Errorf("store a refused segment: %w", err))
		g.later(it)
		return
	}
	_ = it.msg.TermWithReason("refused")
	g.intake.done(it)
	g.count(func(s *Stats) { s.Refused++ })
	if g.options.Refused != nil {
		g.options.Refused(Refused{Subject: it.msg.Subject(), ID: it.id, Size: it.size, Err: why})
	}
	told := map[string]*notice{}
	if n := g.noticeFor(told, it); n != nil {
		n.Refused = []refusal{{ID: it.id, Why: why.Error(), Conflict: errors.Is(why, store.ErrConflict)}}
	}
	g.tell(told)
}

// Headers of a refused segment.
const (
	headerSubject = "Custody-Subject"
	headerReason  = "Custody-Reason"
	headerID      = "Custody-Msg-Id"
)

func (g *Ingester) keepRefused(ctx context.Context, it *item, why error) error {
	tenant, _, _ := strings.Cut(strings.TrimPrefix(it.msg.Subject(), segmentRoot), ".")
	msg := &nats.Msg{Subject: refusedRoot + tenant, Data: it.msg.Data(), Header: nats.Header{
		headerSubject: {it.msg.Subject()}, headerReason: {oneLine(why)}, headerID: {it.id},
	}}
	options := []jetstream.PublishOpt{jetstream.WithExpectStream(refusedStream)}
	if meta, err := it.msg.Metadata(); err == nil { // deduplicated by the server, although its answer may get lost
		options = append(options, jetstream.WithMsgID(fmt.Sprint("refused-", meta.Sequence.Stream)))
	}
	err := g.api(ctx, msg.Subject, func(ctx context.Context) error {
		_, err := g.js.PublishMsg(ctx, msg, options...)
		return err
	})
	if errors.Is(err, jetstream.ErrNoStreamResponse) { // it was removed: the next attempt creates it again
		_, again := g.stream(ctx, refusedConfig(g.replicas()))
		return errors.Join(err, again)
	}
	return err
}

// oneLine converts an error to the value of a header.
func oneLine(err error) string {
	s := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, err.Error())
	return s[:min(len(s), 1024)]
}

func (g *Ingester) count(f func(*Stats)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f(&g.counts)
}
