//go:build linux

package main

import (
	"context"
	"path/filepath"

	"github.com/custody-project/custody/command"
	"github.com/custody-project/custody/host"
)

type pauseCmd struct {
	Name string `arg:"" name:"run" predictor:"run" help:"The run, a prefix of its id, or last."`
}

// Run freezes a live run's sandbox.
func (c pauseCmd) Run(a *app) error { return a.perform(command.Pause(c)) }

type resumeCmd struct {
	Name string `arg:"" name:"run" predictor:"run" help:"The run, a prefix of its id, or last."`
}

// Run resumes a paused sandbox.
func (c resumeCmd) Run(a *app) error { return a.perform(command.Resume(c)) }

type snapshotCmd struct {
	Name    string `arg:"" name:"run" predictor:"run" help:"The run, a prefix of its id, or last."`
	File    string `short:"o" required:"" type:"path" help:"The file to write; it must not exist."`
	EndStep bool   `help:"Kill the current step first, with all its processes."`
}

// Run writes the memory of a live run's sandbox to a file.
func (c snapshotCmd) Run(a *app) error {
	file, err := filepath.Abs(c.File)
	if err != nil {
		return err
	}
	endStep := c.EndStep
	return a.env().Control(a.ctx, c.Name, func(c host.Control, ctx context.Context, run string) error {
		return c.Snapshot(ctx, run, host.SnapshotRequest{File: file, EndStep: endStep})
	})
}
