package workspace

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Guard says under which names files of a workspace are written into a directory of the host. It is safe for concurrent use.
type Guard struct {
	out   string          // the directory, absolute
	named map[string]bool // folded
	infos []os.FileInfo   // of those that exist
	home  os.FileInfo     // of $CUSTODY_HOME; nil if it is not there
	left  func(name string) bool

	mu    sync.Mutex // guards repos
	repos repositories
}

// GuardOptions describe what a Guard keeps beside what the host would execute.
type GuardOptions struct {
	// Named are files of the host that Custody reads or executes, such as the project's file.
	Named []string
	// Home is $CUSTODY_HOME, in which nothing is written.
	Home string
	// Left says of a path that the file there was not copied in: the sandbox does not know it, and so does not replace it. Nil: none was left out.
	Left func(name string) bool
	// Git asks git for its configuration; nil: nothing that it names is known.
	Git Git
}

// NewGuard returns the guard of the directory out. It asks git for the configuration of the repository that out is in.
func NewGuard(out string, o GuardOptions) (*Guard, error) {
	abs, err := filepath.Abs(out)
	if err != nil {
		return nil, err
	}
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return nil, err
	}
	g := &Guard{out: abs, named: map[string]bool{}, left: o.Left, repos: repositories{git: o.Git, known: map[string][]string{}}}
	if err := g.repos.find(abs); err != nil {
		return nil, err
	}
	for _, name := range o.Named {
		for _, name := range below(abs, name) {
			g.named[fold(name)] = true
		}
		if info, err := os.Stat(name); err == nil {
			g.infos = append(g.infos, info)
		}
	}
	if o.Home != "" {
		g.home, _ = os.Stat(o.Home)
	}
	return g, nil
}

// File returns the name that a file at this path is written as. If it is not its own, why describes what would happen on the host.
func (g *Guard) File(name string) (as, why string) {
	why = Executes(name)
	switch {
	case why != "":
	case g.isNamed(name):
		why = "custody reads or executes it"
	case g.ofRepository(name) || g.configured(name):
		why = "git executes it, or commands that it names"
	case g.left != nil && g.left(name) && g.exists(name):
		why = "there is a file that was not copied in"
	}
	if why == "" {
		return name, ""
	}
	return name + Suffix, why
}

// Link reports why a symbolic link may not be made at this path; "" if it may. What it stands for is not known.
func (g *Guard) Link(name string) (why string) {
	for _, part := range strings.Split(fold(name), "/") {
		if part == ".git" || part == gitShort {
			return "git follows it"
		}
	}
	if _, why = g.File(name); why == "" {
		_, why = g.File(path.Join(name, "x"))
	}
	return why
}

// Folder reports why nothing may be written into a directory that exists; "" if it may.
func (g *Guard) Folder(info fs.FileInfo) (why string) {
	if g.home != nil && os.SameFile(g.home, info) {
		return "it is CUSTODY_HOME"
	}
	return ""
}

// ofRepository reports whether the file controls a repository without a work tree that the host has: git
// takes any folder with HEAD, objects and refs for one. No HEAD comes out of a sandbox but in .git.
func (g *Guard) ofRepository(name string) bool {
	dir, base := path.Split(fold(name))
	if path.Base(dir) != "hooks" && !slices.Contains(control, base) {
		return false
	}
	at := g.at(path.Dir(name))
	for _, at := range []string{at, filepath.Dir(at)} {
		if _, err := os.Lstat(filepath.Join(at, "HEAD")); err == nil {
			return true
		}
	}
	return false
}

// configured reports whether git's configuration names the file: that of the directory's own repository, or of one below
// it that the host has. A configuration that git cannot read is one that git does not obey.
func (g *Guard) configured(name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(g.at(dir), ".git")); err == nil {
			_ = g.repos.find(g.at(dir))
		}
	}
	return g.repos.names(g.at(name))
}

func (g *Guard) at(name string) string { return filepath.Join(g.out, filepath.FromSlash(name)) }

func (g *Guard) exists(name string) bool {
	_, err := os.Lstat(g.at(name))
	return err == nil
}

func (g *Guard) isNamed(name string) bool {
	if g.named[fold(name)] { // some file systems do not distinguish them
		return true
	}
	info, err := os.Stat(g.at(name))
	if err != nil {
		return false
	}
	for _, one := range g.infos {
		if os.SameFile(info, one) {
			return true
		}
	}
	return false
}
