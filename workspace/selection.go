package workspace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Selection selects the files of a host directory that are copied into a sandbox: all files except those that the
// directory's IgnoreFile excludes, files that secrets are read from, and $CUSTODY_HOME. It is not safe for concurrent use.
type Selection struct {
	root    *os.Root
	ignore  *Ignore
	never   []never
	noticed map[string]bool // the names of entries with a notice
	// Notices are messages for the user about files that are not copied, and about private files that are.
	Notices []string
}

// never is a file or directory that is never copied, regardless of the IgnoreFile.
type never struct {
	names []string    // below the directory; none if it is elsewhere
	info  os.FileInfo // nil if it does not exist
	why   string
}

// NewSelection returns the selection of dir. secrets are the paths of files that secrets are read from, by the name of
// the secret; home is $CUSTODY_HOME. The caller closes the selection.
func NewSelection(dir string, secrets map[string]string, home string) (*Selection, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	s := &Selection{root: root, noticed: map[string]bool{}}
	if s.ignore, err = readIgnore(root); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	add := func(path, why string) {
		n := never{names: below(dir, path), why: why}
		n.info, _ = os.Stat(path)
		s.never = append(s.never, n)
	}
	for name, file := range secrets {
		add(file, "the secret "+name+" is read from it")
	}
	add(home, "it is CUSTODY_HOME")
	return s, nil
}

// Close closes the directory.
func (s *Selection) Close() error { return s.root.Close() }

func readIgnore(root *os.Root) (*Ignore, error) {
	f, err := root.Open(IgnoreFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", IgnoreFile, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, errors.New(IgnoreFile+" is not a regular file"))
	}
	text, err := io.ReadAll(io.LimitReader(f, maxIgnore+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", IgnoreFile, err)
	}
	return ParseIgnore(text)
}

// below returns the relative names of a path in a directory: the name of the path itself, and that of a link's target.
func below(dir, path string) (names []string) {
	dir, err1 := filepath.Abs(dir)
	path, err2 := filepath.Abs(path)
	if err1 != nil || err2 != nil {
		return nil
	}
	for _, to := range []string{filepath.Join(resolved(filepath.Dir(path)), filepath.Base(path)), resolved(path)} {
		if name, err := filepath.Rel(resolved(dir), to); err == nil && filepath.IsLocal(name) {
			names = append(names, filepath.ToSlash(name))
		}
	}
	return names
}

// resolved returns a path with symbolic links resolved, as far as the path exists.
func resolved(path string) string {
	if to, err := filepath.EvalSymlinks(path); err == nil {
		return to
	}
	if dir, base := filepath.Dir(path), filepath.Base(path); dir != path {
		return filepath.Join(resolved(dir), base)
	}
	return path
}

// Leave reports whether an entry, and for a directory everything below it, is not copied.
func (s *Selection) Leave(name string, info fs.FileInfo) bool {
	for _, n := range s.never {
		if n.is(name, info) {
			s.notice(name, fmt.Sprintf("%q is not copied in: %s", name, n.why))
			return true
		}
	}
	if s.ignore.Match(name, info.IsDir()) {
		return true
	}
	if why := s.private(name, info); why != "" {
		s.notice(name, fmt.Sprintf("%q is copied in and may be private: %s; a line in %s leaves it out", name, why, IgnoreFile))
	}
	return false
}

// Ignored reports whether the IgnoreFile excludes a file at this path, or a directory above it.
func (s *Selection) Ignored(name string) bool {
	for i := range name {
		if name[i] == '/' && s.ignore.Match(name[:i], true) {
			return true
		}
	}
	return s.ignore.Match(name, false)
}

func (n *never) is(name string, info fs.FileInfo) bool {
	for _, own := range n.names {
		if own == name {
			return true
		}
	}
	return n.info != nil && os.SameFile(n.info, info)
}

func (s *Selection) notice(name, text string) {
	if !s.noticed[name] {
		s.noticed[name] = true
		s.Notices = append(s.Notices, text)
	}
}

// private returns why a file's name or the beginning of its content suggests that it is private; "" if it does not.
func (s *Selection) private(name string, info fs.FileInfo) string {
	if info.IsDir() {
		return ""
	}
	why, look := Private(name)
	if why != "" || !look || !info.Mode().IsRegular() {
		return why
	}
	f, err := s.root.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	if now, err := f.Stat(); err != nil || !os.SameFile(now, info) {
		return ""
	}
	head, err := io.ReadAll(io.LimitReader(f, maxHead))
	if err != nil {
		return ""
	}
	return findKey(head)
}
