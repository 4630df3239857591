package sensor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/guest/erase"
)

const (
	// smallFile parts the two hashing workers: a large file never delays small ones.
	smallFile = 1 << 20
	// largestHashed bounds what is hashed, by the file's size.
	largestHashed = 16 << 30
	// releaseLimit is how long the kernel may take to release a closed file.
	releaseLimit = 2 * time.Second
	// restFactor is the ratio of pauses to work of the worker for large files, so
	// that the step has most of the processor. While Flush waits it does not pause.
	restFactor = 2
)

// Reasons that an event has instead of a digest.
const (
	unhashedChanged = "changed after it was closed"
	unhashedShared  = "open for writing elsewhere when it was closed"
	unhashedUnknown = "too many files were written to know that it did not change"
	unhashedRunning = "changed while it was hashed"
	unhashedGone    = "gone before it could be hashed"
	unhashedLarge   = "larger than 16 GiB"
	unhashedLate    = "not hashed in time"
)

// closing is a closed file whose content is to be hashed.
type closing struct {
	item       *item
	inode, ino uint64 // the first is the kernel's address, compared only
	dev        uint32
	generation uint64 // of the content when it was closed
	size       int64
	shared     bool // another open file or mapping could still write it
	pid        uint32
	root       string
	path       string
	cycle      uint64
}

// job is one content to be read: through a descriptor that fanotify gave, or by path.
//
//	           open, generation as at close     no one writes        all read, generation as at close
//	(queued) -----------------------------> open ----------> reading ---------> digest
//	    |                                    |  ^               |
//	    +--> no digest, and why <------------+  +- a turn each -+
//
// A content is read in turns; between them others are read.
type job struct {
	file    *os.File // nil: by path
	held    bool     // file came from fanotify
	state   state    // of file when fanotify gave it, until the first turn; else zero
	wants   []*closing
	opened  time.Time // zero until the first turn
	content *content  // nil until it is being read
}

// hasher reads files and completes their events. Its two goroutines, one for
// small files and one for large ones, are owned by the Sensor.
//
// It gives a digest only for the content with which the file was closed. The
// proof depends on the kernel: the generation of the content is the one at
// close, before and after it was read, and no process had it open for writing when
// reading began. Sizes and times, which a workload can set, prove nothing.
type hasher struct {
	line    *line
	open    func(*closing) (*os.File, error)
	state   func(fd int) (state, error)
	cache   *cache
	wg      sync.WaitGroup
	flushes atomic.Int32 // active Flush calls

	mu     sync.Mutex // guards the fields below
	wake   *sync.Cond // the queues, busy or closed changed
	small  []*job     // bounded: each job has an item in the line, whose size is bounded
	large  []*job
	held   int // descriptors in both queues
	busy   int // jobs that a worker is reading
	closed bool
}

func newHasher(l *line, open func(*closing) (*os.File, error), state func(int) (state, error)) *hasher {
	h := &hasher{line: l, open: open, state: state, cache: newCache(cacheSize)}
	h.wake = sync.NewCond(&h.mu)
	return h
}

func (h *hasher) start() {
	h.wg.Go(func() { h.work(&h.small, 0) })
	h.wg.Go(func() { h.work(&h.large, restFactor) })
}

// add queues a job. file is the descriptor that fanotify gave and s its state then; nil and zero if there is none.
func (h *hasher) add(file *os.File, s state, wants []*closing) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if file != nil {
		h.held++
	}
	h.queue(&job{file: file, held: file != nil, state: s, wants: wants})
}

// queue appends a job. The caller holds mu.
func (h *hasher) queue(j *job) {
	if j.wants[0].size > smallFile {
		h.large = append(h.large, j)
	} else {
		h.small = append(h.small, j)
	}
	h.wake.Broadcast()
}

// holding returns the number of descriptors that wait to be hashed.
func (h *hasher) holding() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held
}

// settle waits until all jobs are done and their buffers erased, or ctx ends.
func (h *hasher) settle(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.wake.Broadcast()
	})
	defer stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.small)+len(h.large)+h.busy > 0 && !h.closed && ctx.Err() == nil {
		h.wake.Wait()
	}
}

func (h *hasher) close() {
	h.mu.Lock()
	h.closed = true
	h.wake.Broadcast()
	h.mu.Unlock()
	h.wg.Wait()
}

func (h *hasher) work(queue *[]*job, rest time.Duration) {
	for j := h.next(queue); j != nil; j = h.next(queue) {
		began := time.Now()
		over := h.turn(j)
		if over {
			j.close()
		}
		h.mu.Lock()
		switch {
		case !over:
			h.queue(j)
		case j.held:
			h.held--
		}
		last := len(*queue) == 0
		h.mu.Unlock()
		if last {
			erase.Stack() // and the registers: a content may be a secret's
		}
		h.mu.Lock()
		h.busy--
		h.wake.Broadcast()
		h.mu.Unlock()
		h.rest(rest * time.Since(began))
	}
}

func (h *hasher) next(queue *[]*job) *job {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(*queue) == 0 && !h.closed {
		h.wake.Wait()
	}
	if len(*queue) == 0 {
		return nil
	}
	j := (*queue)[0]
	(*queue)[0] = nil
	*queue = (*queue)[1:]
	h.busy++
	return j
}

// rest pauses, so that the step gets the processor, unless Flush waits.
func (h *hasher) rest(d time.Duration) {
	const slice = 5 * time.Millisecond
	for ; d > 0 && h.flushes.Load() == 0; d -= slice {
		time.Sleep(min(d, slice))
	}
}

// turn advances a job. over reports that its events are complete.
func (h *hasher) turn(j *job) (over bool) {
	if j.content != nil {
		return h.read(j)
	}
	if j.opened.IsZero() {
		j.opened = time.Now()
		if j.file == nil {
			var err error
			if j.file, err = h.open(j.wants[0]); err != nil {
				return h.fail(j, unhashedGone)
			}
		}
	}
	s := j.state
	j.state = state{}
	if s.Inode == 0 || s.Writers > 0 {
		var err error
		if s, err = h.state(int(j.file.Fd())); err != nil {
			return h.fail(j, reason(err))
		}
	}
	if h.narrow(j, s); len(j.wants) == 0 {
		return true
	}
	if s.Writers > 0 {
		if j.wants[0].shared || time.Since(j.opened) > releaseLimit {
			return h.fail(j, unhashedShared)
		}
		time.Sleep(time.Millisecond) // the file that was closed is being released
		return false
	}
	if sum, ok := h.cache.get(keyOf(s)); ok {
		return h.done(j, sum)
	}
	if j.wants[0].size > largestHashed {
		return h.fail(j, unhashedLarge)
	}
	j.content = newContent(j.wants[0].size)
	return h.read(j)
}

// narrow keeps the wants whose content the file still has.
func (h *hasher) narrow(j *job, s state) {
	kept := j.wants[:0]
	for _, c := range j.wants {
		switch {
		case s.Generation == 0:
			h.line.done(c.item, "", unhashedUnknown)
		case c.generation != s.Generation || c.ino != s.Ino || c.dev != s.Dev:
			h.line.done(c.item, "", unhashedChanged)
		default:
			kept = append(kept, c)
		}
	}
	j.wants = kept
}

// read reads on for one turn, and completes the events at the content's end.
func (h *hasher) read(j *job) (over bool) {
	if !h.line.waits(j.wants[0].item) {
		return true // the event was sent without its hash
	}
	more, err := j.content.read(j.file)
	if err != nil {
		return h.fail(j, reason(err))
	}
	if more {
		return false
	}
	s, err := h.state(int(j.file.Fd()))
	if err != nil {
		return h.fail(j, reason(err))
	}
	if s.Generation != j.wants[0].generation || j.content.at != j.wants[0].size {
		return h.fail(j, unhashedRunning)
	}
	sum := j.content.sum()
	if j.content.at > smallFile {
		h.cache.put(keyOf(s), sum)
	}
	return h.done(j, sum)
}

func (h *hasher) done(j *job, sum string) bool {
	for _, c := range j.wants {
		h.line.done(c.item, sum, "")
	}
	return true
}

func (h *hasher) fail(j *job, why string) bool {
	for _, c := range j.wants {
		h.line.done(c.item, "", why)
	}
	return true
}

// close zeroes the bytes that were read.
func (j *job) close() {
	if j.content != nil {
		j.content.erase()
	}
	if j.file != nil {
		j.file.Close()
	}
}

func reason(err error) string {
	var e unix.Errno
	errors.As(err, &e)
	return "could not be read: " + unix.ErrnoName(e)
}

// prime puts the digests of the large, immutable files below root into the cache.
func (h *hasher) prime(root string, over int64) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && isMountPoint(path) {
			return fs.SkipDir
		}
		info, err := d.Info()
		if err != nil || !info.Mode().IsRegular() || info.Size() <= over {
			return err
		}
		return h.primeFile(path, info.Size())
	})
}

func (h *hasher) primeFile(path string, size int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	s, err := h.state(int(f.Fd()))
	if err != nil || s.ContentFs != unix.EROFS_SUPER_MAGIC_V1 {
		return err
	}
	c := newContent(size)
	defer c.erase()
	for more := true; more; {
		if more, err = c.read(f); err != nil {
			return fmt.Errorf("hash %s: %w", path, err)
		}
	}
	h.cache.put(keyOf(s), c.sum())
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

func isMountPoint(dir string) bool {
	var here, above unix.Stat_t
	return unix.Lstat(dir, &here) != nil || unix.Lstat(filepath.Dir(dir), &above) != nil || here.Dev != above.Dev
}
