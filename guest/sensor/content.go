package sensor

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/guest/erase"
)

const (
	// turnBytes is how much of a content one turn hashes.
	turnBytes = 1 << 20
	cacheSize = 4096
)

var (
	emptySum = hex.EncodeToString(sha256.New().Sum(nil))
	zeros    [64 << 10]byte
)

// content is a file's content during hashing. Holes are hashed without reading them.
type content struct {
	hash hash.Hash
	buf  []byte
	size int64 // at close: bytes after it are not read
	at   int64 // the offset up to which it is hashed
	data int64 // where the data begin that at is in, or that follow the hole that at is in
	hole int64 // where they end
}

func newContent(size int64) *content {
	c := &content{hash: sha256.New(), size: size, buf: make([]byte, min(size, int64(len(zeros))))}
	if size <= int64(len(zeros)) {
		c.hole = size // reading a hole costs less than looking for it
	}
	return c
}

// read hashes the next turnBytes. more reports that there may be others.
func (c *content) read(f *os.File) (more bool, err error) {
	for end := min(c.at+turnBytes, c.size); c.at < end; {
		if c.at >= c.hole {
			if err := c.seek(f); err != nil {
				return false, err
			}
		}
		if c.at < c.data {
			n, _ := c.hash.Write(zeros[:min(c.data-c.at, c.size-c.at, int64(len(zeros)))])
			c.at += int64(n)
			continue
		}
		n, err := f.ReadAt(c.buf[:min(c.size-c.at, int64(len(c.buf)))], c.at)
		c.hash.Write(c.buf[:n])
		c.at += int64(n)
		if errors.Is(err, io.EOF) {
			return false, nil // it was truncated: its generation has changed, too
		}
		if err != nil {
			return false, err
		}
	}
	return c.at < c.size, nil
}

// seek finds the data that at is in, or the next, and their end.
func (c *content) seek(f *os.File) error {
	data, err := unix.Seek(int(f.Fd()), c.at, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) { // none up to the end, which may be at
		if data, err = unix.Seek(int(f.Fd()), 0, io.SeekEnd); err != nil {
			return err
		}
		c.data, c.hole = max(data, c.at), max(data, c.at)
		return nil
	}
	if err != nil {
		return err
	}
	hole, err := unix.Seek(int(f.Fd()), data, unix.SEEK_HOLE)
	c.data, c.hole = data, hole
	return err
}

// sum returns the digest, in hex, after all has been read.
func (c *content) sum() string { return hex.EncodeToString(c.hash.Sum(nil)) }

// erase zeroes the bytes that were read from the file.
func (c *content) erase() {
	erase.Object(c.hash) // which keeps the content's last block
	erase.Bytes(c.buf)
}

// key names a content: in a file system that is never written by the file, elsewhere by the
// inode's place in memory, of which no two have one generation.
type key struct {
	dev        uint32
	ino        uint64
	inode      uint64
	generation uint64
}

func keyOf(s state) key {
	if s.ContentFs == unix.EROFS_SUPER_MAGIC_V1 {
		return key{dev: s.ContentDev, ino: s.ContentIno}
	}
	return key{s.Dev, s.Ino, s.Inode, s.Generation}
}

// cache remembers digests of contents; it removes the oldest first. It is safe for concurrent use.
type cache struct {
	mu   sync.Mutex
	sums map[key]string
	ring []key
	next int
}

func newCache(size int) *cache {
	return &cache{sums: make(map[key]string), ring: make([]key, size)}
}

func (c *cache) get(k key) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum, ok := c.sums[k]
	return sum, ok
}

func (c *cache) put(k key, sum string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.sums[k]; !ok {
		delete(c.sums, c.ring[c.next])
		c.ring[c.next] = k
		c.next = (c.next + 1) % len(c.ring)
	}
	c.sums[k] = sum
}
