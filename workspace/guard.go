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

// Guard decides under which names files of a workspace are written to a directory of the host. It is safe for concurrent use.
type Guard struct {
	out   string          // the directory, absolute
	named map[string]bool // folded
	infos []os.FileInfo   // of the named files that exist
	home  os.FileInfo     // of $CUSTODY_HOME; nil if it does not exist
	left  func(name string) bool

	mu    sync.Mutex // guards repos
	repos repositories
}

// GuardOptions describe what a Guard protects in addition to files that the host would execute.
type GuardOptions struct {
	// Named are files of the host that Custody reads or executes, such as the project's file.
	Named []string
	// Home is $CUSTODY_HOME. Nothing is written to it.
	Home string
	// Left reports whether the file at a path was not copied in. The sandbox cannot replace such a file, because it has not seen it. Nil: all files were copied in.
	Left func(name string) bool
	// Git makes git commands, to read git's configuration; nil: files that it names are not protected.
	Git Git
}

// NewGuard returns the guard of the directory out. It reads the git configuration of the repository that contains out.
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

// File returns the name under which a file at this path is written. If it differs from name, why is the reason.
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

// Link returns why a symbolic link must not be made at this path; "" if it may be. The link's target does not matter.
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

// Folder returns why nothing may be written to an existing directory; "" if files may be.
func (g *Guard) Folder(info fs.FileInfo) (why string) {
	if g.home != nil && os.SameFile(g.home, info) {
		return "it is CUSTODY_HOME"
	}
	return ""
}

// ofRepository reports whether the file controls a bare repository of the host. Git considers each directory
// with HEAD, objects and refs to be one. A sandbox cannot make one, because HEAD is copied out only in .git.
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

// configured reports whether git's configuration names the file: the configuration of the directory's repository, or of a
// repository of the host below it. A configuration that git cannot read has no effect.
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
	if g.named[fold(name)] { // some file systems do not distinguish these spellings
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
