package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/custody-project/custody/home"
)

type pauseCmd struct {
	Name string `arg:"" name:"run" help:"The run, a beginning of its name, or last."`
}

// Run freezes a live run's sandbox.
func (c pauseCmd) Run(a *app) error { return a.tellRun(c.Name, (*home.Home).Pause) }

type resumeCmd struct {
	Name string `arg:"" name:"run" help:"The run, a beginning of its name, or last."`
}

// Run lets a paused sandbox go on.
func (c resumeCmd) Run(a *app) error { return a.tellRun(c.Name, (*home.Home).Resume) }

type snapshotCmd struct {
	Name    string `arg:"" name:"run" help:"The run, a beginning of its name, or last."`
	File    string `short:"o" required:"" type:"path" help:"The file to write, which must not be there yet."`
	EndStep bool   `help:"Kill the step under way first, with what its processes hold."`
}

// Run writes the memory of a live run's sandbox to a file.
func (c snapshotCmd) Run(a *app) error {
	file, err := filepath.Abs(c.File)
	if err != nil {
		return err
	}
	return a.tellRun(c.Name, func(h *home.Home, ctx context.Context, run string) error {
		return h.Snapshot(ctx, run, home.SnapshotRequest{File: file, EndStep: c.EndStep})
	})
}

func (a *app) tellRun(name string, tell func(*home.Home, context.Context, string) error) error {
	h, err := a.home()
	if err != nil {
		return err
	}
	run, err := h.LiveRun(name)
	if err != nil {
		return err
	}
	err = tell(h, a.ctx, run)
	if errors.Is(err, home.ErrNotLive) {
		return fmt.Errorf("%w; custody runs lists the runs", err)
	}
	return err
}
