package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/term"

	"github.com/custody-project/custody/home"
	"github.com/custody-project/custody/project"
)

type trustCmd struct {
	File   string `arg:"" optional:"" type:"path" help:"The project's file (default: custody.yaml here)."`
	Forget bool   `help:"Ask again before the next run."`
}

// Run shows what a project's file asks for, and accepts it as it is now.
func (c trustCmd) Run(a *app) error {
	path := c.File
	if path == "" {
		path = project.Name
	}
	h, err := a.home()
	if err != nil {
		return err
	}
	if c.Forget {
		if err := h.Distrust(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	p, err := project.Load(a.ctx, path)
	if err != nil {
		return err
	}
	if err := errors.Join(needAllowed(h, &p, path), safeOwner(path)); err != nil {
		return err
	}
	t, err := h.NewTrusted(path, p.SHA256, p.CommandFiles(filepath.Dir(path)))
	if err != nil {
		return err
	}
	reach := p.Reach()
	if len(reach) == 0 {
		reach = []string{"nothing outside its sandbox"}
	}
	if err := h.Trust(a.ctx, t); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "%s is trusted as it is now. It asks for:\n  %s\n", path, reachLines(reach))
	return err
}

// untrusted means that a project's file asks for more than an empty sandbox and no one has accepted that.
type untrusted struct {
	path, changed string
	reach         []string
}

// Error implements error.
func (e *untrusted) Error() string {
	why := "it has not been accepted on this host"
	if e.changed != "" {
		why = e.changed + " has changed since it was accepted"
	}
	return fmt.Sprintf("%s is not trusted: %s. It asks for:\n  %s", e.path, why, reachLines(e.reach))
}

// Hint returns what to do about it.
func (e *untrusted) Hint() string {
	return "read it, and accept it as it is now: custody trust " + e.path
}

// reachLines are a file's words, which may be hostile, each on a line of its own.
func reachLines(reach []string) string {
	for i, line := range reach {
		reach[i] = clean(line)
	}
	return strings.Join(reach, "\n  ")
}

// overreach means that a project's file asks for more than host.yaml allows any.
type overreach struct {
	path   string
	beyond []string
}

// Error implements error.
func (e *overreach) Error() string {
	return fmt.Sprintf("%s asks for more than %s allows:\n  %s", e.path, home.ConfigFile, reachLines(e.beyond))
}

// Hint returns what to do about it.
func (e *overreach) Hint() string {
	return "remove it from the project's file, or have it allowed under projects in " + home.ConfigFile
}

// needAllowed returns an error if the project's file at path asks for more than the host allows.
func needAllowed(h *home.Home, p *project.File, path string) error {
	beyond, err := p.Beyond(h.Config().Projects)
	if err != nil {
		return err
	}
	if len(beyond) > 0 {
		return &overreach{path, beyond}
	}
	return nil
}

// needTrust returns an error unless the project's file at path asks for nothing that the host does not allow, and
// for nothing outside the sandbox or was accepted as it is, before or by whoever sits at the terminal. accept accepts it without a question.
func (a *app) needTrust(h *home.Home, p *project.File, path string, accept bool) error {
	if err := needAllowed(h, p, path); err != nil {
		return err
	}
	reach := p.Reach()
	if len(reach) == 0 || p.SHA256 == "" {
		return nil
	}
	if err := safeOwner(path); err != nil {
		return err
	}
	t, err := h.NewTrusted(path, p.SHA256, p.CommandFiles(filepath.Dir(path)))
	if err != nil {
		return err
	}
	changed, known := h.Changed(t)
	if known && changed == "" {
		return nil
	}
	no := &untrusted{path: path, changed: changed, reach: reach}
	if !accept && !a.accepts(no) {
		return no
	}
	return h.Trust(a.ctx, t)
}

// accepts asks the person at the terminal, if there is one.
func (a *app) accepts(no *untrusted) bool {
	if !term.IsTerminal(int(a.stdin.Fd())) || !isTerminal(a.stderr) {
		return false
	}
	a.say(no.Error())
	fmt.Fprint(a.stderr, "custody: trust it as it is now? [y/N] ")
	line, err := bufio.NewReaderSize(a.stdin, 16).ReadString('\n')
	return err == nil && (strings.EqualFold(strings.TrimSpace(line), "y") || strings.EqualFold(strings.TrimSpace(line), "yes"))
}

// safeOwner returns an error unless the file, and what leads to it, belongs to root or to the user who calls, and
// not everyone can write to it, as git demands of a repository (safe.directory).
func safeOwner(path string) error {
	err := home.CheckOwner(path, 0o002)
	if e := new(home.OwnerError); errors.As(err, &e) {
		return &ownerError{err}
	}
	return err
}

// ownerError reports why a project's file is not used whatever it contains.
type ownerError struct{ error }

// Unwrap gives what others can change.
func (e *ownerError) Unwrap() error { return e.error }

// Hint returns what to do about it.
func (e *ownerError) Hint() string {
	return "what a project's file asks for is asked in your name: use one that you or root own and others cannot write"
}
