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

// A tree travels as a tar stream (POSIX.1-2001, pax) of directories, regular
// files and symbolic links with clean relative names. Anything else is left
// out with a warning. Both ends work through os.Root, so that no link, however
// quickly it is put in place, leads them out of the tree.

// Bounds of a tree's names.
const (
	maxDepth     = 200
	maxPath      = 4096
	maxComponent = 255
	maxWarnings  = 1000
)

// packer writes a tree to a tar stream.
type packer struct {
	root *os.Root
	out  *tar.Writer
	// skip says that an entry need not be sent; for a directory, that its own entry need not.
	skip func(name string, info fs.FileInfo) bool
	// sent sees each entry that was sent; content passes through what it returns, if that is not nil.
	sent func(h *tar.Header) io.Writer
	warn func(format string, args ...any)
}

// pack writes all below the directory name.
func (p *packer) pack(name string, depth int) error {
	if depth > maxDepth {
		p.warn("%q is nested more than %d deep; skipped", name, maxDepth)
		return nil
	}
	dir, err := p.root.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(512)
		for _, n := range names {
			if err := p.entry(path.Join(name, n), depth); err != nil {
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

func (p *packer) entry(name string, depth int) error {
	info, err := p.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // gone since the directory was read
	}
	if err != nil {
		return err
	}
	if len(name) > maxPath {
		p.warn("%.60q... is a path of %d bytes; skipped", name, len(name))
		return nil
	}
	skip := p.skip != nil && p.skip(name, info)
	switch {
	case info.IsDir():
		if !skip {
			if err := p.header(tar.TypeDir, name+"/", "", info); err != nil {
				return err
			}
		}
		return p.pack(name, depth+1)
	case skip:
		return nil
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := p.root.Readlink(name)
		if err != nil {
			return err
		}
		return p.header(tar.TypeSymlink, name, target, info)
	case info.Mode().IsRegular():
		return p.file(name)
	}
	p.warn("%q is neither a file, a directory nor a symbolic link; skipped", name)
	return nil
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

// file sends a regular file. What the name led to may have become something
// else in the meantime, so the open neither follows a link nor waits for a
// pipe, and what was opened is looked at again.
func (p *packer) file(name string) error {
	f, err := p.root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
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

// staysWithin says whether a symbolic link called name in a tree can only lead
// to somewhere in the tree. It may climb only before it descends, and not above
// the top: a ".." behind a name could climb out of wherever another link leads.
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
