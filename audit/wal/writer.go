package wal

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/custody-project/custody/audit"
)

// job is one turn of the writer.
type job struct {
	frames  []byte
	rotate  []chan error
	closing Closing // set in the last turn
}

// write is the writer: it turns until the log is closed or given up.
func (l *Log) write() {
	for {
		l.waitForWork()
		j := l.take()
		if err := l.turn(j); err != nil {
			l.giveUp(j, err)
			return
		}
		if j.closing != Open {
			l.lock.Close()
			l.giveUp(job{}, nil)
			return
		}
	}
}

// waitForWork returns when there is something to write, or the active segment
// has reached its age.
func (l *Log) waitForWork() {
	var age <-chan time.Time
	if l.seg.count > 0 {
		timer := time.NewTimer(time.Until(l.seg.born.Add(l.opt.SegmentAge)))
		defer timer.Stop()
		age = timer.C
	}
	select {
	case <-l.wake:
	case <-age:
		return
	}
	linger := time.NewTimer(l.opt.Linger)
	defer linger.Stop()
	select {
	case <-l.hurry:
	case <-linger.C:
	}
	// Let other runnable goroutines run first: callers that the last commit has woken bring their next events into this
	// one.
	runtime.Gosched()
}

// take makes the pending batch the one in flight.
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
		poke(l.wake) // for the last turn
		poke(l.hurry)
	}
	spare := l.inflight.frames[:0]
	l.inflight = l.pending
	l.pending = batch{frames: spare, done: make(chan struct{})}
	j.frames = l.inflight.frames
	return j
}

// turn makes a job durable, whatever it takes; it fails only when the log is given up.
func (l *Log) turn(j job) error {
	if l.lock == nil {
		if err := l.insist(l.setUp); err != nil {
			return err
		}
	}
	if err := l.commit(j.frames); err != nil {
		return err
	}
	due := l.seg.count > 0 && (len(j.rotate) > 0 || time.Since(l.seg.born) >= l.opt.SegmentAge)
	if due || j.closing != Open {
		if err := l.sealSegment(j.closing); err != nil {
			return err
		}
	}
	for _, done := range j.rotate {
		done <- nil
	}
	return nil
}

// commit writes frames, as many segments as it takes, and acknowledges each part.
func (l *Log) commit(frames []byte) error {
	for len(frames) > 0 {
		if err := l.admit(); err != nil {
			return err
		}
		n := fit(frames, l.opt.SegmentBytes-l.seg.size, l.seg.count == 0 || l.seg.cut)
		if n == 0 {
			if err := l.sealSegment(Open); err != nil {
				return err
			}
			continue
		}
		if err := l.commitChunk(frames[:n]); err != nil {
			return err
		}
		frames = frames[n:]
	}
	l.finish()
	return nil
}

func (l *Log) commitChunk(chunk []byte) error {
	var began time.Time
	err := l.insist(func() error {
		began = time.Now()
		return l.put(chunk)
	})
	if err != nil {
		return err
	}
	now, before := time.Now(), l.seg.count
	l.seg.add(chunk, now)
	l.seg.cut = false
	l.acknowledge(l.seg.last)
	if l.opt.OnCommit != nil {
		l.opt.OnCommit(int(l.seg.count-before), len(chunk), now.Sub(began))
	}
	return nil
}

// admit waits until Room lets records in.
func (l *Log) admit() error {
	if l.opt.Room == nil {
		return nil
	}
	ask := func() error {
		if err := l.opt.Room(); err != nil {
			return fmt.Errorf("%w: %w", ErrNoRoom, err)
		}
		return nil
	}
	if ask() == nil {
		return nil
	}
	if l.seg.count > 0 && !l.seg.cut {
		if err := l.sealSegment(Open); err != nil {
			return err
		}
	}
	return l.insist(ask)
}

// acknowledge declares every seq up to last durable.
func (l *Log) acknowledge(last uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.durable = last
}

// finish empties the batch in flight.
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

// giveUp ends the log: err nil after a proper close.
func (l *Log) giveUp(j job, err error) {
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrAborted, err)
		l.dropHandles()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = err
	for _, done := range append(j.rotate, l.rotate...) {
		done <- cmp.Or(err, ErrClosed)
	}
	l.rotate = nil
	if len(l.inflight.frames) > 0 {
		close(l.inflight.done)
	}
	close(l.pending.done)
	l.makeRoom()
}

func (l *Log) dropHandles() {
	if l.seg.file != nil {
		l.seg.file.Close()
	}
	if l.lock != nil {
		l.lock.Close()
	}
}

// insist repeats op until it works. The first failure begins a stall, the
// success after it ends it. It fails only when the log is given up.
func (l *Log) insist(op func() error) error {
	err := op()
	if err == nil {
		return nil
	}
	l.beginStall(err)
	retry := time.NewTicker(l.opt.Retry)
	defer retry.Stop()
	for {
		select {
		case <-retry.C:
		case <-l.ctx.Done():
			return err
		}
		if err = op(); err == nil {
			l.endStall()
			return nil
		}
	}
}

func (l *Log) beginStall(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stalled = err
	if l.opt.Mode == Degrade {
		close(l.stall)
		l.makeRoom() // callers that wait for it are to drop their events
	}
	l.told.stalled(err)
}

// endStall declares what was dropped, behind what the buffer held.
func (l *Log) endStall() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dropping.last > 0 {
		l.accept(gapBody(audit.Gap{
			Stage: audit.StageWAL, First: l.dropping.first, Last: l.dropping.last,
			Count: l.dropping.last - l.dropping.first + 1, Cause: cause(l.stalled),
		}))
		l.dropped = append(l.dropped, l.dropping)
		l.dropping = span{}
	}
	if l.opt.Mode == Degrade {
		l.stall = make(chan struct{})
	}
	l.stalled = nil
	l.told.resumed()
}

// gapBody is the only event that does not come through the redactor: it is
// made of numbers and words of our own.
func gapBody(g audit.Gap) []byte {
	body, err := json.Marshal(audit.Event{
		Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindGap, Gap: &g,
	})
	if err != nil {
		panic(err) // no field of a gap can fail to encode
	}
	return body
}

// cause gives the kernel's words for the error, without any path.
func cause(err error) string {
	var errno syscall.Errno
	if errors.Is(err, ErrNoRoom) {
		return ErrNoRoom.Error()
	}
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return "the record could not be written"
}

// passing reports whether err is one that a disk can recover from.
func passing(err error) bool {
	for _, e := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, io.ErrShortWrite} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// setUp makes and locks the directory of a new run. It can be repeated.
func (l *Log) setUp() error {
	fs := l.opt.FS
	if err := fs.MkdirAll(l.dir); err != nil {
		return err
	}
	if err := fs.SyncDir(filepath.Dir(filepath.Clean(l.dir))); err != nil {
		return err
	}
	lock, err := fs.Lock(filepath.Join(l.dir, lockName))
	if err != nil {
		return err
	}
	names, err := fs.ReadDir(l.dir)
	if err == nil && len(names) > 1 {
		err = fmt.Errorf("%s: %w", l.dir, ErrExists)
	}
	if err != nil {
		lock.Close()
		return err
	}
	l.lock = lock
	return nil
}

// salts hands out random bytes, drawn from the kernel 256 salts at a time.
type salts struct {
	pool [256 * saltSize]byte
	left int
}

func (s *salts) next() []byte {
	if s.left == 0 {
		rand.Read(s.pool[:]) // never fails: see crypto/rand
		s.left = len(s.pool)
	}
	s.left -= saltSize
	return s.pool[s.left : s.left+saltSize]
}
