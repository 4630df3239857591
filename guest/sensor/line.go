package sensor

import (
	"context"
	"sync"
	"time"

	"github.com/custody-project/custody/audit"
)

const (
	// lineBytes bounds the memory of waiting events. At the bound, push
	// blocks; then the rings fill up, and the kernel counts what it drops.
	lineBytes = 16 << 20
	// maxWait is how long an event may delay later ones while its file is
	// hashed. After that it is emitted later, out of order.
	maxWait = 250 * time.Millisecond
	// maxLate bounds the number of events that are emitted out of order. A further one is
	// sent without its hash.
	maxLate = 1024
)

// item is an event on its way out.
//
//	          push             hash done            emitted
//	(built) --------> waiting -----------> ready -----------> gone
//	                     |                   ^
//	                     | maxWait over      | hash done
//	                     +------> late ------+
//
// Events without a file to hash are ready when they are pushed.
type item struct {
	event  *audit.Event
	weight int
	seq    uint64
	pushed time.Time
	ready  bool
	// dropped reports to the hasher that the event was emitted without its hash.
	dropped bool
}

// line keeps events in the order in which they happened.
type line struct {
	limit int // of bytes; lineBytes except in tests

	mu       sync.Mutex
	change   *sync.Cond
	items    []*item // in order; waiting or ready
	late     []*item
	bytes    int
	last     uint64 // seq of the youngest item
	emitting uint64 // seq of the item that emit is emitting, 0 for none
	alarmed  bool   // a broadcast is scheduled for when the head has waited for maxWait
	closed   bool
	err      error // why no further events can be emitted
}

func newLine() *line {
	l := &line{limit: lineBytes}
	l.change = sync.NewCond(&l.mu)
	return l
}

// push appends an event, and blocks while the line is full.
func (l *line) push(it *item) {
	it.weight = weight(it.event)
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.bytes > l.limit && !l.closed && l.err == nil {
		l.change.Wait()
	}
	if l.closed || l.err != nil {
		it.dropped = true
		return
	}
	l.last++
	it.seq, it.pushed = l.last, time.Now()
	l.items = append(l.items, it)
	l.bytes += it.weight
	l.change.Broadcast()
}

// done stores a file's digest in its event and makes it ready.
func (l *line) done(it *item, sum, unhashed string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if it.ready || it.dropped {
		return
	}
	it.event.File.SHA256, it.event.File.Unhashed = sum, unhashed
	it.ready = true
	l.change.Broadcast()
}

// waits reports whether an event still waits for its digest.
func (l *line) waits(it *item) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !it.ready && !it.dropped
}

// giveUp sends the events up to seq without their missing digests.
func (l *line) giveUp(seq uint64, unhashed string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, items := range [][]*item{l.late, l.items} {
		for _, it := range items {
			if !it.ready && it.seq <= seq {
				it.event.File.Unhashed, it.ready = unhashed, true
			}
		}
	}
	l.change.Broadcast()
}

// mark returns the seq of the youngest event.
func (l *line) mark() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// next waits for the next event to emit; nil when the line was closed and is empty.
func (l *line) next() *item {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.emitting = 0
	l.change.Broadcast()
	for {
		if it := l.take(); it != nil {
			l.emitting = it.seq
			l.bytes -= it.weight
			l.change.Broadcast()
			return it
		}
		if l.closed && len(l.items)+len(l.late) == 0 {
			return nil
		}
		l.change.Wait()
	}
}

// take removes and returns the next event to emit, if there is one. The caller holds mu.
func (l *line) take() *item {
	for i, it := range l.late {
		if it.ready {
			l.late = append(l.late[:i], l.late[i+1:]...)
			return it
		}
	}
	for len(l.items) > 0 {
		it := l.items[0]
		if !it.ready && !l.overtake(it) {
			return nil
		}
		l.items[0] = nil
		l.items = l.items[1:]
		if it.ready {
			return it
		}
		if len(l.late) == maxLate {
			it.dropped = true
			it.event.File.Unhashed = "too many files were waiting to be hashed"
			return it
		}
		l.late = append(l.late, it)
	}
	return nil
}

// overtake reports whether the head has delayed the others for too long. The caller holds mu.
func (l *line) overtake(head *item) bool {
	left := maxWait - time.Since(head.pushed)
	if left <= 0 || l.bytes > l.limit/2 {
		return true
	}
	if !l.alarmed {
		l.alarmed = true
		time.AfterFunc(left, l.alarm)
	}
	return false
}

func (l *line) alarm() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.alarmed = false
	l.change.Broadcast()
}

// emit sends the line's events until it is closed and empty, or emit fails.
func (l *line) emit(ctx context.Context, send func(context.Context, *audit.Event) error) {
	for it := l.next(); it != nil; it = l.next() {
		if err := send(ctx, it.event); err != nil {
			l.fail(err)
			return
		}
	}
}

// fail empties the line: no further events are emitted.
func (l *line) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
	for _, it := range append(l.items, l.late...) {
		it.dropped = true
	}
	l.items, l.late, l.bytes, l.emitting = nil, nil, 0, 0
	l.change.Broadcast()
}

func (l *line) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.change.Broadcast()
}

// flush waits until the events up to mark have been emitted.
func (l *line) flush(ctx context.Context, mark uint64) error {
	stop := context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.change.Broadcast()
	})
	defer stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.oldest() <= mark && l.err == nil && ctx.Err() == nil {
		l.change.Wait()
	}
	if l.err != nil {
		return l.err
	}
	return context.Cause(ctx)
}

// oldest is the lowest seq that has not been emitted yet. The caller holds mu.
func (l *line) oldest() uint64 {
	oldest := l.last + 1
	if l.emitting != 0 {
		oldest = l.emitting
	}
	for _, it := range l.late {
		oldest = min(oldest, it.seq)
	}
	if len(l.items) > 0 {
		oldest = min(oldest, l.items[0].seq)
	}
	return oldest
}

// weight is the approximate memory of an event.
func weight(e *audit.Event) int {
	n := 512
	if e.Exec != nil {
		n += len(e.Exec.Exe) + len(e.Exec.Cwd)
		for _, a := range e.Exec.Argv {
			n += len(a) + 16
		}
	}
	if e.File != nil {
		n += len(e.File.Path) + len(e.File.To)
	}
	return n
}
