package channel

import (
	"archive/tar"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
	"time"
)

// Bounds of what one CopyOut keeps in the host's memory.
const (
	maxEntries = 500_000
	maxNames   = 64 << 20 // bytes of all names together
)

// unpacker writes a hostile tar stream into a directory.
//
// A directory that it writes into is one that it made itself or found to be a
// real directory, component by component, so no link is ever written through;
// os.Root holds even if somebody swaps one for a link meanwhile. Files are
// written beside their place and renamed into it.
type unpacker struct {
	root     *os.Root
	before   tree
	guard    Guard
	left     int64 // bytes of content that may still come
	came     int64 // and that have come
	names    int   // bytes of names so far
	seen     map[string]bool
	dirs     map[string]bool // directories that may be written into: true, or not: false
	copied   Copied
	warnings notes
	progress func(files int, bytes int64)
}

func newUnpacker(root *os.Root, before tree, limit int64) *unpacker {
	return &unpacker{root: root, before: before, guard: unguarded{}, left: limit, seen: map[string]bool{}, dirs: map[string]bool{".": true}, progress: func(int, int64) {}}
}

func (u *unpacker) result() Copied {
	u.copied.Warnings = u.warnings.all()
	return u.copied
}

func (u *unpacker) unpack(data io.Reader) error {
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
		if err := u.entry(h, in); err != nil {
			return err
		}
	}
}

func (u *unpacker) entry(h *tar.Header, content io.Reader) error {
	name, err := entryName(h)
	if err != nil {
		return err
	}
	u.names += len(name)
	if len(u.seen) >= maxEntries || u.names > maxNames {
		return fmt.Errorf("more than %d files, or their names too long, in the workspace", maxEntries)
	}
	if u.seen[name] {
		return hostile("entry %.200q comes twice", name)
	}
	u.seen[name] = true
	switch h.Typeflag {
	case tar.TypeDir:
		u.directory(name, perm(h))
		return nil
	case tar.TypeReg:
		return u.file(name, h, content)
	case tar.TypeSymlink:
		return u.link(name, h.Linkname)
	}
	u.warnings.add("%q is of type %q; skipped", name, h.Typeflag)
	return nil
}

// directory makes name, or finds it, and says whether it may be written into.
func (u *unpacker) directory(name string, mode fs.FileMode) bool {
	if ok, known := u.dirs[name]; known {
		return ok
	}
	ok := u.directory(path.Dir(name), 0o755) && u.makeDirectory(name, mode)
	u.dirs[name] = ok
	return ok
}

func (u *unpacker) makeDirectory(name string, mode fs.FileMode) bool {
	info, err := u.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		if err = u.root.Mkdir(name, (mode|0o700)&^othersWrite); err == nil {
			return true
		}
	}
	if err != nil {
		u.warnings.add("directory %q could not be made: %v", name, err)
		return false
	}
	if !info.IsDir() {
		u.warnings.add("directory %q: something else is in its place; skipped with all in it", name)
		return false
	}
	if why := u.guard.Folder(info); why != "" {
		u.warnings.add("directory %q: %s; skipped with all in it", name, why)
		return false
	}
	return true
}

func (u *unpacker) file(name string, h *tar.Header, content io.Reader) error {
	if h.Size > u.left {
		return fmt.Errorf("changed files are larger than the limit; %q has %d bytes, %d are left", name, h.Size, u.left)
	}
	u.left -= h.Size
	if !u.directory(path.Dir(name), 0o755) {
		u.warnings.add("file %q skipped: its directory could not be used", name)
		return nil
	}
	part := path.Join(path.Dir(name), ".custody-"+rand.Text())
	same, err := u.write(part, name, h, content)
	if err == nil && !same {
		err = u.place(part, name, h)
	}
	if removed := u.root.Remove(part); err == nil && removed != nil && !errors.Is(removed, fs.ErrNotExist) {
		err = removed
	}
	return err
}

// write writes content to part and says whether it is what was copied in as name.
func (u *unpacker) write(part, name string, h *tar.Header, content io.Reader) (same bool, err error) {
	f, err := u.root.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return false, err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(f, sum, u), content, h.Size); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return false, fmt.Errorf("copy %q: %w", name, err)
	}
	was, known := u.before[name]
	if known && was.kind == tar.TypeReg && was.mode == int64(perm(h)) && was.size == h.Size && was.sum == [32]byte(sum.Sum(nil)) {
		return true, nil
	}
	mode := perm(h) &^ othersWrite
	if known {
		mode |= perm(h) & fs.FileMode(was.mode)
	}
	if err := f.Chmod(mode); err != nil {
		return false, err
	}
	return false, f.Close()
}

// othersWrite is what a sandbox may not let other users of the host do, unless its owner does.
const othersWrite = fs.FileMode(0o022)

// Write counts the content that has come.
func (u *unpacker) Write(b []byte) (int, error) {
	u.came += int64(len(b))
	u.progress(u.copied.Files, u.came)
	return len(b), nil
}

func (u *unpacker) place(part, name string, h *tar.Header) error {
	name = u.guarded(name)
	if !u.free(name) {
		return nil
	}
	if t := h.ModTime; t.Year() >= 1970 && t.Before(time.Now().AddDate(1, 0, 0)) {
		if err := u.root.Chtimes(part, t, t); err != nil {
			return err
		}
	}
	if err := u.root.Rename(part, name); err != nil {
		return err
	}
	u.copied.Files++
	u.copied.Bytes += h.Size
	return nil
}

// guarded returns the name that a file is written as.
func (u *unpacker) guarded(name string) string {
	as, why := u.guard.File(name)
	if why != "" {
		u.warnings.add("%q is written as %q: on the host, %s", name, path.Base(as), why)
	}
	return as
}

// free says whether name may be taken: by nobody, or by what a rename replaces, which is all but a directory.
func (u *unpacker) free(name string) bool {
	info, err := u.root.Lstat(name)
	if err == nil && info.IsDir() {
		u.warnings.add("%q: a directory is in its place; skipped", name)
		return false
	}
	return true
}

func (u *unpacker) link(name, target string) error {
	if was, ok := u.before[name]; ok && was.kind == tar.TypeSymlink && was.link == target {
		return nil
	}
	if why := u.guard.Link(name); why != "" {
		u.warnings.add("symbolic link %q skipped: on the host, %s", name, why)
		return nil
	}
	if !staysWithin(name, target) || u.leadsOut(name, target) {
		u.warnings.add("symbolic link %q leads out of the directory, to %.200q; skipped", name, target)
		return nil
	}
	if !u.directory(path.Dir(name), 0o755) {
		u.warnings.add("symbolic link %q skipped: its directory could not be used", name)
		return nil
	}
	if !u.free(name) {
		return nil
	}
	part := path.Join(path.Dir(name), ".custody-"+rand.Text())
	if err := u.root.Symlink(target, part); err != nil {
		return err
	}
	if err := u.root.Rename(part, name); err != nil {
		u.root.Remove(part)
		return err
	}
	u.copied.Files++
	return nil
}

// leadsOut follows the target through links that stand in the directory
// already, its owner's among them, which may lead anywhere.
func (u *unpacker) leadsOut(name, target string) bool {
	_, err := u.root.Stat(path.Join(path.Dir(name), target))
	return err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) && !errors.Is(err, syscall.ELOOP)
}
