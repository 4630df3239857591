//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/custody-project/custody/client/commands"
	"github.com/custody-project/custody/command"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/run/line"
	"github.com/custody-project/custody/service/remote"
)

// runCmd is a run with or without the service.
type runCmd struct{ line.Flags }

// program is what the command line uses of this process.
func (a *app) program() line.Program {
	return line.Program{Messages: a.Messages, Stdin: a.stdin, Stdout: a.stdout, Stderr: a.stderr, OpenFiles: run.OpenFiles}
}

func (c runCmd) Run(a *app) error {
	switch {
	case c.Host != "":
		return c.elsewhere(a)
	case c.Session != "" || c.Detach:
		return command.Usage(errors.New("--session and -d are for a service: give --host, or set CUSTODY_URL"))
	}
	if socket := remote.Socket(os.Getenv); socket != "" {
		return c.remote(a, socket)
	}
	if err := run.RequireHost(); err != nil {
		return err
	}
	meters, err := a.meter(c.Metrics)
	if err != nil {
		return err
	}
	defer a.Close(meters)
	o, err := c.options(a)
	if err != nil {
		return err
	}
	meters.Spool(o.Home)
	if meters != nil {
		o.Meters = meters
	}
	job, err := run.Prepare(a.ctx, o)
	if err != nil {
		return err
	}
	defer a.Close(job)
	a.Mask = job.Mask
	defer a.panicked()
	res, err := job.Run(a.ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		res.Err = errors.Join(res.Err, run.WriteRecords(a.stdout, o.Home.RunLogs(), res.ID))
	}
	if err := run.Prune(a.ctx, o.Home); err != nil {
		a.Say(err.Error())
	}
	return exitCode(c.Finish(a.program(), res))
}

// elsewhere runs the command on the service of --host.
func (c runCmd) elsewhere(a *app) error {
	if c.Workdir != "" || c.Out != "" || c.Trust || c.Cold || c.Metrics != "" || c.JSON {
		return command.Usage(errors.New("--workdir, --out, --trust, --cold, --metrics and --json are not for runs on the service of --host"))
	}
	return c.RunCmd.Run(a.caller())
}

// remote carries out the run through the service.
func (c runCmd) remote(a *app, socket string) error {
	switch {
	case c.Trust:
		return command.Usage(errNoTrust)
	case c.Metrics != "":
		return command.Usage(errors.New("--metrics: the service has its own metrics"))
	}
	r, err := c.Request(a.ctx)
	if err != nil {
		return err
	}
	code, err := c.Ask(a.ctx, socket, r, a.program())
	if err != nil {
		return err
	}
	return exitCode(code)
}

// options reads the project file and returns the options of the run.
func (c runCmd) options(a *app) (run.Options, error) {
	o := run.Options{
		Command: commands.Given(c.Command), Secrets: c.Secret, Template: c.Template, Isolation: c.Isolation, Cold: c.Cold, Workdir: c.Workdir, Out: c.Out,
		Version: version(), User: host.Caller(), Accept: trustPrompt{yes: c.Trust, in: a.stdin, out: a.stderr, say: a.Say}.accept, Attach: c.Attach(a.program()), Notice: a.Say, Problem: a.Complain,
	}
	if !c.Quiet {
		o.Progress = a.Say
	}
	var err error
	if o.Home, err = a.home(); err != nil {
		return o, err
	}
	switch err = o.SetProject(a.ctx, c.Project, c.Policy); {
	case err != nil:
		return o, err
	case len(o.Command) == 0 && len(o.Project.Steps) == 0:
		return o, command.Usage(errors.New("there is nothing to run: give a command after --, or steps in " + project.Name))
	case len(o.Command) == 0 && len(c.Secret) > 0:
		return o, command.Usage(fmt.Errorf("--secret is for a command after --: the steps of %s name their own", o.File))
	}
	if origin := o.Origin(); origin != "" && !c.Quiet {
		a.Say(origin)
	}
	if o.Env, err = project.ParseVariables(c.Env, os.LookupEnv); err != nil {
		return o, err
	}
	warnings, err := o.Warnings()
	if err != nil {
		return o, err
	}
	a.env().Warn(warnings)
	o.Templates, err = run.Templates(o.Home, a.Writer())
	return o, err
}

// panicked ends the program after a panic of its main goroutine, whose text may quote a secret value.
func (a *app) panicked() {
	if r := recover(); r != nil {
		a.Say(fmt.Sprintf("a mistake in custody's own code, please report it: %v\n%s", r, debug.Stack()))
		os.Exit(exitFailed)
	}
}

var errNoTrust = errors.New("--trust: the service does not need it; an administrator registers a project with `custody project apply`")
