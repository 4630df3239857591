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
	maxDepth     = 200
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

// packer writes a tree to a tar stream.
type packer struct {
	walker
	out *tar.Writer
	// skip reports that an entry need not be sent; what is below a directory is looked at all the same. Nil: all is sent.
	skip func(name string, info fs.FileInfo) bool
	// sent sees each entry that was sent; content passes through what it returns, if that is not nil.
	sent func(h *tar.Header) io.Writer
}

// pack writes the whole tree.
func (p *packer) pack() error {
	p.each = p.send
	return p.walk(".", nil, 0)
}

func (p *packer) send(name string, info fs.FileInfo) error {
	switch {
	case p.skip != nil && p.skip(name, info):
		return nil
	case info.IsDir():
		return p.header(tar.TypeDir, name+"/", "", info)
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := p.root.Readlink(name)
		if err != nil {
			return err
		}
		return p.header(tar.TypeSymlink, name, target, info)
	}
	return p.file(name, info)
}

func (p *packer) header(kind byte, name, link string, info fs.FileInfo) error {
	h := header(kind, name, info)
	h.Linkname = link
	if err := p.out.WriteHeader(h); err != nil {
		return fmt.Errorf("send %q: %w", name, err)
	}
	if p.sent != nil {
		p.sent(h)
	}
	return nil
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
	if err := p.out.WriteHeader(h); err != nil {
		return fmt.Errorf("send %q: %w", name, err)
	}
	var to io.Writer = p.out
	if p.sent != nil {
		if w := p.sent(h); w != nil {
			to = io.MultiWriter(w, p.out)
		}
	}
	n, err := io.CopyN(to, f, h.Size)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%q shrank from %d to %d bytes while it was copied", name, h.Size, n)
	}
	return err
}

// entryName checks a name from a tar stream and returns it without the slash that ends a directory's.
func entryName(h *tar.Header) (string, error) {
	name := strings.TrimSuffix(h.Name, "/")
	if len(name) > maxPath || strings.Count(name, "/") > maxDepth {
		return "", hostile("entry name of %d bytes: %.60q", len(name), name)
	}
	for c := range strings.SplitSeq(name, "/") {
		if c == "" || c == "." || c == ".." || len(c) > maxComponent || strings.IndexByte(c, 0) >= 0 {
			return "", hostile("entry name %.200q is not a clean relative path", h.Name)
		}
	}
	return name, nil
}

// staysWithin reports whether a symbolic link called name in a tree can only lead
// to a place in the tree. ".." is allowed only at the beginning, and not above
// the top: after a name it could leave the target of another link.
func staysWithin(name, target string) bool {
	if target == "" || len(target) > maxPath || strings.HasPrefix(target, "/") || strings.IndexByte(target, 0) >= 0 {
		return false
	}
	climbs, descended := 0, false
	for c := range strings.SplitSeq(target, "/") {
		switch c {
		case "", ".":
		case "..":
			if descended {
				return false
			}
			climbs++
		default:
			descended = true
		}
	}
	return climbs <= strings.Count(name, "/")
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
