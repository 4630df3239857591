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

// Copied is the result of a copy.
type Copied struct {
	Files int   // regular files and symbolic links that were written
	Bytes int64 // of their content
	// Deleted are the paths that were copied in and are no longer there. CopyOut
	// reports them and deletes nothing.
	Deleted  []string
	Warnings []string // what was left out, and why
}

// Guard decides the names under which files are copied out; see workspace.Guard.
type Guard interface {
	// File returns the name for a file, and why it is not the file's own.
	File(name string) (as, why string)
	// Link returns why a symbolic link must not have this name; "" if it may.
	Link(name string) (why string)
	// Folder returns why nothing may be written to an existing directory; "" if files may be.
	Folder(info fs.FileInfo) (why string)
}

// unguarded accepts every name.
type unguarded struct{}

func (unguarded) File(name string) (as, why string) { return name, "" }
func (unguarded) Link(string) string                { return "" }
func (unguarded) Folder(fs.FileInfo) string         { return "" }

// tree is the content of a directory at the time it was copied in, by path.
type tree map[string]leaf

type leaf struct {
	kind byte
	mode int64
	size int64
	sum  [sha256.Size]byte // of a regular file
	link string
}

// In configures copying a directory in.
type In struct {
	// Leave reports whether to omit an entry, and everything below it. Nil: nothing is omitted.
	Leave func(name string, info fs.FileInfo) bool
	// List receives the files as they were sent. May be nil.
	List List
	// Progress is called often, with the number of files and bytes copied so far. May be nil.
	Progress func(files int, bytes int64)
}

// Size is the size of the part of a directory that would be copied.
type Size struct {
	Files   int // regular files and symbolic links
	Folders int
	Bytes   int64 // of regular files
	Room    int64 // that they take on a disk with blocks of 4 KiB, in bytes
}

const block = 4096

// Measure returns the size of the files that CopyIn would copy.
func Measure(ctx context.Context, dir string, leave func(name string, info fs.FileInfo) bool) (s Size, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return s, err
	}
	defer root.Close()
	w := walker{root: root, leave: leave, warn: func(string, ...any) {}}
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

// CopyIn copies the directory into the guest's workspace. Symbolic links are
// copied as they are, wherever they lead, and never followed.
func (c *Client) CopyIn(ctx context.Context, dir string, o In) (Copied, error) {
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
	return c.sendTree(ctx, root, o, streams[0], streams[1])
}

func (c *Client) sendTree(ctx context.Context, root *os.Root, o In, ctl, data net.Conn) (Copied, error) {
	census := newCensus(o)
	var warnings notes
	p := packer{walker: walker{root: root, leave: o.Leave, warn: warnings.add}, out: tar.NewWriter(data), sent: census.add}
	err := p.pack()
	if err == nil {
		err = census.finish()
	}
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
	c.copied = census.tree
	c.mu.Unlock()
	return Copied{Files: census.files, Bytes: census.bytes, Warnings: warnings.all()}, nil
}

// Out configures copying changes out.
type Out struct {
	// Guard has files and links that the host would execute not get their own names. Nil: all do.
	Guard Guard
	// List receives the files before they have their names. May be nil.
	List List
	// Progress is called often, with the number of files and bytes copied so far. May be nil.
	Progress func(files int, bytes int64)
}

// CopyOut copies what is new or changed in the guest's workspace, against what
// CopyIn put there, into the directory. Whatever the guest sends, nothing is
// written outside the directory nor through a link in it; links that lead out
// of it, setuid bits and special files stay behind. At most Wake.Scratch bytes are taken.
func (c *Client) CopyOut(ctx context.Context, dir string, o Out) (Copied, error) {
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
	got, err := receiveTree(root, before, c.limit, o, streams[0], streams[1])
	if err != nil {
		return got, c.failed(ctx, "copy out", err)
	}
	return got, nil
}

func receiveTree(root *os.Root, before tree, limit int64, o Out, ctl, data io.Reader) (Copied, error) {
	u := newUnpacker(root, before, limit)
	if o.Guard != nil {
		u.guard = o.Guard
	}
	if o.Progress != nil {
		u.progress = o.Progress
	}
	u.batch.list = o.List
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

// census lists the sent entries, with the digests of their contents.
type census struct {
	tree     tree
	name     string // the file whose content passes
	sum      hash.Hash
	files    int
	bytes    int64
	batch    batch
	err      error // of the list
	progress func(files int, bytes int64)
}

func newCensus(o In) *census {
	c := &census{tree: tree{}, sum: sha256.New(), batch: batch{list: o.List}, progress: o.Progress}
	if c.progress == nil {
		c.progress = func(int, int64) {}
	}
	return c
}

func (c *census) add(h *tar.Header) io.Writer {
	c.settle()
	name := strings.TrimSuffix(h.Name, "/")
	c.tree[name] = leaf{kind: h.Typeflag, mode: h.Mode, size: h.Size, link: h.Linkname}
	if h.Typeflag != tar.TypeDir {
		c.files++
	}
	c.progress(c.files, c.bytes)
	if h.Typeflag == tar.TypeDir {
		return nil
	}
	c.name = name
	return c
}

// Write hashes contents of the current file.
func (c *census) Write(b []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	c.bytes += int64(len(b))
	c.progress(c.files, c.bytes)
	return c.sum.Write(b)
}

// settle ends the current file.
func (c *census) settle() {
	if c.name == "" {
		return
	}
	l := c.tree[c.name]
	if l.kind == tar.TypeReg {
		c.sum.Sum(l.sum[:0])
		c.sum.Reset()
	}
	c.tree[c.name] = l
	c.batch.add(listed(c.name, c.name, l))
	if c.batch.full() && c.err == nil {
		c.err = c.batch.tell()
	}
	c.name = ""
}

// finish ends the last file and the list.
func (c *census) finish() error {
	c.settle()
	if c.err != nil {
		return c.err
	}
	return c.batch.tell()
}

// perm returns the permissions that are copied out: no setuid, setgid or sticky bit.
func perm(h *tar.Header) fs.FileMode { return fs.FileMode(h.Mode) & fs.ModePerm }
