package sensor

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/guest/erase"
)

const (
	// smallFile parts the two hashing workers: a large file never delays small ones.
	smallFile = 1 << 20
	cacheSize = 4096
	// tick is longer than the step of the clock that a kernel stamps ctime with
	// (10 ms at 100 Hz). Within one step two contents can have one ctime, so it is not cached yet.
	tick = 20 * time.Millisecond
)

// What an event says in place of a digest.
const (
	unhashedChanged = "changed after it was closed"
	unhashedGone    = "gone before it could be hashed"
	unhashedRunning = "changed while it was hashed"
)

var emptySum = hex.EncodeToString(sha256.New().Sum(nil))

// stamp is a time as inodes keep it.
type stamp struct{ sec, nsec int64 }

// version names a file's content as far as the kernel lets one tell.
type version struct {
	dev, ino     uint64
	size         int64
	mtime, ctime stamp
}

func versionOf(st *unix.Stat_t) version {
	return version{
		dev: uint64(st.Dev), ino: st.Ino, size: st.Size,
		mtime: stamp{int64(st.Mtim.Sec), int64(st.Mtim.Nsec)},
		ctime: stamp{int64(st.Ctim.Sec), int64(st.Ctim.Nsec)},
	}
}

// closing is a closed file whose content is to be hashed.
type closing struct {
	item   *item
	inode  uint64 // kernel address, compared only
	at     uint64 // boot clock
	size   int64
	mtime  stamp
	loose  bool // written through a mapping until now: mtime says nothing
	shared bool // others could still write it without opening it again
	memory bool // on tmpfs, where a mapping leaves no trace in ctime: no cache
	pid    uint32
	root   string
	path   string
	cycle  uint64
}

// stillIs says whether the content that was read is the one at close. It is
// if nobody opened the file for writing since then, or had it open. Where the
// programs do not know that, mtime must not have moved; ctime can, because
// renaming and linking move it.
func (c *closing) stillIs(v version, touched uint64) bool {
	if touched > c.at {
		return false
	}
	sole := touched > 0 && !c.shared
	return c.loose || c.size == v.size && (sole || c.mtime == v.mtime)
}

// job is one content to be read: through a descriptor that fanotify gave, or by path.
type job struct {
	file  *os.File // nil: by path
	wants []*closing
}

// hasher reads files and completes their events. Its two goroutines, one for
// small files and one for large ones, are owned by the Sensor.
type hasher struct {
	line    *line
	open    func(*closing) (*os.File, error)
	touched func(inode uint64) uint64 // boot clock; when it was last opened for writing
	cache   *cache
	wg      sync.WaitGroup

	mu     sync.Mutex
	wake   *sync.Cond
	small  []job // bounded: each job has an item in the line, whose size is bounded
	large  []job
	held   int // descriptors in both queues
	closed bool
}

func newHasher(l *line, open func(*closing) (*os.File, error), touched func(uint64) uint64) *hasher {
	h := &hasher{line: l, open: open, touched: touched, cache: newCache(cacheSize)}
	h.wake = sync.NewCond(&h.mu)
	return h
}

func (h *hasher) start() {
	h.wg.Go(func() { h.work(&h.small) })
	h.wg.Go(func() { h.work(&h.large) })
}

func (h *hasher) add(j job) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if j.file != nil {
		h.held++
	}
	if j.wants[0].size > smallFile {
		h.large = append(h.large, j)
	} else {
		h.small = append(h.small, j)
	}
	h.wake.Broadcast()
}

// holding is the number of descriptors that wait to be hashed.
func (h *hasher) holding() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held
}

func (h *hasher) close() {
	h.mu.Lock()
	h.closed = true
	h.wake.Broadcast()
	h.mu.Unlock()
	h.wg.Wait()
}

func (h *hasher) work(queue *[]job) {
	for {
		h.mu.Lock()
		for len(*queue) == 0 && !h.closed {
			h.wake.Wait()
		}
		if len(*queue) == 0 {
			h.mu.Unlock()
			return
		}
		j := (*queue)[0]
		(*queue)[0] = job{}
		*queue = (*queue)[1:]
		h.mu.Unlock()
		h.do(j)
	}
}

func (h *hasher) do(j job) {
	f := j.file
	if f == nil {
		var err error
		if f, err = h.open(j.wants[0]); err != nil {
			h.finish(j, version{}, 0, "", unhashedGone)
			return
		}
	}
	v, sum, err := h.sum(f, j)
	erase.Stack()                          // and the registers: the content may be a secret's
	touched := h.touched(j.wants[0].inode) // while f keeps the inode's address from being used again
	f.Close()
	if j.file != nil {
		h.mu.Lock()
		h.held--
		h.mu.Unlock()
	}
	switch {
	case errors.Is(err, errChanging):
		h.finish(j, v, touched, "", unhashedRunning)
	case err != nil:
		h.finish(j, v, touched, "", "could not be read: "+unix.ErrnoName(errno(err)))
	default:
		h.finish(j, v, touched, sum, "")
	}
}

// finish completes the events of a job: those whose file was closed with the content that was read.
func (h *hasher) finish(j job, v version, touched uint64, sum, unhashed string) {
	for _, c := range j.wants {
		if sum != "" && !c.stillIs(v, touched) {
			h.line.done(c.item, "", unhashedChanged)
			continue
		}
		h.line.done(c.item, sum, unhashed)
	}
}

var errChanging = errors.New("file is changing")

func (h *hasher) sum(f *os.File, j job) (version, string, error) {
	var before, after unix.Stat_t
	begun := time.Now()
	if err := unix.Fstat(int(f.Fd()), &before); err != nil {
		return version{}, "", err
	}
	v := versionOf(&before)
	cached := !j.wants[0].loose && !j.wants[0].memory
	if sum, ok := h.cache.get(v); ok && cached {
		return v, sum, nil
	}
	hash := sha256.New()
	buf := make([]byte, min(max(v.size, 512), 64<<10))
	defer erase.Object(hash) // which keeps the content's last block
	defer erase.Bytes(buf)
	if _, err := io.CopyBuffer(hash, onlyReader{f}, buf); err != nil {
		return v, "", err
	}
	if err := unix.Fstat(int(f.Fd()), &after); err != nil {
		return v, "", err
	}
	if now := versionOf(&after); now.size != v.size || now.mtime != v.mtime {
		return v, "", errChanging
	}
	sum := hex.EncodeToString(hash.Sum(nil))
	if cached && begun.Sub(time.Unix(v.ctime.sec, v.ctime.nsec)) > tick {
		h.cache.put(v, sum)
	}
	return v, sum, nil
}

// prime puts the digests of the large files below root into the cache.
func (h *hasher) prime(root string, over int64) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && isMountPoint(path) {
			return fs.SkipDir
		}
		if info, err := d.Info(); err != nil || !info.Mode().IsRegular() || info.Size() <= over {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		if _, _, err := h.sum(f, job{wants: []*closing{{}}}); err != nil {
			return fmt.Errorf("hash %s: %w", path, err)
		}
		return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	})
}

func isMountPoint(dir string) bool {
	var here, above unix.Stat_t
	return unix.Lstat(dir, &here) != nil || unix.Lstat(filepath.Dir(dir), &above) != nil || here.Dev != above.Dev
}

// onlyReader keeps io.CopyBuffer from choosing another way than its buffer.
type onlyReader struct{ io.Reader }

func errno(err error) unix.Errno {
	var e unix.Errno
	errors.As(err, &e)
	return e
}

// cache remembers digests of contents; the oldest gives way. Used by both workers.
type cache struct {
	mu   sync.Mutex
	sums map[version]string
	ring []version
	next int
}

func newCache(size int) *cache {
	return &cache{sums: make(map[version]string), ring: make([]version, size)}
}

func (c *cache) get(v version) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum, ok := c.sums[v]
	return sum, ok
}

func (c *cache) put(v version, sum string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.sums[v]; !ok {
		delete(c.sums, c.ring[c.next])
		c.ring[c.next] = v
		c.next = (c.next + 1) % len(c.ring)
	}
	c.sums[v] = sum
}
