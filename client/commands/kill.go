package commands

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/client"
)

// KillCmd sends a signal.
type KillCmd struct {
	Signal  string `short:"s" default:"TERM" placeholder:"NAME" help:"The signal: TERM, KILL, INT or another one, by its name."`
	Sandbox string `arg:"" help:"The ID of the sandbox."`
	Process string `arg:"" optional:"" help:"The name of the process (default: all that run)."`
	Service
}

// Run sends the signal to the process, or to all that run.
func (c KillCmd) Run(e *Env) error {
	name := strings.ToUpper(c.Signal)
	if n, err := strconv.Atoi(name); err == nil {
		name = unix.SignalName(syscall.Signal(n))
	}
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if unix.SignalNum(name) == 0 {
		return failure("give its name, such as TERM or KILL", "-s %.40s: there is no such signal", c.Signal)
	}
	service, err := c.client()
	if err != nil {
		return err
	}
	box := service.Sandbox(c.Sandbox)
	if c.Process != "" {
		return explain(box.Process(c.Process).Signal(e.Context, name))
	}
	return explain(killAll(e.Context, box, name))
}

// killAll sends a signal to all processes that run.
func killAll(ctx context.Context, box *client.Box, name string) error {
	list, err := box.Processes(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range list {
		if p.Ended != nil {
			continue
		}
		if err := box.Process(p.Name).Signal(ctx, name); err != nil && !client.IsStatus(err, http.StatusConflict) { // it has ended since
			errs = append(errs, fmt.Errorf("%s: %w", p.Name, err))
		}
	}
	return errors.Join(errs...)
}

// DestroyCmd destroys sandboxes.
type DestroyCmd struct {
	Sandbox []string `arg:"" help:"The IDs of the sandboxes."`
	Service
}

// Run destroys the sandboxes. It is no error if one has ended before.
func (c DestroyCmd) Run(e *Env) error {
	service, err := c.client()
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range c.Sandbox {
		if err := service.Sandbox(id).Destroy(e.Context); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", id, err))
		}
	}
	return explain(errors.Join(errs...))
}
