package sensor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
)

// Settings are set after the restore, when the sandbox's identity is known.
type Settings struct {
	// Boot and Run are part of every Proc id. Together they must be unique.
	Boot, Run string
	// Cookie is random and never shown to a cell: it marks the sensor's own calls.
	Cookie uint64
	// HashOver: files closed after writing are hashed when larger than this many bytes; 0 hashes all.
	HashOver int64
	// ReadOver: closes of files opened for reading only are reported and hashed
	// when the file is larger than this many bytes; negative reports none.
	ReadOver int64
}

// Sensor observes the tracked cgroups. Its methods are safe for concurrent use.
//
//	Load -> loaded -- Start --> running -- Close --> closed
//	           |                                       ^
//	           +--------------- Close -----------------+
//
// A loaded sensor may be part of a memory snapshot: it has no goroutines and
// no state of a run.
type Sensor struct {
	kernel    *kernel
	watch     *watch
	collector *collector
	hashTime  time.Duration // the constant, except in tests

	mu      sync.Mutex // guards the fields below
	running bool
	closed  bool
	cancel  context.CancelFunc
	wg      sync.WaitGroup // collector and emitter
}

// Load loads and attaches the programs. It needs root, /proc and /sys.
func Load() (*Sensor, error) {
	k, err := loadKernel()
	if err != nil {
		return nil, err
	}
	w, err := newWatch()
	if err != nil {
		return nil, errors.Join(err, k.close())
	}
	c, err := newCollector(k, w)
	if err != nil {
		return nil, errors.Join(err, w.close(), k.close())
	}
	return &Sensor{kernel: k, watch: w, collector: c, hashTime: hashTime}, nil
}

// Start starts reporting. emit is called from one goroutine, in the order of
// the events, except that the event of a file that takes long to
// hash is late. emit may block: up to 16 MiB of events are queued, then the
// kernel's rings fill, and records that do not fit are counted and reported as
// a gap. If emit returns an error, or ctx ends, nothing more is reported and
// Flush returns the error.
func (s *Sensor) Start(ctx context.Context, set Settings, emit func(context.Context, *audit.Event) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running || s.closed {
		return errors.New("sensor was already started")
	}
	if err := s.collector.configure(set, set.Cookie|1); err != nil {
		return err
	}
	ctx, s.cancel = context.WithCancel(ctx)
	s.running = true
	s.collector.hasher.start()
	s.wg.Go(func() { s.collector.run(ctx) })
	s.wg.Go(func() { s.collector.line.emit(ctx, emit) })
	context.AfterFunc(ctx, func() { s.collector.line.fail(context.Cause(ctx)) })
	return nil
}

// Prime hashes the files below root that are larger than over bytes, so that
// reading one of them in a run costs no hashing. It may be called before a
// snapshot is taken; it erases what it has read from memory.
func (s *Sensor) Prime(root string, over int64) error {
	c := s.collector
	return c.id.borrow(func() error { return c.hasher.prime(root, over) })
}

// Prepare marks the file systems at and below root, which Track does
// otherwise. It may be called before a snapshot is taken.
func (s *Sensor) Prepare(root string) error { return s.watch.mark(root) }

// Track starts reporting the processes in this cgroup and below, as
// part of step. root is the path of the step's root file system for init; its
// closed files are hashed through a fanotify mark, and by path below root
// where that is not possible. Call it before the step's first process starts.
func (s *Sensor) Track(cgroupID uint64, step, root string) error {
	number := s.collector.addStep(step, root)
	if root != "" {
		if err := s.watch.mark(root); err != nil {
			return err
		}
	}
	if err := s.kernel.coll.Maps["cgroups"].Put(cgroupID, number); err != nil {
		return fmt.Errorf("track cgroup %d: %w", cgroupID, err)
	}
	return nil
}

// Secrets starts reporting which tracked processes open the files of the file system with this device number, as
// returned by stat(2): the first time that a process opens one for reading. The file system has the secrets of a step.
func (s *Sensor) Secrets(device uint64) error {
	if err := s.kernel.coll.Maps["secret_devices"].Put(kernelDevice(device), uint8(1)); err != nil {
		return fmt.Errorf("watch the step's secrets: %w", err)
	}
	return nil
}

// Forget ends Secrets, after the file system was unmounted: the kernel reuses its number.
func (s *Sensor) Forget(device uint64) error {
	if err := s.kernel.coll.Maps["secret_devices"].Delete(kernelDevice(device)); err != nil {
		return fmt.Errorf("stop watching the step's secrets: %w", err)
	}
	return nil
}

// kernelDevice is a device number as the kernel keeps it.
func kernelDevice(device uint64) uint32 { return unix.Major(device)<<minorBits | unix.Minor(device) }

// Untrack ends Track for new processes. Processes that were observed stay watched, so
// that events of one that outlives its step are reported; kill a step's cgroup and Flush first.
func (s *Sensor) Untrack(cgroupID uint64) error {
	cgroups := s.kernel.coll.Maps["cgroups"]
	if err := cgroups.Delete(cgroupID); err != nil {
		return fmt.Errorf("untrack cgroup %d: %w", cgroupID, err)
	}
	return nil
}

const (
	// hashTime is how long Flush waits for contents to be hashed.
	hashTime = 10 * time.Second
	// eraseTime is how long it waits until what was read is erased, while other steps keep the sensor busy.
	eraseTime = time.Second
)

// Flush returns when everything that happened before the call has been
// emitted, losses and the events of dead processes included. An event whose
// content is not hashed within hashTime is emitted without its digest, and with the reason.
func (s *Sensor) Flush(ctx context.Context) error {
	if err := s.collector.sync(ctx); err != nil {
		return err
	}
	l, h := s.collector.line, s.collector.hasher
	h.flushes.Add(1)
	defer h.flushes.Add(-1)
	mark := l.mark()
	alarm := time.AfterFunc(s.hashTime, func() { l.giveUp(mark, unhashedLate) })
	defer alarm.Stop()
	if err := l.flush(ctx, mark); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, eraseTime)
	defer cancel()
	h.settle(ctx)
	return nil
}

// Close detaches the programs and ends the goroutines. Events that were not flushed may be lost.
func (s *Sensor) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if s.running {
		s.cancel()
		s.collector.kick()
		s.collector.line.close()
		s.wg.Wait()
		s.collector.hasher.close()
	}
	return errors.Join(s.collector.close(), s.watch.close(), s.kernel.close())
}
