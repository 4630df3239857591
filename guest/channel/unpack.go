package channel

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Bounds of what one CopyOut keeps in the host's memory.
const (
	maxEntries = 500_000
	maxNames   = 64 << 20 // bytes of all names together
)

// unpacker passes a hostile tar stream to a destination. Files become parts, which are listed some at a time, and
// then placed.
type unpacker struct {
	to       Destination
	before   tree
	left     int64 // remaining bytes of content
	came     int64 // received bytes of content
	names    int   // bytes of names so far
	seen     map[string]bool
	dirs     map[string]bool // directories that may be written into: true, or not: false
	copied   Copied
	waiting  []waiting
	batch    batch // of those in waiting
	warnings notes
	progress func(files int, bytes int64)
}

// waiting is a part that does not have its name yet.
type waiting struct {
	id    PartID
	as    string
	bytes int64
}

func newUnpacker(to Destination, before tree, limit int64, o Out) *unpacker {
	u := &unpacker{
		to: to, before: before, left: limit, seen: map[string]bool{}, dirs: map[string]bool{".": true}, batch: batch{list: o.List}, progress: o.Progress,
	}
	if u.progress == nil {
		u.progress = func(int, int64) {}
	}
	return u
}

func (u *unpacker) result() Copied {
	u.copied.Warnings = u.warnings.all()
	return u.copied
}

// unpack reads the whole stream. Parts that it did not place go when the destination is closed.
func (u *unpacker) unpack(ctx context.Context, data io.Reader) error {
	if err := u.entries(ctx, data); err != nil {
		return err
	}
	return u.place(ctx)
}

func (u *unpacker) entries(ctx context.Context, data io.Reader) error {
	in := tar.NewReader(data)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.Copy(io.Discard, data) // the padding of the last record
			return err
		}
		if errors.Is(err, tar.ErrHeader) || errors.Is(err, tar.ErrFieldTooLong) {
			return hostile("copy out: %w", err)
		}
		if err != nil {
			return err
		}
		if err := u.entry(ctx, h, in); err != nil {
			return err
		}
	}
}

func (u *unpacker) entry(ctx context.Context, h *tar.Header, content io.Reader) error {
	name, err := entryName(h)
	if err != nil {
		return err
	}
	u.names += len(name)
	if len(u.seen) >= maxEntries || u.names > maxNames {
		return errTooMany
	}
	if u.seen[name] {
		return hostile("entry %.200q comes twice", name)
	}
	u.seen[name] = true
	if len(u.waiting) >= maxListed || u.batch.full() || u.awaited(name) {
		if err := u.place(ctx); err != nil {
			return err
		}
	}
	switch h.Typeflag {
	case tar.TypeDir:
		_, err := u.directory(ctx, name, perm(h))
		return err
	case tar.TypeReg:
		return u.file(ctx, name, h, content)
	case tar.TypeSymlink:
		return u.link(ctx, name, h.Linkname)
	}
	u.warnings.add("%q is of type %q; skipped", name, h.Typeflag)
	return nil
}

// directory makes name, or finds it, and reports whether it may be written into.
func (u *unpacker) directory(ctx context.Context, name string, mode fs.FileMode) (bool, error) {
	if ok, known := u.dirs[name]; known {
		return ok, nil
	}
	ok, warning, err := u.to.Directory(ctx, name, mode)
	if err != nil {
		return false, err
	}
	if warning != "" {
		u.warnings.add("%s", warning)
	}
	u.dirs[name] = ok
	return ok, nil
}

func (u *unpacker) file(ctx context.Context, name string, h *tar.Header, content io.Reader) error {
	if h.Size > u.left {
		return tooLarge(name, h.Size, u.left)
	}
	u.left -= h.Size
	ok, err := u.directory(ctx, path.Dir(name), 0o755)
	if err != nil {
		return err
	}
	if !ok {
		u.warnings.add("file %q skipped: its directory could not be used", name)
		return nil
	}
	was, known := u.before[name]
	mode := perm(h) &^ othersWrite
	if known && was.kind == tar.TypeReg {
		mode |= perm(h) & fs.FileMode(was.mode)
	}
	p, err := u.to.File(ctx, name, Attributes{Mode: mode, Size: h.Size, Time: h.ModTime})
	if err != nil {
		return err
	}
	now := leaf{kind: tar.TypeReg, mode: int64(perm(h)), size: h.Size}
	if now.sum, err = u.write(p, name, h.Size, content); err != nil {
		return err
	}
	if known && was == now {
		if p.ID == 0 {
			return nil
		}
		return u.to.Drop(ctx, p.ID)
	}
	now.mode = int64(mode)
	u.wait(p, name, now)
	return nil
}

// write writes the content of a file to its part, if there is one, and returns the digest.
func (u *unpacker) write(p Part, name string, size int64, content io.Reader) (sum [sha256.Size]byte, err error) {
	hash := sha256.New()
	to := []io.Writer{hash, u}
	if p.Content != nil {
		to = append([]io.Writer{p.Content}, to...)
	}
	_, err = io.CopyN(io.MultiWriter(to...), content, size)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if p.Content != nil {
		if closed := p.Content.Close(); err == nil {
			err = closed
		}
	}
	if err != nil {
		return sum, fmt.Errorf("copy %q: %w", name, err)
	}
	return [sha256.Size]byte(hash.Sum(nil)), nil
}

// Write counts the received content.
func (u *unpacker) Write(b []byte) (int, error) {
	u.came += int64(len(b))
	u.progress(u.copied.Files, u.came)
	return len(b), nil
}

// wait has a part, which is called name in the workspace, wait for its name.
func (u *unpacker) wait(p Part, name string, l leaf) {
	for _, w := range p.Warnings {
		u.warnings.add("%s", w)
	}
	if p.ID == 0 {
		return
	}
	u.waiting = append(u.waiting, waiting{p.ID, p.As, l.size})
	u.batch.add(listed(name, p.As, l))
}

// awaited reports whether something that leads to name, or name itself, waits for its name.
func (u *unpacker) awaited(name string) bool {
	return slices.ContainsFunc(u.waiting, func(w waiting) bool { return w.as == name || strings.HasPrefix(name, w.as+"/") })
}

// place lists the waiting parts, and then gives all of them their names.
func (u *unpacker) place(ctx context.Context) error {
	if err := u.batch.tell(); err != nil {
		return err
	}
	if len(u.waiting) == 0 {
		return nil
	}
	var ids []PartID
	for _, w := range u.waiting {
		ids = append(ids, w.id)
	}
	taken, err := u.to.Place(ctx, ids)
	if err != nil {
		return err
	}
	for _, w := range u.waiting {
		if slices.Contains(taken, w.id) {
			u.warnings.add("%s", isDirectory(w.as))
			continue
		}
		u.copied.Files++
		u.copied.Bytes += w.bytes
	}
	u.waiting = nil
	return nil
}

func (u *unpacker) link(ctx context.Context, name, target string) error {
	if was, ok := u.before[name]; ok && was.kind == tar.TypeSymlink && was.link == target {
		return nil
	}
	p, err := u.to.Link(ctx, name, target)
	if err != nil {
		return err
	}
	u.wait(p, name, leaf{kind: tar.TypeSymlink, mode: 0o777, link: target})
	return nil
}
