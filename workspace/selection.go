package workspace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Selection is what of a directory of the host is copied into a sandbox: all of it, but for what the directory's IgnoreFile
// names, the files that secrets are read from, and Custody's own. It is for one goroutine.
type Selection struct {
	root   *os.Root
	ignore *Ignore
	never  []never
	told   map[string]bool
	// Notices are what a person should know about what is copied, and what is not, so far.
	Notices []string
}

// never is a file or directory that is not copied whatever the IgnoreFile says.
type never struct {
	names []string    // below the directory; none if it is elsewhere
	info  os.FileInfo // nil if it is not there
	why   string
}

// NewSelection returns what is copied of dir. secrets are the files that secrets are read from, by the name of
// the secret; home is $CUSTODY_HOME. The caller closes it.
func NewSelection(dir string, secrets map[string]string, home string) (*Selection, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	s := &Selection{root: root, told: map[string]bool{}}
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

// below are the names under which a path is in a directory: its own, and that of what it leads to.
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

// resolved is a path without links, as far as it is there.
func resolved(path string) string {
	if to, err := filepath.EvalSymlinks(path); err == nil {
		return to
	}
	if dir, base := filepath.Dir(path), filepath.Base(path); dir != path {
		return filepath.Join(resolved(dir), base)
	}
	return path
}

// Leave reports that an entry is not copied; of a directory nothing below it is.
func (s *Selection) Leave(name string, info fs.FileInfo) bool {
	for _, n := range s.never {
		if n.is(name, info) {
			s.tell(name, fmt.Sprintf("%q is not copied in: %s", name, n.why))
			return true
		}
	}
	if s.ignore.Match(name, info.IsDir()) {
		return true
	}
	if why := s.private(name, info); why != "" {
		s.tell(name, fmt.Sprintf("%q is copied in and may be private: %s; a line in %s leaves it out", name, why, IgnoreFile))
	}
	return false
}

// Ignored reports whether the IgnoreFile leaves out a file at this path, or a directory that it is in.
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

func (s *Selection) tell(name, text string) {
	if !s.told[name] {
		s.told[name] = true
		s.Notices = append(s.Notices, text)
	}
}

// private reports why a file may be meant for no one else, as far as its name and its beginning show.
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
	return holds(head)
}
