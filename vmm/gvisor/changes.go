package gvisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
)

// changes finds what a step changed of the file system by comparing the overlay's upper layer before
// and after. The layer is on the host: the sandbox cannot show the host another one.
type changes struct {
	upper *os.File
	seen  map[string]stamp
}

// stamp changes when a file's content does.
type stamp struct {
	inode        uint64
	size         int64
	mtime, ctime unix.Timespec
	kind         uint32
}

func newChanges(upper *os.File) *changes { return &changes{upper: upper, seen: map[string]stamp{}} }

// change is a path whose content differs from what it was.
type change struct {
	path  string // in the cell, absolute
	op    audit.FileOp
	stamp stamp
	dev   uint64
}

// scan returns what changed since the scan before it, sorted by path.
func (c *changes) scan(ctx context.Context) ([]change, error) {
	root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", c.upper.Fd()))
	if err != nil {
		return nil, fmt.Errorf("read what the workload changed: %w", err)
	}
	defer root.Close()
	found := make(map[string]stamp, len(c.seen))
	var list []change
	err = walk(ctx, root, ".", func(name string, info fs.FileInfo) {
		if ch, ok := c.compare(name, info); ok {
			list = append(list, ch)
		}
		found[name] = stampOf(info)
	})
	if err != nil {
		return nil, fmt.Errorf("read what the workload changed: %w", err)
	}
	for name, s := range c.seen {
		if _, still := found[name]; !still && !isWhiteout(s.kind) {
			list = append(list, change{path: "/" + name, op: audit.FileDelete, stamp: s})
		}
	}
	c.seen = found
	slices.SortFunc(list, func(a, b change) int { return strings.Compare(a.path, b.path) })
	return list, nil
}

// walk calls each with the files below a directory, sorted by path. Unlike fs.WalkDir, it accepts names that are not UTF-8.
func walk(ctx context.Context, root *os.Root, dir string, each func(name string, info fs.FileInfo)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f, err := root.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	entries, err := f.ReadDir(-1)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		name := e.Name()
		if dir != "." {
			name = dir + "/" + name
		}
		info, err := root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		each(name, info)
		if info.IsDir() {
			if err := walk(ctx, root, name, each); err != nil {
				return err
			}
		}
	}
	return nil
}

func stampOf(info fs.FileInfo) stamp {
	st := info.Sys().(*syscall.Stat_t)
	return stamp{inode: st.Ino, size: st.Size, mtime: unix.Timespec(st.Mtim), ctime: unix.Timespec(st.Ctim), kind: st.Mode & unix.S_IFMT}
}

// isWhiteout reports whether kind is that of the device by which an overlay hides a file of the lower layer.
func isWhiteout(kind uint32) bool { return kind == unix.S_IFCHR }

func (c *changes) compare(name string, info fs.FileInfo) (change, bool) {
	now := stampOf(info)
	before, known := c.seen[name]
	ch := change{path: "/" + name, stamp: now, dev: uint64(info.Sys().(*syscall.Stat_t).Dev)}
	switch {
	case isWhiteout(now.kind):
		ch.op = audit.FileDelete
		return ch, !known || !isWhiteout(before.kind)
	case now.kind == unix.S_IFREG:
		ch.op = audit.FileWrite
		return ch, !known || before != now
	}
	ch.op = audit.FileCreate // a directory, a link, a socket, a FIFO
	if now.kind == unix.S_IFDIR && c.copied(name) {
		return ch, false
	}
	return ch, (!known || before.kind != now.kind || before.inode != now.inode)
}

// copied reports whether a directory of the upper layer is one of the lower layer, which the overlay copied.
func (c *changes) copied(name string) bool {
	path := fmt.Sprintf("/proc/self/fd/%d/%s", c.upper.Fd(), name)
	_, err := unix.Lgetxattr(path, "trusted.overlay.origin", nil)
	return err == nil
}

// event describes a change, with the hash of the content unless it is too small to be asked for.
func (c *changes) event(ctx context.Context, ch change, hashOver int64) *audit.File {
	f := &audit.File{Op: ch.op, Path: audit.Text(ch.path), Size: ch.stamp.size}
	if ch.op == audit.FileDelete {
		f.Size = 0
		return f
	}
	f.Device = fmt.Sprintf("%d:%d", unix.Major(ch.dev), unix.Minor(ch.dev))
	f.Inode = strconv.FormatUint(ch.stamp.inode, 10)
	if ch.op != audit.FileWrite {
		f.Size = 0
		return f
	}
	if ch.stamp.size < hashOver {
		return f
	}
	var err error
	if f.SHA256, err = c.hash(ctx, ch); err != nil {
		f.Unhashed = err.Error()
	}
	return f
}

// hash reads the file that was found, and no other: a step's processes have ended.
func (c *changes) hash(ctx context.Context, ch change) (string, error) {
	how := &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC | unix.O_NOATIME, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(int(c.upper.Fd()), ch.path[1:], how)
	if err != nil {
		return "", fmt.Errorf("open: %w", err)
	}
	file := os.NewFile(uintptr(fd), ch.path)
	defer file.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", fmt.Errorf("stat: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Ino != ch.stamp.inode {
		return "", errors.New("another file is at its path")
	}
	h := sha256.New()
	if _, err := io.Copy(h, untilDone{ctx, file}); err != nil {
		return "", fmt.Errorf("read: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// untilDone is a reader that fails once ctx is done.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u untilDone) Read(b []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(b)
}
