package ship

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/custody-project/custody/store"
)

// A message of a live tail:
//
//	magic    4 bytes   "CTL1"
//	flags    1 byte    1: the run has ended, nothing follows
//	last     uvarint   seq of the newest record that was sent up to and with this message
//	count    uvarint
//	count frames, as in a segment; the first step counts from 0
//
// No bytes follow the last frame.
const (
	tailMagic = "CTL1"
	tailEnd   = 1
)

// Limits of a live tail.
const (
	maxTailQueue   = 2 << 20  // maximum of queued bytes; beyond it records are dropped
	maxTailMessage = 64 << 10 // size at which a message gets no further record
	// tailBeat is how often an idle tail sends its position, so that a watcher notices that it has missed the newest records.
	tailBeat = time.Second
)

// Tail sends a run's new records to its watchers. It never blocks: it drops records that the connection cannot
// carry, and watchers notice. It is safe for concurrent use.
//
//	Publish --> queue (bounded) --goroutine--> subject --> watchers
type Tail struct {
	conn    *nats.Conn
	subject string
	ended   chan struct{} // closed when the goroutine has ended
	wake    chan struct{} // holds one

	mu      sync.Mutex // guards the fields below
	queue   []store.Frame
	size    int
	dropped uint64
	closed  bool
	count   func(dropped uint64)
}

// Tail starts the live tail of a run of a tenant. The caller must call Close.
func (r *Remote) Tail(tenant, run string) *Tail {
	t := &Tail{conn: r.conn, ended: make(chan struct{}), wake: make(chan struct{}, 1), count: r.countDropped}
	subject, err := subject(tailRoot, tenant, run)
	if err != nil || run == "" {
		t.closed = true // publishing the run's segments reports the invalid name
		close(t.ended)
		return t
	}
	t.subject = subject
	go t.run()
	return t
}

func (r *Remote) countDropped(n uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Dropped += n
}

// Publish sends frames, which are in order and follow the previous ones, as far as possible, and returns immediately. It
// keeps a reference to the frames' bytes for a while: they must not change.
func (t *Tail) Publish(_ context.Context, frames []store.Frame) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	for i, f := range frames {
		size := sizeOfFrame(f)
		if t.size > 0 && t.size+size > maxTailQueue {
			t.dropped += uint64(len(frames) - i)
			t.count(uint64(len(frames) - i))
			break
		}
		t.queue = append(t.queue, f)
		t.size += size
	}
	t.kick()
}

// Close sends what is queued, announces the run's end to the watchers, and returns within seconds.
func (t *Tail) Close() {
	t.mu.Lock()
	t.closed = true
	t.kick()
	t.mu.Unlock()
	<-t.ended
}

func (t *Tail) kick() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *Tail) run() {
	defer close(t.ended)
	beat := time.NewTicker(tailBeat)
	defer beat.Stop()
	last := uint64(0)
	for {
		select {
		case <-t.wake:
		case <-beat.C:
		}
		t.mu.Lock()
		frames, closed := t.queue, t.closed
		t.queue, t.size = nil, 0
		t.mu.Unlock()
		for first := true; first || len(frames) > 0; first = false {
			n := fit(frames)
			if n > 0 {
				last = frames[n-1].Seq
			}
			end := closed && n == len(frames)
			// Without a connection it is lost; watchers notice with the next one.
			_ = t.conn.Publish(t.subject, encodeTail(last, frames[:n], end))
			frames = frames[n:]
		}
		if closed {
			_ = t.conn.FlushTimeout(time.Second)
			return
		}
	}
}

// fit returns how many frames fit in one message.
func fit(frames []store.Frame) int {
	size := 0
	for i, f := range frames {
		if size += sizeOfFrame(f); i > 0 && size > maxTailMessage {
			return i
		}
	}
	return len(frames)
}

func encodeTail(last uint64, frames []store.Frame, end bool) []byte {
	flags := byte(0)
	if end {
		flags = tailEnd
	}
	b := append([]byte(tailMagic), flags)
	b = binary.AppendUvarint(b, last)
	b = binary.AppendUvarint(b, uint64(len(frames)))
	return appendFrames(b, 0, frames)
}

func decodeTail(message []byte) (last uint64, frames []store.Frame, end bool, err error) {
	d := decoder{rest: message}
	if string(d.bytes(len(tailMagic))) != tailMagic {
		d.fail("it does not begin with " + tailMagic)
	}
	flags := d.bytes(1)
	if len(flags) == 1 && flags[0] > tailEnd {
		d.fail("it has an unknown flag")
	}
	last = d.uvarint()
	frames = d.frames(0)
	if len(d.rest) > 0 {
		d.fail("bytes follow its end")
	}
	for i, f := range frames {
		if i > 0 && f.Seq == frames[i-1].Seq || f.Seq > last {
			d.fail("its records are not in order")
		}
	}
	if d.err != nil {
		return 0, nil, false, d.err
	}
	return last, frames, flags[0] == tailEnd, nil
}

// Missed is the error for records that the live tail dropped: all with a seq greater than After and less than Before.
// The store has them, or will have them.
type Missed struct{ After, Before uint64 }

// Error implements error.
func (m *Missed) Error() string {
	return fmt.Sprintf("the live tail dropped records %d to %d", m.After+1, m.Before-1)
}

// Watch yields a run's new records, in order, each once, until the run ends, ctx ends or the caller stops. For
// earlier records and for lost ones it yields a *Missed error and continues; any other error is the last.
// Records are unverified: the host sends them before they are sealed.
func Watch(ctx context.Context, c Config, tenant, run string) iter.Seq2[store.Frame, error] {
	return func(yield func(store.Frame, error) bool) {
		if err := watch(ctx, c, tenant, run, yield); err != nil && ctx.Err() == nil {
			yield(store.Frame{}, fmt.Errorf("watch run %s: %w", run, err))
		}
	}
}

func watch(ctx context.Context, c Config, tenant, run string, yield func(store.Frame, error) bool) error {
	subject, err := subject(tailRoot, tenant, run)
	if err != nil {
		return err
	}
	l, err := connect(ctx, c)
	if err != nil {
		return err
	}
	defer l.close()
	sub, err := l.conn.SubscribeSync(subject)
	if err != nil {
		return err
	}
	if err := sub.SetPendingLimits(-1, 4*maxTailQueue); err != nil { // beyond it messages are dropped
		return err
	}
	w := watcher{yield: yield}
	for {
		m, err := l.nextTail(ctx, sub)
		if err != nil {
			return err
		}
		if m == nil {
			continue
		}
		last, frames, end, err := decodeTail(m.Data)
		if err != nil {
			return err
		}
		if !w.take(last, frames) || end {
			return nil
		}
	}
}

// nextTail returns the next message, or nil if there is none for now.
func (l *link) nextTail(ctx context.Context, sub *nats.Subscription) (*nats.Msg, error) {
	guarded, release := l.guarded(ctx, sub.Subject)
	defer release()
	m, err := sub.NextMsgWithContext(guarded)
	switch {
	case err == nil:
		return m, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case final(context.Cause(guarded)):
		return nil, context.Cause(guarded)
	case !sub.IsValid():
		return nil, ErrClosed
	}
	pause(ctx, firstRetry) // the connection was replaced, or the watcher was too slow
	return nil, nil
}

// watcher detects missing records.
type watcher struct {
	last  uint64 // seq of the newest record that was yielded or reported missing
	yield func(store.Frame, error) bool
}

func (w *watcher) take(last uint64, frames []store.Frame) bool {
	for _, f := range frames {
		if f.Seq <= w.last {
			continue
		}
		if !w.missing(f.Seq) || !w.yield(f, nil) {
			return false
		}
		w.last = f.Seq
	}
	return w.missing(last + 1)
}

// missing reports the records before the one with seq before, if they were not yielded.
func (w *watcher) missing(before uint64) bool {
	if before <= w.last+1 {
		return true
	}
	m := &Missed{After: w.last, Before: before}
	w.last = before - 1
	return w.yield(store.Frame{}, m)
}
