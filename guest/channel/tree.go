package channel

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
)

// A tree is sent as a tar stream (POSIX.1-2001, pax) of directories, regular
// files and symbolic links with clean relative names. Anything else is
// skipped with a warning. Both ends use os.Root, so that no link, even one that
// is created concurrently, leads them out of the tree.

// Bounds of a tree's names.
const (
	maxDepth     = MaxDepth
	maxPath      = 4096
	maxComponent = 255
	maxWarnings  = 1000
)

// walker walks a tree, and calls each for its entries: for a directory before its contents.
type walker struct {
	root *os.Root
	// leave reports whether to omit an entry, and everything below it. Nil: nothing is omitted.
	leave func(name string, info fs.FileInfo) bool
	each  func(name string, info fs.FileInfo) error
	warn  func(format string, args ...any)
}

// walk goes through all below the directory name, which seen is of; nil for the top.
func (w *walker) walk(name string, seen fs.FileInfo, depth int) error {
	if depth > maxDepth {
		w.warn("%q is nested more than %d deep; skipped", name, maxDepth)
		return nil
	}
	dir, err := w.root.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	if info, err := dir.Stat(); err != nil || seen != nil && !os.SameFile(info, seen) {
		w.warn("%q became something else while it was copied; skipped", name)
		return err
	}
	for {
		names, err := dir.Readdirnames(512)
		for _, n := range names {
			if err := w.entry(path.Join(name, n), depth); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (w *walker) entry(name string, depth int) error {
	info, err := w.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // gone since the directory was read
	}
	if err != nil {
		return err
	}
	if len(name) > maxPath {
		w.warn("%.60q... is a path of %d bytes; skipped", name, len(name))
		return nil
	}
	if w.leave != nil && w.leave(name, info) {
		return nil
	}
	if !info.IsDir() && !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0 {
		w.warn("%q is neither a file, a directory nor a symbolic link; skipped", name)
		return nil
	}
	if err := w.each(name, info); err != nil || !info.IsDir() {
		return err
	}
	return w.walk(name, info, depth+1)
}

// packer sends a tree.
type packer struct {
	walker
	// skip reports that an entry need not be sent; what is below a directory is looked at all the same. Nil: all is sent.
	skip func(name string, info fs.FileInfo) bool
	send Sender
}

// pack sends the whole tree.
func (p *packer) pack() error {
	p.each = p.one
	return p.walk(".", nil, 0)
}

func (p *packer) one(name string, info fs.FileInfo) error {
	switch {
	case p.skip != nil && p.skip(name, info):
		return nil
	case info.IsDir():
		return p.send(header(tar.TypeDir, name+"/", info), nil)
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := p.root.Readlink(name)
		if err != nil {
			return err
		}
		h := header(tar.TypeSymlink, name, info)
		h.Linkname = target
		return p.send(h, nil)
	}
	return p.file(name, info)
}

func header(kind byte, name string, info fs.FileInfo) *tar.Header {
	return &tar.Header{
		Typeflag: kind, Name: name, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX,
	}
}

// file sends a regular file. The name may have been replaced concurrently by
// a link or a pipe, so the open does not block, and the opened file
// must be the one that was examined.
func (p *packer) file(name string, seen fs.FileInfo) error {
	f, err := p.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(info, seen) {
		p.warn("%q became something else while it was copied; skipped", name)
		return nil
	}
	h := header(tar.TypeReg, name, info)
	h.Size = info.Size()
	return p.send(h, &whole{file: f, name: name, size: h.Size})
}

// whole reads a file that must have at least size bytes.
type whole struct {
	file       io.Reader
	name       string
	size, read int64
}

// Read implements io.Reader.
func (w *whole) Read(b []byte) (int, error) {
	n, err := w.file.Read(b)
	w.read += int64(n)
	if errors.Is(err, io.EOF) && w.read < w.size {
		err = fmt.Errorf("%q shrank from %d to %d bytes while it was copied", w.name, w.size, w.read)
	}
	return n, err
}

// sendTo returns a Sender that writes a tar stream. Each entry that was sent is passed to sent, and its content also to
// what that returns, unless it is nil. sent may be nil.
func sendTo(out *tar.Writer, sent func(h *tar.Header) io.Writer) Sender {
	return func(h *tar.Header, content io.Reader) error {
		if err := out.WriteHeader(h); err != nil {
			return fmt.Errorf("send %q: %w", strings.TrimSuffix(h.Name, "/"), err)
		}
		var to io.Writer = out
		if sent != nil {
			if w := sent(h); w != nil {
				to = io.MultiWriter(w, out)
			}
		}
		if content == nil {
			return nil
		}
		_, err := io.CopyN(to, content, h.Size)
		return err
	}
}

// entryName checks a name from a tar stream and returns it without the slash that ends a directory's.
func entryName(h *tar.Header) (string, error) {
	name := strings.TrimSuffix(h.Name, "/")
	if len(name) > maxPath || strings.Count(name, "/") > maxDepth {
		return "", hostile("entry name of %d bytes: %.60q", len(name), name)
	}
	if !clean(name) {
		return "", hostile("entry name %.200q is not a clean relative path", h.Name)
	}
	return name, nil
}

// clean reports whether a name is a clean relative path within the bounds of a tree, and is not the top.
func clean(name string) bool {
	if len(name) > maxPath || strings.Count(name, "/") > maxDepth {
		return false
	}
	for c := range strings.SplitSeq(name, "/") {
		if c == "" || c == "." || c == ".." || len(c) > maxComponent || strings.IndexByte(c, 0) >= 0 {
			return false
		}
	}
	return true
}

// notes collects warnings, a bounded number of them.
type notes struct {
	list    []string
	dropped int
}

func (n *notes) add(format string, args ...any) {
	if len(n.list) >= maxWarnings {
		n.dropped++
		return
	}
	n.list = append(n.list, fmt.Sprintf(format, args...))
}

func (n *notes) all() []string {
	if n.dropped > 0 {
		return append(n.list, fmt.Sprintf("and %d warnings more", n.dropped))
	}
	return n.list
}
