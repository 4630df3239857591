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

// tree is the content of a directory at the time it was copied in, by path.
type tree map[string]leaf

type leaf struct {
	kind byte
	mode int64
	size int64
	sum  [sha256.Size]byte // of a regular file
	link string
}

// In configures copying in.
type In struct {
	// List receives the files as they were sent. May be nil.
	List List
	// Progress is called often, with the number of files and bytes copied so far. May be nil.
	Progress func(files int, bytes int64)
}

// CopyIn copies a tree into the guest's workspace. Symbolic links are
// copied as they are, wherever they lead, and never followed.
func (c *Client) CopyIn(ctx context.Context, from Source, o In) (Copied, error) {
	if !c.identity.known() {
		return Copied{}, fmt.Errorf("copy in: %w", ErrAnonymous)
	}
	streams, err := c.open(ctx, hello{Kind: streamCopyIn}, 1)
	if err != nil {
		return Copied{}, fmt.Errorf("copy in: %w", err)
	}
	defer closeStreams(ctx, streams)()
	return c.sendTree(ctx, from, o, streams[0], streams[1])
}

func (c *Client) sendTree(ctx context.Context, from Source, o In, ctl, data net.Conn) (Copied, error) {
	census := newCensus(o)
	out := tar.NewWriter(data)
	warnings, err := from.Send(ctx, sendTo(out, census.add))
	if err == nil {
		err = census.finish()
	}
	if err == nil {
		err = out.Close()
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
	return Copied{Files: census.files, Bytes: census.bytes, Warnings: warnings}, nil
}

// Out configures copying changes out.
type Out struct {
	// List receives the files before they have their names. May be nil.
	List List
	// Progress is called often, with the number of files and bytes copied so far. May be nil.
	Progress func(files int, bytes int64)
}

// CopyOut copies what is new or changed in the guest's workspace, against what
// CopyIn put there. It opens the destination and closes it. At most Wake.Scratch bytes are taken.
func (c *Client) CopyOut(ctx context.Context, to Destination, o Out) (got Copied, err error) {
	if !c.identity.known() {
		return Copied{}, fmt.Errorf("copy out: %w", ErrAnonymous)
	}
	if err := to.Open(ctx); err != nil {
		return Copied{}, fmt.Errorf("copy out: %w", err)
	}
	defer func() {
		if closed := to.Close(); err == nil && closed != nil {
			err = fmt.Errorf("copy out: %w", closed)
		}
	}()
	streams, err := c.open(ctx, hello{Kind: streamCopyOut}, 1)
	if err != nil {
		return Copied{}, fmt.Errorf("copy out: %w", err)
	}
	defer closeStreams(ctx, streams)()
	c.mu.Lock()
	before := c.copied
	c.mu.Unlock()
	got, err = receiveTree(ctx, to, before, c.limit, o, streams[0], streams[1])
	if err != nil {
		return got, c.failed(ctx, "copy out", err)
	}
	return got, nil
}

func receiveTree(ctx context.Context, to Destination, before tree, limit int64, o Out, ctl, data io.Reader) (Copied, error) {
	u := newUnpacker(to, before, limit, o)
	if err := u.unpack(ctx, data); err != nil {
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
