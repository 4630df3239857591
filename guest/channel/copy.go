package channel

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
)

// Copied says what a copy did.
type Copied struct {
	Files int   // regular files and symbolic links that were written
	Bytes int64 // of their content
	// Deleted are the paths that were copied in and are no longer there. CopyOut
	// reports them and deletes nothing.
	Deleted  []string
	Warnings []string // what was left out, and why
}

// Guard says under which names what is copied out is written; see workspace.Guard.
type Guard interface {
	// File returns the name for a file, and why it is not the file's own.
	File(name string) (as, why string)
	// Link says why there may be no symbolic link of this name.
	Link(name string) (why string)
}

// unguarded takes every name.
type unguarded struct{}

func (unguarded) File(name string) (as, why string) { return name, "" }
func (unguarded) Link(string) string                { return "" }

// tree is what a directory held when it was copied in, by path.
type tree map[string]leaf

type leaf struct {
	kind byte
	mode int64
	size int64
	sum  [sha256.Size]byte // of a regular file
	link string
}

// CopyIn copies the directory into the guest's workspace. Symbolic links are
// copied as they are, wherever they lead, and never followed.
func (c *Client) CopyIn(ctx context.Context, dir string) (Copied, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Copied{}, fmt.Errorf("copy in: %w", err)
	}
	defer root.Close()
	streams, err := c.open(ctx, hello{Kind: streamCopyIn}, 1)
	if err != nil {
		return Copied{}, fmt.Errorf("copy in %s: %w", dir, err)
	}
	defer closeStreams(ctx, streams)()
	return c.sendTree(ctx, root, streams[0], streams[1])
}

func (c *Client) sendTree(ctx context.Context, root *os.Root, ctl, data net.Conn) (Copied, error) {
	census := newCensus()
	var warnings notes
	p := packer{root: root, out: tar.NewWriter(data), sent: census.add, warn: warnings.add}
	err := p.pack(".", 0)
	if err == nil {
		err = p.out.Close()
	}
	data.Close()
	_, reported := readReports(ctl, func(report) error { return nil })
	if err == nil {
		err = reported
	}
	if err != nil {
		return Copied{}, c.failed(ctx, "copy in", err)
	}
	c.mu.Lock()
	c.copied = census.finish()
	c.mu.Unlock()
	return Copied{Files: census.files, Bytes: census.bytes, Warnings: warnings.all()}, nil
}

// CopyOut copies what is new or changed in the guest's workspace, against what
// CopyIn put there, into the directory. Whatever the guest sends, nothing is
// written outside the directory nor through a link in it; links that lead out
// of it, setuid bits and special files stay behind. At most Wake.Scratch bytes are taken.
// With a guard, files and links that the host would execute do not get their own names.
func (c *Client) CopyOut(ctx context.Context, dir string, g Guard) (Copied, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Copied{}, fmt.Errorf("copy out: %w", err)
	}
	defer root.Close()
	streams, err := c.open(ctx, hello{Kind: streamCopyOut}, 1)
	if err != nil {
		return Copied{}, fmt.Errorf("copy out to %s: %w", dir, err)
	}
	defer closeStreams(ctx, streams)()
	c.mu.Lock()
	before := c.copied
	c.mu.Unlock()
	got, err := receiveTree(root, before, c.limit, g, streams[0], streams[1])
	if err != nil {
		return got, c.failed(ctx, "copy out", err)
	}
	return got, nil
}

func receiveTree(root *os.Root, before tree, limit int64, g Guard, ctl, data io.Reader) (Copied, error) {
	u := newUnpacker(root, before, limit)
	if g != nil {
		u.guard = g
	}
	if err := u.unpack(data); err != nil {
		return u.result(), err
	}
	deleted := map[string]bool{}
	guest, err := readReports(ctl, func(r report) error {
		for _, name := range r.Deleted {
			if _, ok := before[string(name)]; !ok || deleted[string(name)] {
				return hostile("deletion of %.200q, which was not there", name)
			}
			deleted[string(name)] = true
			u.copied.Deleted = append(u.copied.Deleted, string(name))
		}
		return nil
	})
	for _, w := range guest {
		u.warnings.add("%s", w)
	}
	return u.result(), err
}

// readReports reads until the last report and returns the warnings of all.
func readReports(ctl io.Reader, each func(report) error) (warnings []string, err error) {
	for {
		var r report
		if err := readFrame(ctl, &r, maxReport); err != nil {
			return warnings, err
		}
		for _, w := range r.Warnings {
			if len(warnings) <= maxWarnings {
				warnings = append(warnings, fmt.Sprintf("%.500q", string(w)))
			}
		}
		if r.Error != "" {
			return warnings, fmt.Errorf("guest: %.500q", r.Error)
		}
		if err := each(r); err != nil {
			return warnings, err
		}
		if r.Done {
			return warnings, nil
		}
	}
}

// closeStreams unblocks the streams when ctx ends; the function it returns closes them.
func closeStreams(ctx context.Context, streams []net.Conn) func() {
	stop := context.AfterFunc(ctx, func() {
		for _, s := range streams {
			unblock(s)
		}
	})
	return func() {
		stop()
		for _, s := range streams {
			s.Close()
		}
	}
}

// census writes down what is sent, content by its digest.
type census struct {
	tree  tree
	name  string // the file whose content passes
	sum   hash.Hash
	files int
	bytes int64
}

func newCensus() *census { return &census{tree: tree{}, sum: sha256.New()} }

func (c *census) add(h *tar.Header) io.Writer {
	c.settle()
	name := strings.TrimSuffix(h.Name, "/")
	c.tree[name] = leaf{kind: h.Typeflag, mode: h.Mode, size: h.Size, link: h.Linkname}
	if h.Typeflag != tar.TypeDir {
		c.files++
		c.bytes += h.Size
	}
	if h.Typeflag != tar.TypeReg {
		return nil
	}
	c.name = name
	return c.sum
}

func (c *census) settle() {
	if c.name == "" {
		return
	}
	l := c.tree[c.name]
	c.sum.Sum(l.sum[:0])
	c.tree[c.name] = l
	c.name = ""
	c.sum.Reset()
}

func (c *census) finish() tree {
	c.settle()
	return c.tree
}

// perm is the part of a mode that leaves the guest: no setuid, setgid or sticky bit.
func perm(h *tar.Header) fs.FileMode { return fs.FileMode(h.Mode) & fs.ModePerm }
