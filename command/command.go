// Package command has the commands that read a host's records, control its live runs or are recorded by its service, as values without flags and files: the
// command line parses the flags and reads the files that they name, and then either executes the command itself or has the service
// of the host execute it (Client, Server). The service opens no file that a client names. The same code prints the result either way.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/notify"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/replay/notebook"
	"github.com/custody-project/custody/replay/show"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/store"
)

// Command is one of this package's commands. Its JSON is what a client sends.
type Command interface {
	// Path is the words of the command line, such as "policy set".
	Path() string
	// Execute executes the command. The error can be an Exit.
	Execute(ctx context.Context, e *Env) error
	// access describes the command for the access log.
	access() access
}

// named returns an empty command to decode into, or nil if the service has no command of this path.
func named(path string) Command {
	for _, c := range []Command{new(Runs), new(Timeline), new(Verify), new(Keys), new(Bundle), new(Pause), new(Resume), new(SetPolicy), new(LearnPolicy), new(ProjectChange), &ProjectChange{Remove: true}, new(Erase)} {
		if c.Path() == path {
			return c
		}
	}
	return nil
}

// Exit ends a command with a code and no further message.
type Exit int

// Error implements error.
func (e Exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// The exit codes of checks, and of Custody's own failures unless a command defines another code.
const (
	DoesNotHold   Exit = 1
	CannotBeKnown Exit = 2
	Failed        Exit = 125
)

// Env is what a command uses of the process.
type Env struct {
	*console.Messages
	Stdout io.Writer
	// Layout has the width of Stdout and whether it takes colours.
	Layout replay.Options
	// Dir returns the directory of the host's state.
	Dir func() (string, error)
	// OpenDir opens that directory; nil: host.Open does.
	OpenDir func(dir string) (*host.Host, error)
	// Outside is that of the host; see host.Host.
	Outside host.Outside
	// Store is the store to use in place of host.yaml's; "": that one.
	Store string
	// User is the client of the service for whom the command is executed, who controls only runs of its own; nil: it is the user of this
	// process.
	User *int
	// Replace writes a file whole or not at all.
	Replace func(path string, write func(io.Writer) error) error
}

// Code prints an error and returns the exit code.
func (e *Env) Code(err error) int {
	if err == nil {
		return 0
	}
	var code Exit
	if errors.As(err, &code) {
		return int(code)
	}
	e.Complain(err)
	return int(Failed)
}

// Warn prints warnings.
func (e *Env) Warn(warnings []string) {
	for _, w := range warnings {
		e.Say("warning: " + w)
	}
}

// Home opens the host's state.
func (e *Env) Home() (*host.Host, error) {
	dir, err := e.Dir()
	if err != nil {
		return nil, err
	}
	open := e.OpenDir
	if open == nil {
		open = host.Open
	}
	h, err := open(dir)
	if err != nil {
		return nil, err
	}
	h.Warn = e.Say
	if h.CloseLog == nil && run.RequireRoot() == nil {
		h.CloseLog = run.CloseLog(nil)
	}
	h.Outside = e.Outside
	if e.Store != "" {
		h.UseStore(e.Store)
	}
	return h, nil
}

// control returns the control of the host's live runs.
func (e *Env) control(h *host.Host) host.Control {
	if e.User != nil {
		return h.Control().For(*e.User)
	}
	return h.Control()
}

// Open opens the host's state, and cleans up after killed runs.
func (e *Env) Open(ctx context.Context) (*host.Host, error) {
	h, err := e.Home()
	if err != nil {
		return nil, err
	}
	e.Tidy(ctx, h)
	return h, nil
}

// Tidy closes the records of killed runs and removes their VMs. It reports errors, and the command continues.
func (e *Env) Tidy(ctx context.Context, h *host.Host) {
	if err := run.Tidy(ctx, h, e.Say); err != nil {
		e.Complain(err)
	}
}

// Reader opens the source of the runs to show, after updating it.
func (e *Env) Reader(ctx context.Context) (*host.Host, host.Reader, error) {
	h, err := e.Open(ctx)
	if err != nil {
		return nil, nil, err
	}
	r, err := h.Reader(ctx)
	return h, r, err
}

// Marking is Layout, and marks rows of r that differ from what was signed.
func (e *Env) Marking(ctx context.Context, h *host.Host, r host.Reader) (replay.Options, error) {
	return show.Marking(ctx, h, r, e.Layout)
}

// NotesOn reads the notes on a run, and their withdrawals.
func (e *Env) NotesOn(ctx context.Context, st host.Reader, of store.Run) ([]replay.Note, error) {
	all, err := notebook.Notebook{Reader: st}.On(ctx, of)
	if err == nil && len(all) == notebook.Max {
		e.Say(fmt.Sprintf("the run has more notes than %d: the oldest are left out", notebook.Max))
	}
	return all, err
}

// NotifyFailed sends a notification of a check's finding. h may be nil; without a usable home nothing is sent.
func (e *Env) NotifyFailed(ctx context.Context, h *host.Host, of, detail string) {
	if h == nil {
		var err error
		if h, err = e.Home(); err != nil {
			return
		}
	}
	n := h.Notifier(ctx, notify.Message{}, e.Say)
	n.Send(notify.Message{Type: notify.Verify, Severity: "alert", Run: of, Detail: console.Clean(detail)})
	n.Close()
}
