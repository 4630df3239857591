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
	"slices"
	"strings"
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
// os.Root holds even if someone swaps one for a link meanwhile. Files are
// written beside their place, listed some at a time, and then renamed into it.
type unpacker struct {
	root     *os.Root
	before   tree
	guard    Guard
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

// waiting is a file or a link that was written and does not have its name yet.
type waiting struct {
	part, as string
	bytes    int64
	time     time.Time // zero: not of a link
}

func newUnpacker(root *os.Root, before tree, limit int64) *unpacker {
	return &unpacker{root: root, before: before, guard: unguarded{}, left: limit, seen: map[string]bool{}, dirs: map[string]bool{".": true}, progress: func(int, int64) {}}
}

func (u *unpacker) result() Copied {
	u.copied.Warnings = u.warnings.all()
	return u.copied
}

// unpack reads the whole stream. It removes files that do not get their names.
func (u *unpacker) unpack(data io.Reader) error {
	err := u.entries(data)
	if err == nil {
		err = u.place()
	}
	for _, w := range u.waiting {
		u.root.Remove(w.part)
	}
	return err
}

func (u *unpacker) entries(data io.Reader) error {
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
	if len(u.waiting) >= maxListed || u.batch.full() || u.awaited(name) {
		if err := u.place(); err != nil {
			return err
		}
	}
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

// directory makes name, or finds it, and reports whether it may be written into.
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
	now, same, err := u.write(part, name, h, content)
	if err == nil && !same {
		if as := u.guarded(name); u.free(as) {
			u.wait(waiting{part, as, h.Size, h.ModTime}, name, now)
			return nil
		}
	}
	if removed := u.root.Remove(part); err == nil && removed != nil && !errors.Is(removed, fs.ErrNotExist) {
		err = removed
	}
	return err
}

// write writes content to part and returns what is there, and whether that is what was copied in as name.
func (u *unpacker) write(part, name string, h *tar.Header, content io.Reader) (now leaf, same bool, err error) {
	now = leaf{kind: tar.TypeReg, mode: int64(perm(h)), size: h.Size}
	f, err := u.root.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return now, false, err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(f, sum, u), content, h.Size); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return now, false, fmt.Errorf("copy %q: %w", name, err)
	}
	now.sum = [sha256.Size]byte(sum.Sum(nil))
	was, known := u.before[name]
	if known && was == now {
		return now, true, nil
	}
	mode := perm(h) &^ othersWrite
	if known && was.kind == tar.TypeReg {
		mode |= perm(h) & fs.FileMode(was.mode)
	}
	if err := f.Chmod(mode); err != nil {
		return now, false, err
	}
	now.mode = int64(mode)
	return now, false, f.Close()
}

// othersWrite are permissions of other users that a sandbox may not set, unless the host file has them.
const othersWrite = fs.FileMode(0o022)

// Write counts the received content.
func (u *unpacker) Write(b []byte) (int, error) {
	u.came += int64(len(b))
	u.progress(u.copied.Files, u.came)
	return len(b), nil
}

// wait has what is at w.part, and is called name in the workspace, wait for its name.
func (u *unpacker) wait(w waiting, name string, l leaf) {
	u.waiting = append(u.waiting, w)
	u.batch.add(listed(name, w.as, l))
}

// awaited reports whether something that leads to name, or name itself, waits for its name.
func (u *unpacker) awaited(name string) bool {
	return slices.ContainsFunc(u.waiting, func(w waiting) bool { return w.as == name || strings.HasPrefix(name, w.as+"/") })
}

// place lists the waiting files, and then renames all of them.
func (u *unpacker) place() error {
	if err := u.batch.tell(); err != nil {
		return err
	}
	for ; len(u.waiting) > 0; u.waiting = u.waiting[1:] {
		w := u.waiting[0]
		if !u.free(w.as) {
			u.root.Remove(w.part)
			continue
		}
		if t := w.time; t.Year() >= 1970 && t.Before(time.Now().AddDate(1, 0, 0)) {
			if err := u.root.Chtimes(w.part, t, t); err != nil {
				return err
			}
		}
		if err := u.root.Rename(w.part, w.as); err != nil {
			return err
		}
		u.copied.Files++
		u.copied.Bytes += w.bytes
	}
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

// free reports whether name may be taken: by no one, or by what a rename replaces, which is all but a directory.
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
	u.wait(waiting{part: part, as: name}, name, leaf{kind: tar.TypeSymlink, mode: 0o777, link: target})
	return nil
}

// leadsOut follows the target through links that stand in the directory
// already, its owner's among them, which may lead anywhere.
func (u *unpacker) leadsOut(name, target string) bool {
	_, err := u.root.Stat(path.Join(path.Dir(name), target))
	return err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) && !errors.Is(err, syscall.ELOOP)
}
