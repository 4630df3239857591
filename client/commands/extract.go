package commands

import (
	"archive/tar"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/custody-project/custody/client"
	"github.com/custody-project/custody/internal/symlink"
)

// The bounds of what is copied out of a sandbox.
const (
	maxEntries = 1 << 20
	maxDepth   = 200
	maxName    = 255     // bytes of a name without directories
	maxPath    = 4095    // and of one with them
	maxPadding = 1 << 20 // bytes after the end of an archive
)

// extractor extracts the archive of a directory of the sandbox, which can be anything.
type extractor struct {
	*copier
	root    *os.Root // all is written through it
	from    string
	left    int64 // bytes of content
	entries int
}

func (x *extractor) extract(archive io.Reader) error {
	var last *tar.Header
	for in := tar.NewReader(archive); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return x.ended(last, err)
		}
		if last = h; h.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		if err := x.entry(h, in); err != nil {
			return err
		}
	}
	n, err := io.Copy(io.Discard, io.LimitReader(archive, maxPadding+1))
	if err == nil && n > maxPadding {
		err = errors.New("it goes on after its end")
	}
	if err != nil {
		return x.ended(last, err)
	}
	return nil
}

// ended returns the error of an archive that has no end.
func (x *extractor) ended(last *tar.Header, err error) error {
	if why := client.Unfinished(last); why != "" {
		return failure("what was copied before it is there", "%.1000q is not copied as a whole: %.1000s", x.from, printable(why))
	}
	return fmt.Errorf("%q is not copied as a whole: %w", x.from, err)
}

// printable is a text of the sandbox without the control characters of a terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, text)
}

func (x *extractor) entry(h *tar.Header, content io.Reader) error {
	name := strings.TrimSuffix(h.Name, "/")
	if !local(name) {
		return fmt.Errorf("the sandbox sends %.300q, which no file in %q can be called: no more is copied", h.Name, x.from)
	}
	if x.entries++; x.entries > maxEntries {
		return failure("copy the directories in it", "%q has more than %d files: no more is copied", x.from, maxEntries)
	}
	there, mode := path.Join(x.from, name), fs.FileMode(h.Mode).Perm()
	if dir := path.Dir(name); dir != "." {
		if err := x.root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return x.directory(name, mode)
	case tar.TypeReg:
		return x.place(x.root, there, name, mode, func(to io.Writer) error {
			if x.left -= h.Size; h.Size < 0 || x.left < 0 {
				return x.tooLarge()
			}
			_, err := io.CopyN(to, content, h.Size)
			return err
		})
	case tar.TypeSymlink:
		if symlink.StaysInside(name, h.Linkname) {
			return x.link(name, h.Linkname)
		}
	}
	x.skip(there)
	return nil
}

// directory makes a directory, unless it exists.
func (x *extractor) directory(name string, mode fs.FileMode) error {
	err := x.root.Mkdir(name, mode|0o700)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := x.root.Stat(name)
	if err == nil && !info.IsDir() {
		err = failure("move or remove it", "%q is on this machine, and is not a directory", name)
	}
	return err
}

// link makes a symbolic link, in place of another file.
func (x *extractor) link(name, target string) error {
	part := path.Join(path.Dir(name), ".custody-"+rand.Text())
	if err := x.root.Symlink(target, part); err != nil {
		return err
	}
	if err := x.root.Rename(part, name); err != nil {
		return errors.Join(err, x.root.Remove(part))
	}
	return nil
}

// local reports whether a file in a directory, or below it, can have the name.
func local(name string) bool {
	if name == "." || path.Clean(name) != name || !filepath.IsLocal(name) || len(name) > maxPath || strings.Count(name, "/") > maxDepth {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > maxName || strings.IndexByte(part, 0) >= 0 {
			return false
		}
	}
	return true
}
