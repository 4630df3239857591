package sensor

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// smallFile parts the two hashing workers: a large file never delays small ones.
	smallFile = 1 << 20
	cacheSize = 4096
	// tick is longer than the step of the clock that a kernel stamps ctime with
	// (10 ms at 100 Hz). Within one step two contents can have one ctime.
	tick = 20 * time.Millisecond
)

// What an event says in place of a digest.
const (
	unhashedChanged = "changed after it was closed"
	unhashedGone    = "gone before it could be hashed"
	unhashedRunning = "changed while it was hashed"
)

var emptySum = hex.EncodeToString(sha256.New().Sum(nil))

// version names a file's content as far as the kernel lets one tell.
type version struct {
	dev, ino  uint64
	size      int64
	ctimeSec  int64
	ctimeNsec int64
}

func (v version) sameContent(o version) bool {
	return v.size == o.size && v.ctimeSec == o.ctimeSec && v.ctimeNsec == o.ctimeNsec
}

func versionOf(st *unix.Stat_t) version {
	return version{uint64(st.Dev), st.Ino, st.Size, int64(st.Ctim.Sec), int64(st.Ctim.Nsec)}
}

// closing is a closed file whose content is to be hashed.
type closing struct {
	item   *item
	inode  uint64 // kernel address, compared only
	closed version
	// loose files can change without a trace in ctime: no cache, no comparison with closed.
	loose  bool
	memory bool
	pid    uint32
	root   string
	path   string
	cycle  uint64
}

// job is one content to be read: through a descriptor that fanotify gave, or by path.
type job struct {
	file  *os.File // nil: by path
	wants []*closing
}

// hasher reads files and completes their events. Its two goroutines, one for
// small files and one for large ones, are owned by the Sensor.
type hasher struct {
	line  *line
	open  func(*closing) (*os.File, error)
	cache *cache
	wg    sync.WaitGroup

	mu     sync.Mutex
	wake   *sync.Cond
	small  []job // bounded: each job has an item in the line, whose size is bounded
	large  []job
	held   int // descriptors in both queues
	closed bool
}

func newHasher(l *line, open func(*closing) (*os.File, error)) *hasher {
	h := &hasher{line: l, open: open, cache: newCache(cacheSize)}
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
	if j.wants[0].closed.size > smallFile {
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
			h.finish(j, version{}, "", unhashedGone)
			return
		}
	}
	v, sum, err := h.sum(f, j)
	f.Close()
	if j.file != nil {
		h.mu.Lock()
		h.held--
		h.mu.Unlock()
	}
	switch {
	case errors.Is(err, errChanging):
		h.finish(j, v, "", unhashedRunning)
	case err != nil:
		h.finish(j, v, "", "could not be read: "+unix.ErrnoName(errno(err)))
	default:
		h.finish(j, v, sum, "")
	}
}

// finish completes the events of a job: those whose file was closed with the content that was read.
func (h *hasher) finish(j job, v version, sum, unhashed string) {
	for _, c := range j.wants {
		if sum != "" && !c.loose && !c.closed.sameContent(v) {
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
	if _, err := io.CopyBuffer(hash, onlyReader{f}, buf); err != nil {
		return v, "", err
	}
	if err := unix.Fstat(int(f.Fd()), &after); err != nil {
		return v, "", err
	}
	if !v.sameContent(versionOf(&after)) {
		return v, "", errChanging
	}
	sum := hex.EncodeToString(hash.Sum(nil))
	if cached && begun.Sub(time.Unix(v.ctimeSec, v.ctimeNsec)) > tick {
		h.cache.put(v, sum)
	}
	return v, sum, nil
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

// identity opens files by path and makes sure that they are the very inode a record named.
type identity struct {
	kernel *kernel
	cookie uint64

	mu sync.Mutex // guards the kernel's answer, "identified"
}

// inode is the kernel's address of the inode behind a descriptor.
func (id *identity) inode(fd int) (uint64, error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	answer := id.kernel.coll.Variables["identified"]
	if err := answer.Set(uint64(0)); err != nil {
		return 0, err
	}
	if _, _, e := unix.Syscall(unix.SYS_FCNTL, uintptr(fd), unix.F_GETFL, uintptr(id.cookie)); e != 0 {
		return 0, e
	}
	var inode uint64
	err := answer.Get(&inode)
	return inode, err
}

// open finds a closed file again by its path, as its process or its step sees it.
func (id *identity) open(c *closing) (*os.File, error) {
	for _, root := range []string{fmt.Sprintf("/proc/%d/root", c.pid), c.root} {
		if root == "" {
			continue
		}
		if f, err := id.openAt(root, c); err == nil {
			return f, nil
		}
	}
	return nil, os.ErrNotExist
}

func (id *identity) openAt(root string, c *closing) (*os.File, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	fd, err := unix.Openat2(dir, c.path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if inode, err := id.inode(fd); err != nil || inode != c.inode {
		return nil, os.ErrNotExist
	}
	// The name is settled and the object a regular file: opening it cannot block or act.
	return os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDONLY|unix.O_NOATIME, 0)
}
