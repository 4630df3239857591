//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/run"
)

type trustCmd struct {
	File   string `arg:"" optional:"" type:"path" help:"The project's file (default: custody.yaml here)."`
	Forget bool   `help:"Withdraw the acceptance: the next run asks again."`
}

// Run shows what a project file requests, and accepts its current contents.
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
	_, err = fmt.Fprintf(a.stdout, "the contents of %s are trusted. The file requests:\n  %s\n", path, reach)
	return err
}

// trustPrompt decides whether an untrusted project file is accepted.
type trustPrompt struct {
	yes bool // accept without a prompt
	in  *os.File
	out io.Writer
	say func(string)
}

// accept asks the user, if in and out are a terminal; otherwise the answer is no.
func (p trustPrompt) accept(no *run.Untrusted) bool {
	if p.yes {
		return true
	}
	return console.Confirm(p.in, p.out, func() { p.say(no.Error()) }, "custody: trust its present contents?")
}
