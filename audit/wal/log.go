package wal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/custody-project/custody/redact"
)

// Mode is what happens when the record cannot be written.
type Mode string

// The modes of a log.
const (
	Strict  Mode = "strict"  // Append and Sync wait; nothing is lost
	Degrade Mode = "degrade" // events beyond the buffer are dropped and declared
)

// Errors of a Log.
var (
	ErrClosed    = errors.New("the log is closed")
	ErrAborted   = errors.New("the log was given up before all of it was durable")
	ErrStalled   = errors.New("the log is stalled: the record cannot be written just now")
	ErrDropped   = errors.New("the event was dropped while the log was stalled; a gap record declares it")
	ErrTooLarge  = fmt.Errorf("the record is longer than %d bytes", MaxRecord)
	ErrNotSealed = errors.New("not a sealed JSON object")
	ErrExists    = errors.New("the directory already holds a record")
	ErrNoRoom    = errors.New("there is no room for the record")
)

// Options of a Log. Run and Sealer are required.
type Options struct {
	Run    string // letters, digits, '-', '_', '.'; at most 128
	Sealer Sealer
	Mode   Mode // default Strict

	SegmentBytes int64         // a segment is sealed before it grows beyond; default 4 MiB, at most MaxSegment
	SegmentAge   time.Duration // and when its first record is this old; default 1 s
	// BufferBytes bounds the frames that are accepted and not yet durable; default 4 MiB.
	// When it is full, Append waits. A single record may always pass.
	BufferBytes int
	// Linger is how long the writer gathers more records while no one waits in Sync; default 2 ms. Sync ends it
	// immediately.
	Linger time.Duration
	Retry  time.Duration // pause between attempts while stalled; default 100 ms

	// OnStall is called when writing begins to fail and OnResume when it works
	// again, in turn, from a goroutine of the log's own. They may use the log, but not Close it.
	OnStall  func(error)
	OnResume func()

	// Room is called before records are written, up to a thousand times a second. Its error is a stall, like a full
	// disk: strict waits, degrade drops and declares. The segment that is being written is sealed first, so that it can
	// be shipped and make space. Room does not use the log.
	Room func() error
	// OnCommit is called with each group of records that has become durable: their number, their bytes in the segment,
	// and how long the write with its fsync took. Like Room it blocks the writer.
	OnCommit func(records, bytes int, took time.Duration)
	// OnSeal is called after each segment's manifest has become durable. Like Room it blocks the writer.
	OnSeal func()

	FS FS // default Disk
}

func (o *Options) fill() error {
	if !validRun(o.Run) {
		return fmt.Errorf("run id %q: want 1 to 128 letters, digits, '-', '_' or '.'", o.Run)
	}
	if o.Sealer == nil {
		return errors.New("wal options: no Sealer")
	}
	o.Mode = cmp.Or(o.Mode, Strict)
	if o.Mode != Strict && o.Mode != Degrade {
		return fmt.Errorf("record mode %q: want %q or %q", o.Mode, Strict, Degrade)
	}
	o.SegmentBytes = cmp.Or(o.SegmentBytes, 4<<20)
	o.SegmentAge = cmp.Or(o.SegmentAge, time.Second)
	if o.SegmentBytes < 0 || o.SegmentBytes > MaxSegment {
		return fmt.Errorf("segment size %d: want at most %d bytes", o.SegmentBytes, MaxSegment)
	}
	o.BufferBytes = cmp.Or(o.BufferBytes, 4<<20)
	o.Linger = cmp.Or(o.Linger, 2*time.Millisecond)
	o.Retry = cmp.Or(o.Retry, 100*time.Millisecond)
	if o.FS == nil {
		o.FS = Disk{}
	}
	return nil
}

// Log is the record of one run, open for writing. It is safe for concurrent
// use. One goroutine writes; Close waits for it.
type Log struct {
	dir  string
	opt  Options
	head []byte // of every record, up to the seq

	ctx    context.Context // done when Close gives up
	cancel context.CancelFunc
	wake   chan struct{} // cap 1: there is work
	hurry  chan struct{} // cap 1: a caller waits for it
	exited chan struct{} // closed when the writer and the notifier have ended

	// Owned by the writer.
	lock io.Closer // nil until set-up is complete
	seg  active
	prev []byte // the last manifest

	told notifier

	mu       sync.Mutex // guards everything below
	next     uint64     // seq of the next event
	durable  uint64     // every seq up to here is durable or declared lost
	pending  batch      // being filled by Append
	inflight batch      // being written
	salts    salts
	room     chan struct{} // closed and renewed when the buffer empties or its rules change
	stall    chan struct{} // closed while stalled in degrade mode
	stalled  error         // why, nil while writing works
	dropping span          // seqs dropped in this stall, not yet declared
	dropped  []span        // and those of stalls before, 16 bytes each
	rotate   []chan error  // callers of Rotate
	closed   bool
	closing  Closing
	failed   error // the writer has given up
}

// batch is a row of frames that becomes durable together.
type batch struct {
	frames []byte
	last   uint64 // seq of the last frame
	done   chan struct{}
}

// span is a range of seqs, empty when last is 0.
type span struct{ first, last uint64 }

func (s span) has(seq uint64) bool { return s.first <= seq && seq <= s.last }

// Create begins the record of a new run in dir, whose parent should exist. A
// disk that is full or failing is no error but the first stall; anything else
// that is wrong with dir is.
func Create(dir string, o Options) (*Log, error) {
	l, err := newLog(dir, o)
	if err != nil {
		return nil, err
	}
	if err := l.setUp(); err != nil && !passing(err) {
		return nil, fmt.Errorf("create record: %w", err)
	}
	l.start()
	return l, nil
}

func newLog(dir string, o Options) (*Log, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	l := &Log{
		dir: dir, opt: o, head: fmt.Appendf(nil, headFormat, o.Run), next: 1,
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
func (l *Log) start() {
	if l.lock == nil {
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
		l.write()
		l.told.stop()
		<-notified
	}()
}

// Append takes an event into the record at the place that it returns. The event
// is durable only once Sync has returned for that seq. When the buffer is full
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

// waitForRoom gives up mu while it waits.
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

// accept gives body its seq and its frame. The caller holds mu.
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

// Sync returns when the event seq is durable. In degrade mode it returns
// ErrStalled rather than wait out a stall, and ErrDropped for a dropped event.
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
			return fmt.Errorf("sync: seq %d has not been given out", seq)
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

// Flush returns when every event that has its place is durable. Its errors are those of Sync.
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

// waitFor gives up mu until something has happened that may concern seq.
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

// Rotate seals the active segment with all that has been accepted so far, and
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

// Close writes what has been accepted, seals the last segment with the closing
// manifest and gives the directory free. If ctx ends first, for instance during a
// stall, it returns ErrAborted and leaves the run to Recover. Only the first call counts.
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

// makeRoom wakes everybody in waitForRoom. The caller holds mu.
func (l *Log) makeRoom() {
	close(l.room)
	l.room = make(chan struct{})
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
