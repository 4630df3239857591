package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/term"

	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/run"
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
		if err := h.TrustStore().Forget(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	p, err := project.Load(a.ctx, path)
	if err != nil {
		return err
	}
	reach, err := run.Trust(a.ctx, h, &p, path)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "%s is trusted as it is now. It asks for:\n  %s\n", path, reach)
	return err
}

// accepts returns what decides about an untrusted project file: the user at the terminal, if there is one, unless it is
// accepted without a question.
func (a *app) accepts(without bool) func(*run.Untrusted) bool {
	if without {
		return func(*run.Untrusted) bool { return true }
	}
	return a.ask
}

// ask asks the user at the terminal, if there is one.
func (a *app) ask(no *run.Untrusted) bool {
	if !term.IsTerminal(int(a.stdin.Fd())) || !console.IsTerminal(a.stderr) {
		return false
	}
	a.Say(no.Error())
	fmt.Fprint(a.stderr, "custody: trust it as it is now? [y/N] ")
	line, err := bufio.NewReaderSize(a.stdin, 16).ReadString('\n')
	return err == nil && (strings.EqualFold(strings.TrimSpace(line), "y") || strings.EqualFold(strings.TrimSpace(line), "yes"))
}
