package wal

import (
	"fmt"
	"io"
	"runtime"
	"time"
)

// writer makes accepted events durable and seals segments. It belongs to one goroutine, and before that starts to
// Create or Recover.
type writer struct {
	log  *Log
	opt  *Options
	dir  directory
	lock io.Closer // nil until set-up is complete
	seg  active
	prev []byte // the last manifest
}

func newWriter(l *Log, path string) *writer {
	dir := directory{l.opt.FS, path}
	return &writer{log: l, opt: &l.opt, dir: dir, seg: active{dir: dir}}
}

// setUp creates and locks the directory of a new run. It can be repeated.
func (w *writer) setUp() (err error) {
	w.lock, err = w.dir.make()
	return err
}

// job is one iteration of the writer.
type job struct {
	frames  []byte
	rotate  []chan error
	closing Closing // set in the last job
}

// write runs the writer until the log is closed or aborted.
func (w *writer) write() {
	for {
		w.waitForWork()
		j := w.log.take()
		if err := w.turn(j); err != nil {
			w.close()
			w.log.end(j.rotate, fmt.Errorf("%w: %w", ErrAborted, err))
			return
		}
		if j.closing != Open {
			w.close()
			w.log.end(nil, nil)
			return
		}
	}
}

// waitForWork returns when there are records to write, or the active segment
// has reached its maximum age.
func (w *writer) waitForWork() {
	var age <-chan time.Time
	if w.seg.count > 0 {
		timer := time.NewTimer(time.Until(w.seg.born.Add(w.opt.SegmentAge)))
		defer timer.Stop()
		age = timer.C
	}
	select {
	case <-w.log.wake:
	case <-age:
		return
	}
	linger := time.NewTimer(w.opt.Linger)
	defer linger.Stop()
	select {
	case <-w.log.hurry:
	case <-linger.C:
	}
	// Yield to other runnable goroutines first: callers that the last commit has woken can add their next events to this
	// batch.
	runtime.Gosched()
}

// turn makes a job durable, with as many retries as necessary; it fails only when the log is aborted.
func (w *writer) turn(j job) error {
	if w.lock == nil {
		if err := w.insist(w.setUp); err != nil {
			return err
		}
	}
	if err := w.commit(j.frames); err != nil {
		return err
	}
	due := w.seg.count > 0 && (len(j.rotate) > 0 || time.Since(w.seg.born) >= w.opt.SegmentAge)
	if due || j.closing != Open {
		if err := w.sealSegment(j.closing); err != nil {
			return err
		}
	}
	for _, done := range j.rotate {
		done <- nil
	}
	return nil
}

// commit writes frames to as many segments as necessary, and acknowledges each part.
func (w *writer) commit(frames []byte) error {
	for len(frames) > 0 {
		if err := w.admit(); err != nil {
			return err
		}
		n := fit(frames, w.opt.SegmentBytes-w.seg.size, w.seg.count == 0 || w.seg.cut)
		if n == 0 {
			if err := w.sealSegment(Open); err != nil {
				return err
			}
			continue
		}
		if err := w.commitChunk(frames[:n]); err != nil {
			return err
		}
		frames = frames[n:]
	}
	w.log.finish()
	return nil
}

func (w *writer) commitChunk(chunk []byte) error {
	var began time.Time
	err := w.insist(func() error {
		began = time.Now()
		return w.seg.put(chunk)
	})
	if err != nil {
		return err
	}
	now, before := time.Now(), w.seg.count
	w.seg.add(chunk, now)
	w.seg.cut = false
	w.log.acknowledge(w.seg.last)
	if w.opt.OnCommit != nil {
		w.opt.OnCommit(int(w.seg.count-before), len(chunk), now.Sub(began))
	}
	return nil
}

// admit waits until Room accepts records.
func (w *writer) admit() error {
	if w.opt.Room == nil {
		return nil
	}
	ask := func() error {
		if err := w.opt.Room(); err != nil {
			return fmt.Errorf("%w: %w", ErrNoRoom, err)
		}
		return nil
	}
	if ask() == nil {
		return nil
	}
	if w.seg.count > 0 && !w.seg.cut {
		if err := w.sealSegment(Open); err != nil {
			return err
		}
	}
	return w.insist(ask)
}

// close closes the open files, and releases the lock.
func (w *writer) close() {
	if w.seg.file != nil {
		w.seg.file.Close()
	}
	if w.lock != nil {
		w.lock.Close()
	}
}

// insist repeats op until it succeeds. The first failure begins a stall, the
// success ends it. It fails only when the log is aborted.
func (w *writer) insist(op func() error) error {
	err := op()
	if err == nil {
		return nil
	}
	w.log.beginStall(err)
	retry := time.NewTicker(w.opt.Retry)
	defer retry.Stop()
	for {
		select {
		case <-retry.C:
		case <-w.log.ctx.Done():
			return err
		}
		if err = op(); err == nil {
			w.log.endStall()
			return nil
		}
	}
}

// sealSegment writes the leaves and the manifest of the active segment, in that order,
// and begins the next one. Its records are already durable.
func (w *writer) sealSegment(closing Closing) error {
	s := Segment{
		Run: w.opt.Run, Index: w.seg.index, First: w.seg.first, Last: w.seg.last, Count: w.seg.count,
		Bytes: w.seg.size, Leaves: w.seg.leaves, Losses: w.seg.losses,
		Time: time.Now().UTC(), Closing: closing, Prev: w.prev,
	}
	if s.Count == 0 {
		s.First, s.Last = w.log.Durable()+1, w.log.Durable()
	}
	var leaves, manifest []byte
	err := w.insist(func() (err error) { // a remote key may be unreachable
		leaves, manifest, err = w.opt.Sealer.Seal(s)
		return err
	})
	if err != nil {
		return fmt.Errorf("seal segment %d: %w", s.Index, err)
	}
	if err := w.storeSeal(s, leaves, manifest); err != nil {
		return err
	}
	if w.seg.file != nil {
		w.seg.file.Close() // fsynced after its last write
	}
	w.prev = manifest
	w.seg.next()
	if w.opt.OnSeal != nil {
		w.opt.OnSeal()
	}
	return nil
}

func (w *writer) storeSeal(s Segment, leaves, manifest []byte) error {
	if s.Count > 0 {
		err := w.insist(func() error { return w.dir.writeFile(FileName(s.First, LeavesSuffix), leaves) })
		if err != nil {
			return err
		}
	}
	return w.insist(func() error { return w.dir.writeFile(FileName(s.First, ManifestSuffix), manifest) })
}
