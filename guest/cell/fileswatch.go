package cell

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/guest/channel"
)

// The bounds of a watcher.
const (
	maxWatched  = 4096     // directories
	maxChanges  = 512      // that are sent together
	watchBuffer = 64 << 10 // bytes of the kernel's events that are read at a time
	// maxWatchedName bounds the name of a directory, in bytes: the host takes 4096 with what is in it.
	maxWatchedName = maxName - 256
	// moveTime is how long the second half of a move may come after the first, in milliseconds.
	moveTime = 50
	// goneTime is how often the directory is looked for while there are no events, in milliseconds, and goneBusy is how often while there
	// are: the kernel does not report the end of a directory that is open, nor the moves of those above it.
	goneTime = 1000
	goneBusy = 10 * time.Second
)

const watchMask = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK

// watcher reports the changes in a directory. While the host does not take them, the kernel queues them; when its queue is full, the watcher
// looks at the directory again, and reports that changes were lost.
//
//	begin: scan --ready--> follow --queue full--> scan --lost--> follow --the host has left, the directory is gone--> ended
type watcher struct {
	*files
	top     int // descriptor of the directory
	events  int // of inotify
	wake    int // an eventfd: the host has left, or the session ends
	dirs    map[int32]string
	moved   *halfMove // nil: there is none
	looked  time.Time // when the directory was looked for
	buf     []byte    // of the kernel's events
	changes []channel.FileChange
}

// halfMove is the first half of a move. Its second half is missing if the new name is in no directory that is watched. The move of a directory
// in which others are watched is a removal and a creation instead: at its new name there can be another directory by now.
type halfMove struct {
	cookie    uint32
	name      string
	directory bool
}

var errDirectoryGone = errors.New("the path does not lead to the directory any more")

func (f *files) watch(name string) (err error) {
	w := &watcher{files: f, events: -1, buf: make([]byte, watchBuffer)}
	if w.top, err = f.lookup(name, unix.O_RDONLY|unix.O_DIRECTORY); err != nil {
		return err
	}
	defer unix.Close(w.top)
	if _, err := f.describe(name, w.top); err != nil {
		return err
	}
	if w.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return err
	}
	defer unix.Close(w.wake)
	over := make(chan struct{})
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer close(over)
	waiting.Go(func() {
		select {
		case <-f.host.Left:
		case <-f.ctx.Done():
		case <-over:
			return
		}
		unix.Write(w.wake, binary.NativeEndian.AppendUint64(nil, 1))
	})
	defer func() { unix.Close(w.events) }()
	err = w.begin(channel.ChangeReady)
	for err == nil {
		err = w.follow()
	}
	if errors.Is(err, errDirectoryGone) {
		w.add(channel.FileChange{Op: channel.ChangeRemove, Path: ".", Directory: true})
		return w.send()
	}
	return err
}

// begin watches all directories, and then reports op.
func (w *watcher) begin(op channel.ChangeOp) error {
	unix.Close(w.events)
	var err error
	if w.events, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err == unix.EMFILE {
		return refused(channel.FileWatches)
	} else if err != nil {
		return err
	}
	w.dirs, w.moved = map[int32]string{}, nil
	if err := w.scan(w.top, "", false, 0); err != nil {
		return err
	}
	w.add(channel.FileChange{Op: op})
	return errors.Join(w.send(), w.gone())
}

// gone returns an error unless the path of the request still leads to the directory.
func (w *watcher) gone() error {
	w.looked = time.Now()
	fd, err := w.lookup(string(w.request.Path), unix.O_PATH|unix.O_DIRECTORY)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return errDirectoryGone
	case err != nil:
		return err
	}
	defer unix.Close(fd)
	var there, top unix.Stat_t
	if err := errors.Join(unix.Fstat(fd, &there), unix.Fstat(w.top, &top)); err != nil {
		return err
	}
	if there.Dev != top.Dev || there.Ino != top.Ino {
		return errDirectoryGone
	}
	return nil
}

// scan watches a directory, and with request.Recursive those below it. report is set for one that is new: what is in it may have come before
// the watch did.
func (w *watcher) scan(fd int, name string, report bool, depth int) error {
	wd, err := unix.InotifyAddWatch(w.events, fmt.Sprintf("/proc/self/fd/%d", fd), watchMask)
	switch {
	case err == unix.ENOSPC || err == nil && len(w.dirs) >= maxWatched:
		return refused(channel.FileWatches)
	case depth > channel.MaxDepth || len(name) > maxWatchedName:
		return refused(channel.FileTooDeep)
	case err != nil:
		return err
	}
	w.dirs[int32(wd)] = name
	if !report && !w.request.Recursive {
		return nil
	}
	again, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) // with an offset of its own
	if err != nil {
		return err
	}
	dir := fileOf(again, name)
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(1024)
		for _, n := range names {
			if err := w.found(again, n, path.Join(name, n), report, depth); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = w.ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

// found takes an entry of a directory that is scanned.
func (w *watcher) found(dir int, base, name string, report bool, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return ignoreGone(err)
	}
	directory := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if report {
		if err := w.report(channel.FileChange{Op: channel.ChangeCreate, Path: audit.Text(name), Directory: directory}); err != nil {
			return err
		}
	}
	if !directory || !w.request.Recursive {
		return nil
	}
	fd, err := unix.Openat(dir, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return ignoreGone(err)
	}
	defer unix.Close(fd)
	if err := w.allowed(fd); err != nil {
		return ignoreGone(err)
	}
	return ignoreGone(w.scan(fd, name, report, depth+1))
}

// ignoreGone returns nil for errors of a name that has vanished or become another one, and of a directory that the user may not read or that
// is not the session's data: these are not watched.
func ignoreGone(err error) error {
	var known refused
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.EACCES):
		return nil
	case errors.As(err, &known) && (known == refused(channel.FileKernel) || known == refused(channel.FileSecret)):
		return nil
	}
	return err
}

// follow waits for events and reports them.
func (w *watcher) follow() error {
	wait := goneTime
	if w.moved != nil {
		wait = moveTime
	}
	ready := []unix.PollFd{{Fd: int32(w.events), Events: unix.POLLIN}, {Fd: int32(w.wake), Events: unix.POLLIN}}
	if _, err := unix.Poll(ready, wait); err != nil && err != unix.EINTR {
		return err
	}
	if ready[1].Revents != 0 {
		return errors.New("the caller has left, or the session ends")
	}
	n, err := unix.Read(w.events, w.buf)
	idle := err == unix.EAGAIN || err == unix.EINTR
	if err != nil && !idle {
		return err
	}
	lost, err := w.take(w.buf[:max(n, 0)])
	if lost {
		return w.begin(channel.ChangeLost)
	}
	if err == nil && idle {
		err = w.finishMove()
	}
	if err == nil && (idle || time.Since(w.looked) > goneBusy) {
		err = w.gone()
	}
	return errors.Join(w.send(), err)
}

// take takes events of the kernel, and reports whether it has lost some.
func (w *watcher) take(buf []byte) (lost bool, err error) {
	for len(buf) >= unix.SizeofInotifyEvent {
		wd, mask, cookie := int32(binary.NativeEndian.Uint32(buf)), binary.NativeEndian.Uint32(buf[4:]), binary.NativeEndian.Uint32(buf[8:])
		size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(buf[12:]))
		name, _, _ := bytes.Cut(buf[unix.SizeofInotifyEvent:size], []byte{0})
		buf = buf[size:]
		if mask&unix.IN_Q_OVERFLOW != 0 {
			return true, nil
		}
		if err := w.event(wd, mask, cookie, string(name)); err != nil {
			return false, err
		}
	}
	return false, nil
}

// event takes an event of the kernel.
func (w *watcher) event(wd int32, mask, cookie uint32, base string) error {
	second := mask&unix.IN_MOVED_TO != 0 && w.moved != nil && w.moved.cookie == cookie
	if !second {
		if err := w.finishMove(); err != nil {
			return err
		}
	}
	dir, known := w.dirs[wd]
	switch {
	case !known:
		return nil
	case mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_UNMOUNT) != 0 && dir == "":
		return errDirectoryGone
	case mask&unix.IN_IGNORED != 0:
		delete(w.dirs, wd)
		return nil
	case base == "":
		return nil
	}
	name, directory := path.Join(dir, base), mask&unix.IN_ISDIR != 0
	if second {
		from := w.moved.name
		w.moved = nil
		return w.report(channel.FileChange{Op: channel.ChangeMove, Path: audit.Text(from), To: audit.Text(name), Directory: directory})
	}
	change := channel.FileChange{Path: audit.Text(name), Directory: directory}
	switch {
	case mask&unix.IN_MOVED_FROM != 0 && !(directory && w.request.Recursive):
		w.moved = &halfMove{cookie, name, directory}
		return nil
	case mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0:
		change.Op = channel.ChangeRemove
		if directory {
			w.forget(name)
		}
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		change.Op = channel.ChangeCreate
	default:
		change.Op = channel.ChangeWrite
	}
	if err := w.report(change); err != nil || change.Op != channel.ChangeCreate || !directory || !w.request.Recursive {
		return err
	}
	return w.arrived(name)
}

// finishMove reports a move out of the directories that are watched.
func (w *watcher) finishMove() error {
	m := w.moved
	if m == nil {
		return nil
	}
	w.moved = nil
	return w.report(channel.FileChange{Op: channel.ChangeRemove, Path: audit.Text(m.name), Directory: m.directory})
}

// forget ends the watches of a directory that has gone, and of those below it.
func (w *watcher) forget(name string) {
	for wd, dir := range w.dirs {
		if below, ok := strings.CutPrefix(dir, name); ok && (below == "" || below[0] == '/') {
			unix.InotifyRmWatch(w.events, uint32(wd)) // it fails if the kernel has ended it already
			delete(w.dirs, wd)
		}
	}
}

// arrived watches a new directory.
func (w *watcher) arrived(name string) error {
	fd, err := unix.Dup(w.top)
	for part := range strings.SplitSeq(name, "/") {
		if err != nil {
			break
		}
		var next int
		next, err = unix.Openat(fd, part, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		unix.Close(fd)
		fd = next
	}
	if err != nil {
		return ignoreGone(err)
	}
	defer unix.Close(fd)
	if err := w.allowed(fd); err != nil {
		return ignoreGone(err)
	}
	return ignoreGone(w.scan(fd, name, true, strings.Count(name, "/")+1))
}

func (w *watcher) add(c channel.FileChange) {
	if n := len(w.changes); n > 0 && c.Op == channel.ChangeWrite && w.changes[n-1] == c {
		return // the same again
	}
	w.changes = append(w.changes, c)
}

// report adds a change, and sends what there is if it is much.
func (w *watcher) report(c channel.FileChange) error {
	if w.add(c); len(w.changes) < maxChanges {
		return nil
	}
	return w.send()
}

func (w *watcher) send() error {
	list := w.changes
	w.changes = w.changes[:0]
	return w.host.Changes(list)
}
