package sensor

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// maxHeld bounds the descriptors of closed files that wait to be hashed. At
	// the bound fanotify's own queue grows (16,384 events); beyond that, files
	// are looked up by path, and have no hash when that fails.
	maxHeld     = 512
	watchBuffer = 4096
	eventSize   = 24
	noFD        = -1
)

// watch is a fanotify group: of each file that is closed after writing it
// keeps the object open for us, even if its name was removed.
type watch struct {
	fd  int
	buf []byte

	mu     sync.Mutex // guards marked
	marked map[string]bool
}

func newWatch() (*watch, error) {
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK,
		unix.O_RDONLY|unix.O_LARGEFILE|unix.O_CLOEXEC|unix.O_NOATIME)
	if err != nil {
		return nil, fmt.Errorf("start fanotify (needs CAP_SYS_ADMIN and a kernel with FANOTIFY): %w", err)
	}
	return &watch{fd: fd, buf: make([]byte, watchBuffer), marked: map[string]bool{}}, nil
}

func (w *watch) close() error { return unix.Close(w.fd) }

// mark watches the file systems at and below root. In those that cannot be
// watched, files are looked up by path.
func (w *watch) mark(root string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.marked[root] {
		return nil
	}
	const flags = unix.FAN_MARK_ADD | unix.FAN_MARK_FILESYSTEM
	if err := unix.FanotifyMark(w.fd, flags, unix.FAN_CLOSE_WRITE, unix.AT_FDCWD, root); err != nil {
		return fmt.Errorf("watch the file system at %s: %w", root, err)
	}
	below, err := mountsBelow(root)
	if err != nil {
		return err
	}
	for _, m := range below {
		unix.FanotifyMark(w.fd, flags, unix.FAN_CLOSE_WRITE, unix.AT_FDCWD, m)
	}
	w.marked[root] = true
	return nil
}

// read returns closed files, at most about room of them. more
// reports that there may be others; overflow that the kernel's queue was full.
func (w *watch) read(room int, each func(fd int)) (more, overflow bool, err error) {
	for room > 0 {
		n, err := unix.Read(w.fd, w.buf)
		if errors.Is(err, unix.EAGAIN) {
			return false, overflow, nil
		}
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return false, overflow, fmt.Errorf("read fanotify: %w", err)
		}
		got, lost := events(w.buf[:n], each)
		room -= got
		overflow = overflow || lost
	}
	return true, overflow, nil
}

// events walks the events of one read; fanotify(7) describes their layout.
func events(b []byte, each func(fd int)) (n int, overflow bool) {
	for len(b) >= eventSize {
		size := int(binary.NativeEndian.Uint32(b))
		if size < eventSize || size > len(b) {
			return n, overflow
		}
		if binary.NativeEndian.Uint64(b[8:])&unix.FAN_Q_OVERFLOW != 0 {
			overflow = true
		}
		if fd := int(int32(binary.NativeEndian.Uint32(b[16:]))); fd > noFD {
			each(fd)
		}
		n++
		b = b[size:]
	}
	return n, overflow
}

// mountsBelow lists the mount points below root that can hold content.
func mountsBelow(root string) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts below %s: %w", root, err)
	}
	defer f.Close()
	prefix := strings.TrimSuffix(root, "/") + "/"
	var found []string
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) < 10 || !strings.HasPrefix(fields[4], prefix) {
			continue
		}
		kind := fields[len(fields)-3]
		if kind == "tmpfs" || kind == "ext4" || kind == "overlay" || kind == "xfs" {
			found = append(found, fields[4])
		}
	}
	return found, nil
}
