// Package line is the command line of `custody run`, and what it does on a host with a service. The whole program and its small client share it.
package line

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"github.com/custody-project/custody/client/commands"
	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/run/caller"
	"github.com/custody-project/custody/service/remote"
)

// CLI is the command line of `custody run`, to parse it alone: that takes a fraction of the time. Run is a Flags, or embeds one.
type CLI[Run any] struct {
	Run Run `cmd:"" group:"run" help:"Run a command, or the steps of custody.yaml, in a sandbox."`

	ShowVersion kong.VersionFlag `name:"version" help:"Print the version."`
	Store       string           `env:"CUSTODY_STORE" placeholder:"DSN" help:"The store of runs: sqlite:PATH or clickhouse://... (default: host.yaml's, else SQLite here)."`
}

// Flags are the flags and arguments of `custody run`.
type Flags struct {
	commands.RunCmd
	Workdir string `type:"existingdir" placeholder:"DIR" help:"Copy this directory to /workspace first, except files that its .custodyignore names. Links are not followed."`
	Out     string `type:"path" placeholder:"DIR" help:"Copy /workspace's changed files to this directory at the end."`
	Trust   bool   `help:"Accept the project file's requests without asking."`
	Cold    bool   `help:"Boot the VM instead of restoring its snapshot."`
	Metrics string `placeholder:"ADDRESS" help:"Serve Prometheus metrics at this address during the run."`
	JSON    bool   `name:"json" help:"Print the run's records as NDJSON on stdout, after the run, instead of its output."`
}

// Simple reports whether the run needs no more than the service of this host: no other machine, and no files of the user.
func (f *Flags) Simple() bool {
	return f.Host == "" && f.Session == "" && !f.Detach && !f.Trust && f.Metrics == "" && f.Workdir == "" && f.Out == ""
}

// Request returns what is asked of the service. It reads the project's file.
func (f *Flags) Request(ctx context.Context) (r remote.Request, err error) {
	r = remote.Request{Command: commands.Given(f.Command), Secrets: f.Secret, Template: f.Template, Isolation: f.Isolation, Cold: f.Cold, Workdir: f.Workdir, Out: f.Out, Quiet: f.Quiet, JSON: f.JSON}
	if r.Source, err = caller.ReadSource(ctx, f.Project, f.Policy); err != nil {
		return r, err
	}
	env, err := project.ParseVariables(f.Env, os.LookupEnv)
	if err != nil {
		return r, err
	}
	for _, v := range env {
		r.Env = append(r.Env, v.String())
	}
	return r, nil
}

// Program is the program that the user has called: its messages, input and output.
type Program struct {
	*console.Messages
	Stdin          *os.File
	Stdout, Stderr io.Writer
	// OpenFiles opens --workdir and --out; nil: neither is given.
	OpenFiles func(ctx context.Context, s caller.FileSpec, notice func(string)) (caller.Files, error)
}

// Ask has the service at socket carry out the run, and returns the exit code. An error means that no run began, or that the service has gone.
func (f *Flags) Ask(ctx context.Context, socket string, r remote.Request, p Program) (code int, err error) {
	res, err := remote.Run(ctx, socket, r, remote.User{
		Notice: p.Say, Progress: p.Say, Problem: p.Complain, Attach: f.Attach(p), Records: p.Stdout, OpenFiles: p.OpenFiles, Describe: p.Describe,
	})
	if err != nil {
		return 0, err
	}
	return f.Finish(p, res), nil
}

// Attach returns a function that connects the user's terminal to the run's steps.
func (f *Flags) Attach(p Program) func() (caller.Console, func()) {
	return func() (caller.Console, func()) {
		t := console.TakeTerminal(p.Stdin, f.TTY)
		out := caller.Console{
			Stdin: t.In, Stdout: p.Stdout, Stderr: p.Stderr, Live: term.IsTerminal(int(os.Stdout.Fd())),
			Window: t.Window, Term: os.Getenv("TERM"), Signals: t.Signals, Resizes: t.Resizes,
		}
		if f.JSON {
			out.Stdout, out.Stderr = nil, nil
		}
		return out, t.Restore
	}
}

// Finish tells the user how the run ended, and returns the exit code.
func (f *Flags) Finish(p Program, res caller.Result) int {
	if res.Late != nil {
		p.Say(caller.LateNotice(res.Late))
		if _, hint := p.Describe(res.Late); hint != "" {
			p.Say("hint: " + hint)
		}
	}
	if !f.Quiet {
		p.Say(fmt.Sprintf("run %s (%s): custody timeline %s", res.ID, res.Tier, res.ID))
	}
	if res.Err != nil {
		p.Complain(res.Err)
	}
	return res.ExitCode
}
