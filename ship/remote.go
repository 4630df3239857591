package ship

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/custody-project/custody/store"
)

// Remote carries segments to an external NATS cluster, from which an Ingester reads them. It is safe for concurrent use.
//
//	             +-- full, no leader, no server, no answer: same id again --+
//	             v                                                         |
//	Publish --> room (64 MiB) --> stream on disk --ack--> sent --> stored: forgotten
//	             |                                          |
//	             +--> not permitted, too large: error       +--> refused: Drain reports it
type Remote struct {
	*link
	turns [32]chan struct{} // one publish at a time for each run: segments keep their order

	room                    // its lock guards the fields below
	sent    map[string]sent //  segments that the store may not have yet, by message id
	refused refusals        // reported by Drain
	failing error           // of the last question or publish, nil if it succeeded
	counts  Stats           // without the fields that Stats computes
}

// sent is a segment in the stream.
type sent struct {
	held        Held
	tenant, run string
	size        int
	at          time.Time
	repair      bool // the store already has its manifest, so an answer about manifests does not show whether it is repaired
	duplicate   bool // the stream had it before; it may long be stored
}

// publishTimeout bounds a first attempt, plus a second for each MiB. Later attempts
// may take longer, up to maxPublishTimeout.
const (
	publishTimeout    = 2 * time.Second
	maxPublishTimeout = 5 * time.Minute
)

// Dial connects to the servers in c and checks that the stream there keeps its messages. It waits for unreachable
// servers until ctx ends. Other errors are an *Error, whose Hint is the remedy. After that, Remote
// reconnects whenever a connection is lost.
func Dial(ctx context.Context, c Config) (*Remote, error) {
	l, err := connect(ctx, c)
	if err != nil {
		return nil, err
	}
	r := &Remote{link: l, room: room{limit: maxHeld}, sent: map[string]sent{}}
	for i := range r.turns {
		r.turns[i] = make(chan struct{}, 1)
	}
	// A host need not be permitted to inspect the stream: ingesters check it too.
	if err := l.prepare(ctx); err != nil && (!errors.Is(err, ErrDenied) || errors.Is(err, ErrStream)) {
		l.close()
		return nil, fmt.Errorf("use NATS at %s: %w", c.servers(), err)
	}
	l.checkSync(ctx)
	if err := r.listen(); err != nil {
		l.close()
		return nil, fmt.Errorf("use NATS at %s: %w", c.servers(), err)
	}
	return r, nil
}

// Close closes the connection. Acknowledged segments are on the servers' disks.
func (r *Remote) Close() {
	r.room.close()
	r.link.close()
}

// Publish publishes a segment. It returns when the stream has it on disk, and retries until then:
// while servers are unavailable, have no leader or the stream is full. Publishing a segment
// again is harmless. An error is of ctx, ErrClosed, or permanent: an *Error or store.ErrMalformed.
// A segment without tenant and host gets those of the Config.
func (r *Remote) Publish(ctx context.Context, seg store.Segment) error {
	return r.publish(ctx, seg, false)
}

// Republish publishes a segment that is incomplete or altered in the store: the stream treats it as a new message, and
// the ingester makes the store repair its rows.
func (r *Remote) Republish(ctx context.Context, seg store.Segment) error {
	return r.publish(ctx, seg, true)
}

func (r *Remote) publish(ctx context.Context, seg store.Segment, repair bool) error {
	if seg.Tenant == "" && seg.Host == "" {
		seg.Tenant, seg.Host = r.config.Tenant, r.config.Host
	}
	subject, err := subjectOf(seg.Tenant, seg.Host, seg.Run)
	if err == nil {
		msg := &nats.Msg{Subject: subject, Header: nats.Header{jetstream.MsgIDHeader: {messageID(seg)}}}
		if repair {
			msg.Header = repairHeader(seg)
		}
		err = r.send(ctx, seg, msg)
	}
	if err != nil {
		return fmt.Errorf("publish segment %d of run %s, seq %d to %d: %w", seg.Index, seg.Run, seg.First, seg.Last, err)
	}
	return nil
}

// send waits for the run's turn and for space, and then for the stream.
func (r *Remote) send(ctx context.Context, seg store.Segment, msg *nats.Msg) error {
	turn := r.turns[turnOf(seg.Run)]
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-turn }()
	size := sizeOf(seg)
	if err := r.enter(ctx, size); err != nil {
		return err
	}
	defer r.leave(size)
	message, err := Encode(seg)
	if err != nil {
		return err
	}
	msg.Data = message
	id := msg.Header.Get(jetstream.MsgIDHeader)
	s := sent{held: heldAs(seg), tenant: seg.Tenant, run: seg.Run, size: len(message), at: time.Now(), repair: isRepair(msg.Header)}
	fresh := r.track(id, s) // before the store can report that it has it
	duplicate, err := r.insist(ctx, msg)
	if err != nil && fresh {
		r.forget(id)
	} else if err == nil {
		r.published(id, s, duplicate)
	}
	return err
}

func turnOf(run string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(run))
	return h.Sum32() % uint32(len(Remote{}.turns))
}

func heldAs(seg store.Segment) Held {
	return Held{Index: seg.Index, First: seg.First, Last: seg.Last, Manifest: digest(seg.Manifest), Root: seg.Root, Count: uint64(len(seg.Frames))}
}

// insist publishes until the stream has it, ctx ends or an error is permanent.
func (r *Remote) insist(ctx context.Context, msg *nats.Msg) (duplicate bool, err error) {
	timeout := publishTimeout + time.Duration(len(msg.Data)>>20)*time.Second
	warned := false
	var cause error // of the attempts before the end of ctx
	for delay := firstRetry; ; delay = min(2*delay, lastRetry) {
		duplicate, err := r.attempt(ctx, msg, timeout)
		if err != nil && ctx.Err() != nil {
			return false, errors.Join(ctx.Err(), cause)
		}
		cause = err
		r.setFailing(err)
		switch {
		case err == nil && warned:
			r.config.warn("the NATS servers accept segments again")
			fallthrough
		case err == nil || final(err):
			return duplicate, err
		case r.conn.IsClosed():
			return false, ErrClosed
		case !warned && delay > time.Second:
			warned = true
			r.config.warn("segments wait for the NATS servers: %v", err)
		}
		r.probe(err)
		r.rest(ctx, jitter(delay))
		timeout = min(2*timeout, maxPublishTimeout)
	}
}

// attempt publishes once, and gives up when the connection is replaced: the answer is lost then.
func (r *Remote) attempt(ctx context.Context, msg *nats.Msg, timeout time.Duration) (duplicate bool, err error) {
	r.inflight.Add(int64(len(msg.Data)))
	defer r.inflight.Add(-int64(len(msg.Data)))
	err = r.try(ctx, msg.Subject, timeout, func(ctx context.Context) error {
		ack, err := r.js.PublishMsg(ctx, msg, jetstream.WithExpectStream(streamName), jetstream.WithRetryAttempts(0))
		duplicate = err == nil && ack.Duplicate
		return err
	})
	return duplicate, explainPublish(err)
}

// explainPublish makes an *Error of a permanent error.
func explainPublish(err error) error {
	var api *jetstream.APIError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrMaxPayload):
		return hinted(err, "set max_payload: 16MB in the configuration of each server")
	case errors.Is(err, jetstream.ErrStreamMessageExceedsMaximum):
		return hinted(err, "raise the max-msg-size of the stream %s to %d", streamName, MaxMessage)
	case errors.Is(err, nats.ErrConnectionClosed):
		return ErrClosed
	case errors.As(err, &api) && api.ErrorCode == codeOtherStream:
		return hinted(err, "another stream takes %s: take that subject from it", segmentsFrom)
	case errors.As(err, &api) && api.ErrorCode == codeStoreFailed:
		return fmt.Errorf("the stream is full: %w", err)
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return fmt.Errorf("there is no stream %s, or it has no leader: %w", streamName, err)
	}
	return err
}

func final(err error) bool {
	var e *Error
	return errors.As(err, &e) || errors.Is(err, ErrClosed)
}

func (r *Remote) setFailing(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failing = err
}

// track counts a segment as pending and reports whether it was not pending before.
func (r *Remote) track(id string, s sent) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, there := r.sent[id]; there {
		return false
	}
	r.sent[id] = s
	return true
}

func (r *Remote) forget(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sent, id)
	r.signal()
}

func (r *Remote) published(id string, s sent, duplicate bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if there, ok := r.sent[id]; ok && duplicate {
		there.duplicate = true
		r.sent[id] = there
	}
	r.counts.Published++
	r.counts.PublishedBytes += uint64(s.size)
	r.counts.Publish.add(time.Since(s.at))
	r.signal()
}
