package channel

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"
)

// Source is a tree that can be copied into a guest.
type Source interface {
	// Send passes each entry to send, a directory before its contents, and returns what was left out and why. An error of send ends it.
	Send(ctx context.Context, send Sender) (warnings []string, err error)
}

// Sender takes an entry of a tree: a directory, a regular file or a symbolic link. The content of a regular file has h.Size
// bytes or more, of which the Sender reads h.Size; it is nil for other entries.
type Sender func(h *tar.Header, content io.Reader) error

// SourceDir is a directory of the host as a Source. It is safe for concurrent use.
type SourceDir struct {
	dir   string
	leave func(name string, info fs.FileInfo) bool

	mu     sync.Mutex             // guards shared
	shared map[string]fs.FileMode // of the regular files that were sent: the permissions of others to write, if there are any
}

// NewSourceDir returns the Source of a directory. leave reports whether to omit an entry, and everything below it; nil: nothing
// is omitted.
func NewSourceDir(dir string, leave func(name string, info fs.FileInfo) bool) *SourceDir {
	return &SourceDir{dir: dir, leave: leave, shared: map[string]fs.FileMode{}}
}

// Send implements Source.
func (d *SourceDir) Send(ctx context.Context, send Sender) ([]string, error) {
	root, err := os.OpenRoot(d.dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var warnings notes
	p := packer{walker: walker{root: root, leave: d.leave, warn: warnings.add}, send: func(h *tar.Header, content io.Reader) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		d.remember(h)
		return send(h, content)
	}}
	err = p.pack()
	return warnings.all(), err
}

// Pack writes the tree as a tar stream, and returns what was left out and why.
func (d *SourceDir) Pack(ctx context.Context, w io.Writer) (warnings []string, err error) {
	buffer := bufio.NewWriterSize(w, 64<<10)
	out := tar.NewWriter(buffer)
	warnings, err = d.Send(ctx, sendTo(out, nil))
	if err != nil {
		return warnings, err
	}
	return warnings, errors.Join(out.Close(), buffer.Flush())
}

// remember keeps the permissions of a file that users other than its owner can write.
func (d *SourceDir) remember(h *tar.Header) {
	mode := perm(h) & othersWrite
	if h.Typeflag != tar.TypeReg || mode == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shared[h.Name] = mode
}

// othersWrite returns which permissions of others to write a sent file had. d may be nil.
func (d *SourceDir) othersWrite(name string) fs.FileMode {
	if d == nil {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.shared[name]
}

// Size is the size of the part of a directory that would be copied.
type Size struct {
	Files   int // regular files and symbolic links
	Folders int
	Bytes   int64 // of regular files
	Room    int64 // that they take on a disk with blocks of 4 KiB, in bytes
}

const block = 4096

// Measure returns the size of the files that Send would send.
func (d *SourceDir) Measure(ctx context.Context) (s Size, err error) {
	root, err := os.OpenRoot(d.dir)
	if err != nil {
		return s, err
	}
	defer root.Close()
	w := walker{root: root, leave: d.leave, warn: func(string, ...any) {}}
	w.each = func(_ string, info fs.FileInfo) error {
		switch {
		case info.IsDir():
			s.Folders++
			s.Room += block
		default:
			s.Files++
		}
		if info.Mode().IsRegular() {
			s.Bytes += info.Size()
			s.Room += (info.Size() + block - 1) / block * block
		}
		return ctx.Err()
	}
	return s, w.walk(".", nil, 0)
}
