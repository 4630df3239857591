package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
)

// changes finds what a step changed of the file system by comparing the overlay's upper layer before
// and after. The layers are on the host: the sandbox cannot show the host others.
//
// Names are bytes, not text: the workload chooses them.
type changes struct {
	upper, lower *os.File
	seen         map[string]stamp
	limits       limits
}

// limits bound what a scan keeps in memory: the workload chooses how many files there are, and how long their paths are.
type limits struct {
	paths int
	bytes int // of all paths
}

var usualLimits = limits{1 << 20, 128 << 20}

func (l limits) err() error {
	return fmt.Errorf("there are more than %d files, or their paths have more than %d MiB", l.paths, l.bytes>>20)
}

// stamp changes when a file's content does.
type stamp struct {
	inode        uint64
	size         int64
	mtime, ctime unix.Timespec
	kind         uint32 // S_IFMT of the mode; S_IFCHR only for a whiteout
	merged       bool   // a directory of the lower layer, which the overlay copied
}

// newChanges takes over the directories of the layers.
func newChanges(upper, lower *os.File) *changes {
	return &changes{upper: upper, lower: lower, seen: map[string]stamp{}, limits: usualLimits}
}

func (c *changes) close() error { return errors.Join(c.upper.Close(), c.lower.Close()) }

// change is a path whose content differs from what it was.
type change struct {
	path  string // relative to the cell's root
	op    audit.FileOp
	stamp stamp
	dev   uint64
}

// maxDepth bounds how deep directories are examined; each level needs a descriptor.
const maxDepth = 1024

// walk is one pass through the upper layer.
type walk struct {
	*changes
	ctx        context.Context
	found      map[string]stamp
	list       []change
	names      int   // bytes of all paths in found
	incomplete error // the first reason why something was not examined
	cut        bool  // the walk ended early: what was not found can exist
}

// scan returns what changed since the scan before it, sorted by path. An error means that the list is incomplete.
func (c *changes) scan(ctx context.Context) ([]change, error) {
	w := &walk{changes: c, ctx: ctx, found: make(map[string]stamp, len(c.seen))}
	w.directory(int(c.upper.Fd()), ".", "", 0)
	for name, s := range c.seen {
		if _, still := w.found[name]; !still && !w.cut && !isWhiteout(s.kind) {
			w.list = append(w.list, change{path: name, op: audit.FileDelete, stamp: s})
		}
	}
	c.seen = w.found
	slices.SortStableFunc(w.list, func(a, b change) int { return strings.Compare(a.path, b.path) })
	if w.incomplete != nil {
		return w.list, fmt.Errorf("read what the workload changed: %w", w.incomplete)
	}
	return w.list, nil
}

// missed notes that something was not examined. What has vanished needs no examination.
func (w *walk) missed(err error) {
	if w.incomplete == nil && !errors.Is(err, unix.ENOENT) {
		w.incomplete = err
	}
}

// directory examines the entries of a directory. prefix is its path with a slash at the end, empty for the root.
func (w *walk) directory(parent int, name, prefix string, depth int) {
	if depth > maxDepth {
		w.missed(fmt.Errorf("directories are nested deeper than %d", maxDepth))
		return
	}
	fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NOATIME, 0)
	if err != nil {
		w.missed(fmt.Errorf("open %q: %w", prefix, err))
		return
	}
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close()
	for !w.cut {
		names, err := dir.Readdirnames(1024)
		if err != nil {
			if !errors.Is(err, io.EOF) {
				w.missed(fmt.Errorf("read %q: %w", prefix, err))
			}
			return
		}
		for _, name := range names {
			if w.full() {
				return
			}
			w.entry(fd, name, prefix+name, depth)
		}
	}
}

// full reports whether the walk must end.
func (w *walk) full() bool {
	err := context.Cause(w.ctx)
	if err == nil && (len(w.found) >= w.limits.paths || w.names > w.limits.bytes) {
		err = w.limits.err()
	}
	if err != nil {
		w.missed(err)
		w.cut = true
	}
	return w.cut
}

func (w *walk) entry(dir int, name, path string, depth int) {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		w.missed(fmt.Errorf("stat %q: %w", path, err))
		return
	}
	now := stamp{inode: st.Ino, size: st.Size, mtime: st.Mtim, ctime: st.Ctim, kind: st.Mode & unix.S_IFMT}
	if now.kind == unix.S_IFCHR && st.Rdev != 0 {
		now.kind = unix.S_IFBLK // a device, and no whiteout
	}
	if now.kind == unix.S_IFDIR {
		_, err := unix.Lgetxattr(fmt.Sprintf("/proc/self/fd/%d/%s", dir, name), "trusted.overlay.origin", nil)
		now.merged = err == nil
	}
	w.compare(change{path: path, stamp: now, dev: st.Dev})
	w.found[path] = now
	w.names += len(path)
	if now.kind == unix.S_IFDIR {
		w.directory(dir, name, path+"/", depth+1)
	}
}

// isWhiteout reports whether kind is that of the device by which an overlay hides a file of the lower layer.
func isWhiteout(kind uint32) bool { return kind == unix.S_IFCHR }

func (w *walk) compare(ch change) {
	now := ch.stamp
	before, known := w.seen[ch.path]
	if now.kind != unix.S_IFCHR && !now.merged && (!known || before.merged) && w.hides(ch.path) {
		gone := ch
		gone.op = audit.FileDelete // a directory of the template with all that it held
		w.list = append(w.list, gone)
	}
	changed := !known || before.kind != now.kind || before.inode != now.inode
	switch {
	case isWhiteout(now.kind):
		ch.op, changed = audit.FileDelete, !known || !isWhiteout(before.kind)
	case now.kind == unix.S_IFREG:
		ch.op, changed = audit.FileWrite, !known || before != now
	case now.merged:
		changed = false
	default:
		ch.op = audit.FileCreate // a directory, a link, a socket, a FIFO
	}
	if changed {
		w.list = append(w.list, ch)
	}
}

// hides reports whether the lower layer has a directory at path.
func (c *changes) hides(path string) bool {
	fd, err := openBeneath(c.lower, path, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return false
	}
	unix.Close(fd)
	return true
}

// openBeneath opens a path that may be longer than the kernel takes in one call. It follows no links.
func openBeneath(root *os.File, path string, flags int) (int, error) {
	const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS
	dir := int(root.Fd())
	defer func() {
		if dir != int(root.Fd()) {
			unix.Close(dir)
		}
	}()
	for len(path) >= unix.PathMax {
		end := strings.LastIndexByte(path[:unix.PathMax-1], '/')
		if end < 0 {
			return -1, unix.ENAMETOOLONG
		}
		next, err := unix.Openat2(dir, path[:end], &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: resolve})
		if err != nil {
			return -1, err
		}
		if dir != int(root.Fd()) {
			unix.Close(dir)
		}
		dir, path = next, path[end+1:]
	}
	return unix.Openat2(dir, path, &unix.OpenHow{Flags: uint64(flags) | unix.O_CLOEXEC, Resolve: resolve})
}
