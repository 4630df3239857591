package sensor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
)

const (
	// pause is how long records accumulate once they arrive. It costs
	// latency, and saves a context switch for every record. With many
	// records it grows up to longPause: each switch empties the processor's caches.
	pause     = 15 * time.Millisecond
	longPause = 300 * time.Millisecond
	// many is the number of records in one cycle that doubles the next pause.
	many = 8
	// idle is the interval of cycles without a wake-up.
	idle = time.Second
)

// collector drains the rings and fanotify, in cycles: take the time, drain,
// sort what is older than that time, pair closed files with fanotify's
// descriptors, push events to the line. A younger record waits for the
// next cycle, because an older one may not have reached its ring yet.
type collector struct {
	kernel *kernel
	watch  *watch
	rings  []*ringbuf.Reader // drained in this order: a process's exec is in its ring before its files are in theirs
	epoll  int
	bell   int // eventfd: Flush and Close ring it
	line   *line
	hasher *hasher
	id     *identity
	losses *losses
	set    Settings

	// Only the collector's goroutine uses these fields.
	young   []record
	sample  ringbuf.Record
	waited  bool          // one more cycle was given to an incomplete argv
	rest    time.Duration // the next pause
	pending pending
	orphans []orphan // descriptors whose record was too young for their cycle
	procs   map[procKey]string
	cycle   uint64

	mu      sync.Mutex // guards steps and waiters
	steps   []step     // number-1 is the index
	waiters []chan struct{}
	ended   bool
}

type step struct{ name, root string }

func newCollector(k *kernel, w *watch) (*collector, error) {
	c := &collector{kernel: k, watch: w, line: newLine(), pending: make(pending), procs: make(map[procKey]string), epoll: -1, bell: -1}
	c.id = &identity{kernel: k}
	c.hasher = newHasher(c.line, c.id.open, c.id.state)
	c.losses = newLosses(k)
	if err := c.openRings(); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *collector) openRings() (err error) {
	if c.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("wait for the sensor's rings: %w", err)
	}
	if c.bell, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("wait for the sensor's rings: %w", err)
	}
	fds := []int{c.bell}
	for _, name := range []string{"file_ring", "flow_ring", "proc_ring"} {
		m := c.kernel.coll.Maps[name]
		r, err := ringbuf.NewReader(m)
		if err != nil {
			return fmt.Errorf("open the sensor's %s: %w", name, err)
		}
		r.SetDeadline(time.Unix(1, 0)) // never block in Read: wait waits for all rings together
		c.rings = append(c.rings, r)
		fds = append(fds, m.FD())
	}
	for _, fd := range fds {
		ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(fd)}
		if err := unix.EpollCtl(c.epoll, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
			return fmt.Errorf("wait for the sensor's rings: %w", err)
		}
	}
	return nil
}

func (c *collector) configure(set Settings, cookie uint64) error {
	c.set = set
	c.id.cookie = cookie
	if err := c.kernel.set("cookie", cookie); err != nil {
		return err
	}
	return c.kernel.set("read_over", set.ReadOver)
}

func (c *collector) close() error {
	var errs []error
	for _, r := range c.rings {
		errs = append(errs, r.Close())
	}
	for _, fd := range []int{c.epoll, c.bell} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	return errors.Join(errs...)
}

func (c *collector) addStep(name, root string) uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.steps = append(c.steps, step{name, root})
	return uint32(len(c.steps))
}

func (c *collector) step(number uint32) step {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := int(number) - 1; i >= 0 && i < len(c.steps) {
		return c.steps[i]
	}
	return step{}
}

// run is the collector's goroutine.
func (c *collector) run(ctx context.Context) {
	defer c.release()
	for ctx.Err() == nil {
		waiters := c.takeWaiters()
		records, err := c.collect(len(waiters) > 0)
		for err == nil && len(waiters) > 0 && c.unsettled() {
			time.Sleep(time.Millisecond)
			_, err = c.collect(true)
		}
		for _, w := range waiters {
			close(w)
		}
		if err != nil {
			c.line.fail(fmt.Errorf("sensor stopped: %w", err))
			return
		}
		c.wait(records)
	}
}

// unsettled reports whether an earlier event has not reached the line yet.
func (c *collector) unsettled() bool { return len(c.pending) > 0 || c.waited }

// wait waits while records accumulate, or, if there were none, for the first.
func (c *collector) wait(records int) {
	if c.rest = min(max(2*c.rest, pause), longPause); records < many {
		c.rest = pause
	}
	limit := c.rest
	if records == 0 {
		limit = idle
		if err := c.kernel.set("armed", uint32(1)); err != nil || c.available() {
			return
		}
	}
	var events [4]unix.EpollEvent
	n, _ := unix.EpollWait(c.epoll, events[:], int(limit.Milliseconds()))
	for _, e := range events[:max(n, 0)] {
		if int(e.Fd) == c.bell {
			var b [8]byte
			unix.Read(c.bell, b[:])
		}
	}
}

func (c *collector) available() bool {
	for _, r := range c.rings {
		if r.AvailableBytes() > 0 {
			return true
		}
	}
	return false
}

// kick starts a cycle immediately.
func (c *collector) kick() {
	one := [8]byte{1}
	unix.Write(c.bell, one[:])
}

// sync waits until the collector has pushed all earlier events.
func (c *collector) sync(ctx context.Context) error {
	done := make(chan struct{})
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return nil // the line reports why
	}
	c.waiters = append(c.waiters, done)
	c.mu.Unlock()
	c.kick()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *collector) takeWaiters() []chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.waiters
	c.waiters = nil
	return w
}

// release unblocks all waiters when the collector has ended.
func (c *collector) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	for _, w := range c.waiters {
		close(w)
	}
	c.waiters = nil
}

// collect is one cycle. It returns how many records there were, those that wait for the next included.
func (c *collector) collect(flush bool) (records int, err error) {
	c.cycle++
	now, wall := clocks()
	if err := c.drain(now); err != nil {
		return 0, err
	}
	old := c.settle(now)
	for _, r := range old {
		c.report(r, wall)
	}
	overflow, err := c.pair()
	if err != nil {
		return 0, err
	}
	for _, g := range c.losses.take(now, overflow, flush) {
		c.line.push(&item{event: &audit.Event{Kind: audit.KindGap, Gap: &g, Guest: guestTime(now, wall)}, ready: true})
	}
	return len(old) + len(c.young) + len(c.pending), nil
}

// drain reads each ring up to the first record that is younger than now.
func (c *collector) drain(now uint64) error {
	for _, ring := range c.rings {
		for {
			err := ring.ReadInto(&c.sample)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return fmt.Errorf("read a ring: %w", err)
			}
			r, err := decode(c.sample.RawSample)
			if err != nil {
				return fmt.Errorf("read a ring: %w", err)
			}
			c.young = append(c.young, r)
			if r.time > now {
				break
			}
		}
	}
	return nil
}

// settle takes what is not younger than now out of young, in order of time,
// with each exec's argv put together.
func (c *collector) settle(now uint64) []record {
	slices.SortStableFunc(c.young, func(a, b record) int { return cmp.Compare(a.time, b.time) })
	all := join(c.young)
	n := 0
	for n < len(all) && all[n].time <= now {
		if partial(all[n]) && !c.waited {
			c.waited = true // its other chunks may be just behind
			c.young = all[n:]
			return slices.Clone(all[:n])
		}
		n++
	}
	c.waited = false
	old := slices.Clone(all[:n])
	c.young = append(c.young[:0], all[n:]...)
	return old
}

// clocks reads the boot clock, and what to add to it for the wall clock, both in nanoseconds.
func clocks() (boot uint64, offset int64) {
	var b, w unix.Timespec
	unix.ClockGettime(unix.CLOCK_BOOTTIME, &b)
	unix.ClockGettime(unix.CLOCK_REALTIME, &w)
	return uint64(b.Nano()), w.Nano() - b.Nano()
}

func guestTime(boot uint64, offset int64) *audit.GuestTime {
	return &audit.GuestTime{Time: time.Unix(0, int64(boot)+offset).UTC()}
}
