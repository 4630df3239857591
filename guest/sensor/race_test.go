package sensor

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
)

// The race: threads open, map, write, truncate, link, rename and close a few files, and set
// their times, all at the same time. Each change makes the whole content another one, eight
// bytes or none, and is logged with the time before and after it; so is each close.
//
//	threads --> files <-- sensor --> events
//	   |                               |
//	   +--> log of changes, closes --> oracle

// change is a content that a file had from some moment between Begin and End on.
type change struct {
	File       int
	Begin, End int64 // boot clock, ns
	Content    []byte
}

// closure is a close(2) or munmap(2) that ends a way to write to a file.
type closure struct {
	File       int
	Begin, End int64
	Map        bool
}

type raceLog struct {
	Inodes   []uint64
	Changes  []change
	Closures []closure
}

type racer struct {
	mu    sync.Mutex // guards log and names
	log   raceLog
	names []string // of each file now

	last atomic.Uint64 // content
}

// raceTime is how long the race lasts.
var raceTime = flag.Duration("sensor.race", 10*time.Second, "how long the race of TestSensor lasts")

// mapped files are never truncated: a store beyond the end would be a fault.
const (
	raceFiles  = 6
	raceMapped = 3
)

func bootNow() int64 {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_BOOTTIME, &now)
	return now.Nano()
}

// change does something that gives file its content, and logs it.
func (r *racer) change(file int, content []byte, do func() error) error {
	c := change{File: file, Content: content, Begin: bootNow()}
	err := do()
	c.End = bootNow()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log.Changes = append(r.log.Changes, c)
	return err
}

func (r *racer) closing(file int, mapping bool, do func() error) error {
	c := closure{File: file, Map: mapping, Begin: bootNow()}
	err := do()
	c.End = bootNow()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log.Closures = append(r.log.Closures, c)
	return err
}

// open opens a file by its present name, which another thread can change meanwhile.
func (r *racer) open(file, flags int) (fd int, err error) {
	for {
		r.mu.Lock()
		name := r.names[file]
		r.mu.Unlock()
		if fd, err = unix.Open(name, flags, 0o644); err != unix.ENOENT {
			return fd, err
		}
	}
}

func (r *racer) next() []byte {
	return binary.NativeEndian.AppendUint64(nil, r.last.Add(1))
}

// race runs for args[0], with the seed args[1], and prints its log.
func race(args []string) error {
	for_, err := time.ParseDuration(args[0])
	if err != nil {
		return err
	}
	r := &racer{}
	for file := range raceFiles {
		name := fmt.Sprint("race", file)
		content := r.next()
		err := r.change(file, content, func() error {
			fd, err := unix.Open(name, unix.O_CREAT|unix.O_WRONLY, 0o644)
			if err != nil {
				return err
			}
			if _, err := unix.Write(fd, content); err != nil {
				return err
			}
			return r.closing(file, false, func() error { return unix.Close(fd) })
		})
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Stat(name, &st); err != nil {
			return err
		}
		r.names = append(r.names, name)
		r.log.Inodes = append(r.log.Inodes, st.Ino)
	}
	end := time.Now().Add(for_)
	errs := make(chan error, 5)
	for thread := range cap(errs) {
		go func() {
			random := rand.New(rand.NewPCG(uint64(thread), uint64(len(args[1]))+uint64(args[1][0])))
			var err error
			for err == nil && time.Now().Before(end) {
				err = r.act(random, random.IntN(raceFiles))
				time.Sleep(time.Duration(random.IntN(12)) * time.Millisecond)
			}
			errs <- err
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(r.log)
}

func (r *racer) act(random *rand.Rand, file int) error {
	switch pick := random.IntN(10); {
	case pick < 4:
		return r.write(random, file)
	case pick < 7 && file < raceMapped:
		return r.store(random, file)
	case pick < 7:
		return r.truncate(random, file)
	case pick < 8:
		return r.touch(file)
	}
	return r.rename(file)
}

// write opens, writes none to three times and closes, with pauses.
func (r *racer) write(random *rand.Rand, file int) error {
	flags := unix.O_WRONLY
	if file >= raceMapped && random.IntN(3) == 0 {
		flags |= unix.O_TRUNC
	}
	var fd int
	open := func() (err error) { fd, err = r.open(file, flags); return err }
	var err error
	if flags&unix.O_TRUNC != 0 {
		err = r.change(file, nil, open)
	} else {
		err = open()
	}
	for range random.IntN(4) {
		if err != nil {
			return err
		}
		content := r.next()
		err = r.change(file, content, func() error { _, err := unix.Pwrite(fd, content, 0); return err })
		linger(random)
	}
	if err != nil {
		return err
	}
	return r.closing(file, false, func() error { return unix.Close(fd) })
}

// store writes through a mapping that outlives its descriptor, as the case may be into a page that is dirty already.
func (r *racer) store(random *rand.Rand, file int) error {
	fd, err := r.open(file, unix.O_RDWR)
	if err != nil {
		return err
	}
	mem, err := unix.Mmap(fd, 0, 8, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	word := (*uint64)(unsafe.Pointer(&mem[0]))
	store := func() {
		content := r.next()
		r.change(file, content, func() error { atomic.StoreUint64(word, binary.NativeEndian.Uint64(content)); return nil })
		linger(random)
	}
	for range random.IntN(2) {
		store()
	}
	if err := r.closing(file, false, func() error { return unix.Close(fd) }); err != nil {
		return err
	}
	for range random.IntN(3) {
		store()
	}
	return r.closing(file, true, func() error { return unix.Munmap(mem) })
}

// truncate empties a file without opening it for writing.
func (r *racer) truncate(random *rand.Rand, file int) error {
	return r.closing(file, false, func() error {
		return r.change(file, nil, func() error {
			if random.IntN(2) == 0 {
				r.mu.Lock() // its name stays
				name := r.names[file]
				err := unix.Truncate(name, 0)
				r.mu.Unlock()
				return err
			}
			fd, err := r.open(file, unix.O_RDONLY|unix.O_TRUNC)
			if err != nil {
				return err
			}
			return unix.Close(fd)
		})
	})
}

func (r *racer) touch(file int) error {
	fd, err := r.open(file, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprint("/proc/self/fd/", fd), make([]unix.Timespec, 2), 0)
}

// rename gives a file another name, by rename(2) or by a link.
func (r *racer) rename(file int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	old, name := r.names[file], fmt.Sprintf("race%d-%d", file, r.last.Add(1))
	r.names[file] = name
	if r.last.Load()%2 == 0 {
		return unix.Rename(old, name)
	}
	if err := unix.Link(old, name); err != nil {
		return err
	}
	return unix.Unlink(old)
}

func linger(random *rand.Rand) {
	if random.IntN(3) == 0 {
		time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
	}
}

// testRace compares every digest with the contents that the file can have had when it was
// closed, and every close with the events.
func testRace(t *testing.T, c *cell) {
	var out bytes.Buffer
	cmd := c.command("race", raceTime.String(), fmt.Sprint(time.Now().UnixNano()%7))
	cmd.Stdout = &out
	must(t, cmd.Run())
	t.Logf("the race is over: %d bytes of its log", out.Len())
	events := c.flush()
	t.Logf("%d events", len(events))
	noGaps(t, events)
	var log raceLog
	must(t, json.Unmarshal(out.Bytes(), &log))
	contents := log.contentsOf()
	_, offset := clocks()
	var hashed, total int
	closes := log.closes()
	for _, e := range events {
		if e.File == nil || e.File.Op != audit.FileWrite {
			continue
		}
		total++
		at := e.Guest.Time.UnixNano() - offset
		cl := closes.match(e.File.Inode, at)
		if cl == nil {
			t.Errorf("no close belongs to %+v", *e.File)
			continue
		}
		if (e.File.SHA256 == "") == (e.File.Unhashed == "") {
			t.Errorf("neither digest nor reason, or both: %+v", *e.File)
		}
		if e.File.SHA256 != "" {
			hashed++
			if !contents[cl.File].possible(cl, e.File.SHA256) {
				t.Errorf("digest %s is of no content that the file can have had: %+v", e.File.SHA256, *cl)
			}
		}
	}
	for _, list := range closes {
		for _, cl := range list {
			if !cl.taken {
				t.Errorf("no event for %+v", cl.closure)
			}
		}
	}
	t.Logf("%d changes, %d closes, %d events, %d with a digest", len(log.Changes), len(log.Closures), total, hashed)
	if hashed < total/10 {
		t.Errorf("%d of %d events have a digest", hashed, total)
	}
}

// slack is for two clocks that are read one after the other.
const slack = int64(2 * time.Millisecond)

// closes has the closes of each inode in the order of their beginnings, and which of them have an event.
type closes map[string][]*takenClose

type takenClose struct {
	closure
	taken bool
}

func (l *raceLog) closes() closes {
	by := closes{}
	for _, c := range l.Closures {
		inode := fmt.Sprint(l.Inodes[c.File])
		by[inode] = append(by[inode], &takenClose{closure: c})
	}
	for _, list := range by {
		slices.SortFunc(list, func(a, b *takenClose) int { return cmp.Compare(a.Begin, b.Begin) })
	}
	return by
}

// match finds the close that an event is of and that no other event took.
func (by closes) match(inode string, at int64) *closure {
	for len(by[inode]) > 0 && by[inode][0].taken {
		by[inode] = by[inode][1:]
	}
	for _, c := range by[inode] {
		if c.Begin-slack > at {
			break
		}
		if !c.taken && at <= c.End+slack {
			c.taken = true
			return &c.closure
		}
	}
	return nil
}

// contents are what a file contained, by digest.
type contents map[string][]stay

// stay is of a content that was the file's from some moment after from, and was another's for sure at gone.
type stay struct{ from, gone int64 }

// contentsOf returns the contents of each file. A content is gone for sure when a change that began after it has ended.
func (l *raceLog) contentsOf() []contents {
	changes := make([][]change, raceFiles)
	for _, c := range l.Changes {
		changes[c.File] = append(changes[c.File], c)
	}
	all := make([]contents, raceFiles)
	for file, list := range changes {
		all[file] = contents{}
		slices.SortFunc(list, func(a, b change) int { return cmp.Compare(a.Begin, b.Begin) })
		ended := make([]int64, len(list)+1) // the first end of the changes from here on
		ended[len(list)] = math.MaxInt64
		for i := len(list) - 1; i >= 0; i-- {
			ended[i] = min(list[i].End, ended[i+1])
		}
		for _, c := range list {
			later, _ := slices.BinarySearchFunc(list, c.End+1, func(a change, at int64) int { return cmp.Compare(a.Begin, at) })
			sum := sumOf(string(c.Content))
			all[file][sum] = append(all[file][sum], stay{c.Begin, ended[later]})
		}
	}
	return all
}

// possible reports whether a content with this digest can have been the file's during the close.
func (c contents) possible(cl *closure, sum string) bool {
	return slices.ContainsFunc(c[sum], func(s stay) bool { return s.from <= cl.End+slack && s.gone >= cl.Begin-slack })
}
