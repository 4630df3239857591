package workspace

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Guard says under which names files of a workspace are written into a directory of the host. It is safe for concurrent use.
type Guard struct {
	out   string // the directory, absolute
	named map[string]bool
	infos []os.FileInfo // of those that exist
}

// NewGuard returns the guard of the directory out. named are files of the host that Custody reads or
// executes, such as the project's file: none of them is replaced.
func NewGuard(out string, named ...string) (*Guard, error) {
	abs, err := filepath.Abs(out)
	if err != nil {
		return nil, err
	}
	g := &Guard{out: abs, named: map[string]bool{}}
	for _, name := range named {
		if name, err = filepath.Abs(name); err != nil {
			return nil, err
		}
		g.named[name] = true
		if info, err := os.Stat(name); err == nil {
			g.infos = append(g.infos, info)
		}
	}
	return g, nil
}

// File returns the name that a file at this path is written as. If it is not its own, why says what would happen on the host.
func (g *Guard) File(name string) (as, why string) {
	why = Executes(name)
	switch {
	case why != "":
	case g.isNamed(name):
		why = "custody reads or executes it"
	case g.ofRepository(name):
		why = "git executes it, or commands that it names"
	}
	if why == "" {
		return name, ""
	}
	return name + Suffix, why
}

// Link says why a symbolic link may not be made at this path; "" if it may. What it stands for is not known.
func (g *Guard) Link(name string) (why string) {
	for _, part := range strings.Split(strings.ToLower(name), "/") {
		if part == ".git" {
			return "git follows it"
		}
	}
	if _, why = g.File(name); why == "" {
		_, why = g.File(path.Join(name, "x"))
	}
	return why
}

// ofRepository says whether the file controls a repository without a work tree that the host has: git
// takes any folder with HEAD, objects and refs for one. No HEAD comes out of a sandbox but in .git.
func (g *Guard) ofRepository(name string) bool {
	dir, base := path.Split(strings.ToLower(name))
	if path.Base(dir) != "hooks" && !slices.Contains(control, base) {
		return false
	}
	at := filepath.Join(g.out, filepath.FromSlash(path.Dir(name)))
	for _, at := range []string{at, filepath.Dir(at)} {
		if _, err := os.Lstat(filepath.Join(at, "HEAD")); err == nil {
			return true
		}
	}
	return false
}

func (g *Guard) isNamed(name string) bool {
	at := filepath.Join(g.out, filepath.FromSlash(name))
	if g.named[at] {
		return true
	}
	info, err := os.Stat(at)
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
