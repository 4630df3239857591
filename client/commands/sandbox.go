package commands

import (
	"errors"
	"fmt"

	"github.com/custody-project/custody/client"
	"github.com/custody-project/custody/internal/console"
)

// SandboxCmd are the commands that change whether a sandbox has a machine.
type SandboxCmd struct {
	Pause  PauseCmd  `cmd:"" help:"Store the processes and files of sandboxes, and end their machines until they are used again."`
	Resume ResumeCmd `cmd:"" help:"Continue the processes of paused sandboxes."`
	Fork   ForkCmd   `cmd:"" help:"Make sandboxes that continue from the processes and files of another one, and print their IDs."`
}

// PauseCmd pauses sandboxes.
type PauseCmd struct {
	Sandbox []string `arg:"" help:"The IDs of the sandboxes."`
	Service
}

// Run pauses the sandboxes. It is no error if one is paused already.
func (c PauseCmd) Run(e *Env) error {
	return each(c.Service, c.Sandbox, func(box *client.Box) error {
		s, err := box.Pause(e.Context)
		if err != nil {
			return err
		}
		e.Say(pausedText(s))
		return nil
	})
}

// pausedText describes what a pause has left of a sandbox.
func pausedText(s client.Sandbox) string {
	id := console.Clean(s.ID)
	switch {
	case s.State != statePaused && s.State != stateArchived:
		return fmt.Sprintf("sandbox %s was paused, and is %s again: something used it", id, console.Clean(s.State))
	case s.FilesOnly != "":
		return fmt.Sprintf("sandbox %s is paused with its files only (%s); its processes have ended: %s", id, mebibytes(s.StoredBytes), console.Clean(s.FilesOnly))
	}
	return fmt.Sprintf("sandbox %s is paused (%s): its processes (%d) continue when it is used; its connections have ended", id, mebibytes(s.StoredBytes), s.Running)
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// statePaused and stateArchived are the states of paused sandboxes.
const (
	statePaused   = "paused"
	stateArchived = "archived" // the stored state is in the archive
)

// ResumeCmd resumes sandboxes.
type ResumeCmd struct {
	Sandbox []string `arg:"" help:"The IDs of the sandboxes."`
	Service
}

// Run resumes the sandboxes. It is no error if one is live already.
func (c ResumeCmd) Run(e *Env) error {
	return each(c.Service, c.Sandbox, func(box *client.Box) error {
		s, err := box.Resume(e.Context)
		if err != nil {
			return err
		}
		e.Say(fmt.Sprintf("sandbox %s is live in run %s; processes that run: %d", console.Clean(s.ID), console.Clean(latest(s)), s.Running))
		return nil
	})
}

// latest returns the ID of the latest run of a sandbox.
func latest(s client.Sandbox) string {
	if len(s.Runs) == 0 {
		return s.ID
	}
	return s.Runs[len(s.Runs)-1]
}

// each does something with each sandbox, and returns all errors.
func each(s Service, ids []string, do func(*client.Box) error) error {
	service, err := s.client()
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range ids {
		if err := do(service.Sandbox(id)); err != nil {
			if len(ids) > 1 {
				err = fmt.Errorf("%s: %w", id, err)
			}
			errs = append(errs, err)
		}
	}
	return explain(errors.Join(errs...))
}

// ForkCmd forks a sandbox.
type ForkCmd struct {
	Count    int               `short:"n" default:"1" placeholder:"N" help:"How many sandboxes to make, at most 64."`
	Metadata map[string]string `short:"m" placeholder:"NAME=VALUE" help:"Metadata of the new sandboxes, in place of that of the other one."`
	Sandbox  string            `arg:"" help:"The ID of the sandbox."`
	Service
}

// Run makes the sandboxes and prints their IDs.
func (c ForkCmd) Run(e *Env) error {
	service, err := c.client()
	if err != nil {
		return err
	}
	forks, err := service.Sandbox(c.Sandbox).Fork(e.Context, client.ForkRequest{Count: c.Count, Metadata: c.Metadata})
	if err != nil {
		return explain(err)
	}
	for _, s := range forks {
		if _, err := fmt.Fprintln(e.Stdout, s.ID); err != nil {
			return err
		}
	}
	return nil
}
