package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/home"
	"github.com/custody-project/custody/sandbox"
)

// control lets the run be spoken to while it lives. It returns what ends that.
func (j *job) control() (stop func()) {
	stop, err := j.record.Control(home.Controls{
		SetPolicy: func(ctx context.Context, file []byte) (home.PolicyChange, error) { return j.setPolicy(ctx, file) },
		Pause:     j.awake((*sandbox.Sandbox).Pause),
		Resume:    j.awake((*sandbox.Sandbox).Resume),
		Snapshot: func(ctx context.Context, r home.SnapshotRequest) error {
			return j.awake(func(s *sandbox.Sandbox, ctx context.Context) error { return snapshot(ctx, s, r) })(ctx)
		},
	})
	if err != nil {
		j.say("this run cannot be spoken to while it lives: " + err.Error())
		return func() {}
	}
	return stop
}

// awake calls do with the sandbox, once there is one.
func (j *job) awake(do func(*sandbox.Sandbox, context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		j.mu.Lock()
		s := j.sandbox
		j.mu.Unlock()
		if s == nil {
			return errors.New("the run is just beginning: try again")
		}
		return do(s, ctx)
	}
}

// snapshot writes the sandbox's memory to a file that is whole and holds no
// credential, or is not there: it has no name until then, however this process ends.
func snapshot(ctx context.Context, s *sandbox.Sandbox, r home.SnapshotRequest) error {
	if _, err := os.Lstat(r.File); err == nil {
		return fmt.Errorf("%s is there already: give another name", r.File)
	}
	f, err := os.OpenFile(filepath.Dir(r.File), unix.O_TMPFILE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("a file in %s: %w", filepath.Dir(r.File), err)
	}
	defer f.Close()
	if err := s.Dump(ctx, f, r.EndStep); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return os.NewSyscallError("link", unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.AT_FDCWD, r.File, unix.AT_SYMLINK_FOLLOW))
}

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
