package command

import (
	"context"
	"fmt"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/run"
)

// Pause revokes a live run's credentials and freezes its sandbox.
type Pause struct {
	Name string // the run, a prefix of its ID, or last
}

// Path implements Command.
func (Pause) Path() string { return "pause" }

func (c Pause) access() access { return access{action: "manage", about: c.Name, query: c} }

// Execute implements Command.
func (c Pause) Execute(ctx context.Context, e *Env) error {
	return e.Control(ctx, c.Name, host.Control.Pause)
}

// Resume resumes a paused sandbox.
type Resume struct {
	Name string // the run, a prefix of its ID, or last
}

// Path implements Command.
func (Resume) Path() string { return "resume" }

func (c Resume) access() access { return access{action: "manage", about: c.Name, query: c} }

// Execute implements Command.
func (c Resume) Execute(ctx context.Context, e *Env) error {
	return e.Control(ctx, c.Name, host.Control.Resume)
}

// Control applies do to a live run.
func (e *Env) Control(ctx context.Context, name string, do func(host.Control, context.Context, string) error) error {
	h, err := e.Home()
	if err != nil {
		return err
	}
	c := e.control(h)
	id, err := c.Find(name)
	if err != nil {
		return err
	}
	return do(c, ctx, id)
}

// SetPolicy applies the egress rules of a project file to a live run.
type SetPolicy struct {
	Name string // the run, a prefix of its ID, or last
	File string // the file's name, for errors; it is not opened
	Text []byte // its contents
}

// Path implements Command.
func (SetPolicy) Path() string { return "policy set" }

func (c SetPolicy) access() access {
	c.Text = nil
	return access{action: "manage", about: c.Name, query: c}
}

// Execute implements Command. It requires that the host allows the file's rules. Whether the user has accepted them is for the caller
// to check.
func (c SetPolicy) Execute(ctx context.Context, e *Env) error {
	p, err := project.Parse(c.File, c.Text) // with its name and line numbers
	if err != nil {
		return err
	}
	h, err := e.Home()
	if err != nil {
		return err
	}
	if err := run.CheckAllowed(h, &p, c.File); err != nil {
		return err
	}
	control := e.control(h)
	id, err := control.Find(c.Name)
	if err != nil {
		return err
	}
	change, err := control.SetPolicy(ctx, id, c.Text)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(e.Stdout, "%s: generation %d, %s (before: %s), flows ended: %d\n", id, change.Generation, change.Digest, change.Previous, change.Ended)
	return err
}
