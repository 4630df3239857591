package wal

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/custody-project/custody/redact"
)

// Log is the record of one run, open for writing. It is safe for concurrent
// use. A writer goroutine makes accepted events durable; Close waits for it.
type Log struct {
	opt  Options
	head []byte // of every record, up to the seq

	ctx    context.Context // canceled when Close gives up
	cancel context.CancelFunc
	wake   chan struct{} // cap 1: there is work
	hurry  chan struct{} // cap 1: a caller waits for the writer
	exited chan struct{} // closed when the writer and the notifier have ended

	told notifier

	mu       sync.Mutex // guards the fields below
	next     uint64     // seq of the next event
	durable  uint64     // every seq up to here is durable or declared lost
	pending  batch      // being filled by Append
	inflight batch      // being written
	salts    salts
	room     chan struct{} // closed and replaced when the buffer empties or its rules change
	stall    chan struct{} // closed while stalled in degrade mode
	stalled  error         // why, nil while writing works
	dropping span          // seqs dropped in this stall, not yet declared
	dropped  []span        // and those of earlier stalls, 16 bytes each
	rotate   []chan error  // callers of Rotate
	closed   bool
	closing  Closing
	failed   error // the writer has given up
}

// batch is a sequence of frames that becomes durable together.
type batch struct {
	frames []byte
	last   uint64 // seq of the last frame
	done   chan struct{}
}

// span is a range of seqs, empty when last is 0.
type span struct{ first, last uint64 }

func (s span) has(seq uint64) bool { return s.first <= seq && seq <= s.last }

// Create begins the record of a new run in dir, whose parent should exist. A
// full or failing disk causes a stall and not an error; any other problem
// with dir is an error.
func Create(dir string, o Options) (*Log, error) {
	l, err := newLog(o)
	if err != nil {
		return nil, err
	}
	w := newWriter(l, dir)
	if err := w.setUp(); err != nil && !passing(err) {
		return nil, fmt.Errorf("create record: %w", err)
	}
	l.start(w)
	return l, nil
}

func newLog(o Options) (*Log, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	l := &Log{
		opt: o, head: fmt.Appendf(nil, headFormat, o.Run), next: 1,
		wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1),
		exited: make(chan struct{}), room: make(chan struct{}), stall: make(chan struct{}),
	}
	l.pending.done = make(chan struct{})
	l.inflight.done = make(chan struct{})
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.told.init(o)
	return l, nil
}

// start starts the writer, which ends the notifier when it ends.
func (l *Log) start(w *writer) {
	if w.lock == nil {
		poke(l.wake) // a stall at the very beginning is reported immediately
		poke(l.hurry)
	}
	notified := make(chan struct{})
	go func() {
		defer close(notified)
		l.told.run()
	}()
	go func() {
		defer close(l.exited)
		w.write()
		l.told.stop()
		<-notified
	}()
}

// Append adds an event to the record and returns its seq. The event
// is durable only when Sync has returned for that seq. If the buffer is full,
// Append waits; in degrade mode, during a stall, it returns ErrDropped instead.
func (l *Log) Append(ctx context.Context, s redact.Sealed) (uint64, error) {
	body := s.Bytes()
	if len(body) < 3 || body[0] != '{' || body[len(body)-1] != '}' {
		return 0, ErrNotSealed
	}
	if len(body)+len(l.head)+24 > MaxRecord {
		return 0, ErrTooLarge
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		switch {
		case l.failed != nil:
			return 0, l.failed
		case l.closed:
			return 0, ErrClosed
		case l.dropping.last > 0:
			return l.drop(), ErrDropped
		case l.fits(len(body)):
			return l.accept(body), nil
		case l.stalled != nil && l.opt.Mode == Degrade:
			return l.drop(), ErrDropped
		}
		if err := l.waitForRoom(ctx); err != nil {
			return 0, err
		}
	}
}

// waitForRoom releases mu while it waits.
func (l *Log) waitForRoom(ctx context.Context) error {
	room := l.room
	l.mu.Unlock()
	defer l.mu.Lock()
	poke(l.hurry)
	select {
	case <-room:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for room in the log: %w", ctx.Err())
	}
}

func (l *Log) fits(n int) bool {
	used := len(l.pending.frames) + len(l.inflight.frames)
	return used == 0 || used+n+recordAt+len(l.head)+21 <= l.opt.BufferBytes
}

// accept adds a frame for body with the next seq. The caller holds mu.
func (l *Log) accept(body []byte) uint64 {
	if len(l.pending.frames) == 0 {
		poke(l.wake)
	}
	seq := l.next
	l.next++
	l.pending.frames = appendFrame(l.pending.frames, l.salts.next(), l.head, seq, body)
	l.pending.last = seq
	if len(l.pending.frames) > l.opt.BufferBytes/4 {
		poke(l.hurry)
	}
	return seq
}

// drop uses up a seq. The caller holds mu.
func (l *Log) drop() uint64 {
	if l.dropping.last == 0 {
		l.dropping.first = l.next
	}
	l.dropping.last = l.next
	l.next++
	return l.dropping.last
}

// Sync returns when the event seq is durable. In degrade mode it does not wait during a
// stall and returns ErrStalled, and ErrDropped for a dropped event.
func (l *Log) Sync(ctx context.Context, seq uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		switch {
		case l.wasDropped(seq):
			return ErrDropped
		case seq <= l.durable:
			return nil
		case seq >= l.next:
			return fmt.Errorf("sync: seq %d has not been assigned", seq)
		case l.failed != nil:
			return l.failed
		case l.stalled != nil && l.opt.Mode == Degrade:
			return ErrStalled
		}
		if err := l.waitFor(ctx, seq); err != nil {
			return err
		}
	}
}

// Flush returns when every accepted event is durable. Its errors are those of Sync.
func (l *Log) Flush(ctx context.Context) error {
	l.mu.Lock()
	last := l.next - 1
	l.mu.Unlock()
	if last == 0 {
		return nil
	}
	return l.Sync(ctx, last)
}

// Durable returns the last seq up to which every event is durable or declared lost.
func (l *Log) Durable() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.durable
}

// waitFor releases mu until a change that may concern seq.
func (l *Log) waitFor(ctx context.Context, seq uint64) error {
	done, stall := l.pending.done, l.stall
	if seq <= l.inflight.last {
		done = l.inflight.done
	} else {
		poke(l.hurry)
	}
	l.mu.Unlock()
	defer l.mu.Lock()
	select {
	case <-done:
	case <-stall:
	case <-ctx.Done():
		return fmt.Errorf("wait for seq %d to be durable: %w", seq, ctx.Err())
	}
	return nil
}

func (l *Log) wasDropped(seq uint64) bool {
	for _, s := range l.dropped {
		if s.has(seq) {
			return true
		}
	}
	return l.dropping.has(seq)
}

// Rotate seals the active segment with everything accepted so far, and
// returns when its manifest is durable. Without records it does nothing.
func (l *Log) Rotate(ctx context.Context) error {
	done := make(chan error, 1)
	l.mu.Lock()
	switch {
	case l.failed != nil:
		l.mu.Unlock()
		return l.failed
	case l.closed:
		l.mu.Unlock()
		return ErrClosed
	}
	l.rotate = append(l.rotate, done)
	l.mu.Unlock()
	poke(l.wake)
	poke(l.hurry)
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait for the segment to be sealed: %w", ctx.Err())
	}
}

// Close writes everything accepted, seals the last segment with the closing
// manifest and unlocks the directory. If ctx ends first, for instance during a
// stall, it returns ErrAborted and leaves the run to Recover. Later calls return ErrClosed.
func (l *Log) Close(ctx context.Context, final Closing) error {
	if final != Sealed && final != Interrupted {
		return fmt.Errorf("closing %q: want %q or %q", final, Sealed, Interrupted)
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return ErrClosed
	}
	l.closed, l.closing = true, final
	l.makeRoom()
	l.mu.Unlock()
	poke(l.wake)
	poke(l.hurry)
	select {
	case <-l.exited:
	case <-ctx.Done():
		l.cancel()
		<-l.exited
	}
	l.cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// makeRoom wakes all callers in waitForRoom. The caller holds mu.
func (l *Log) makeRoom() {
	close(l.room)
	l.room = make(chan struct{})
}

// take moves the pending batch to inflight.
func (l *Log) take() job {
	l.mu.Lock()
	defer l.mu.Unlock()
	j := job{rotate: l.rotate}
	l.rotate = nil
	if l.closed && len(l.pending.frames) == 0 {
		j.closing = l.closing
		return j
	}
	if l.closed {
		poke(l.wake) // for the last job
		poke(l.hurry)
	}
	spare := l.inflight.frames[:0]
	l.inflight = l.pending
	l.pending = batch{frames: spare, done: make(chan struct{})}
	j.frames = l.inflight.frames
	return j
}

// acknowledge declares every seq up to last durable.
func (l *Log) acknowledge(last uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.durable = last
}

// finish empties the inflight batch.
func (l *Log) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.inflight.frames) == 0 {
		return
	}
	if cap(l.inflight.frames) > 2*l.opt.BufferBytes {
		l.inflight.frames = nil
	}
	l.inflight.frames = l.inflight.frames[:0]
	close(l.inflight.done)
	l.makeRoom()
}

// end closes the log for its callers, including callers of Rotate that wait for the writer: err is nil after a normal close.
func (l *Log) end(rotate []chan error, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = err
	for _, done := range append(rotate, l.rotate...) {
		done <- cmp.Or(err, ErrClosed)
	}
	l.rotate = nil
	if len(l.inflight.frames) > 0 {
		close(l.inflight.done)
	}
	close(l.pending.done)
	l.makeRoom()
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
