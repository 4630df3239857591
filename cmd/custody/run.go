//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"golang.org/x/term"

	"github.com/custody-project/custody/client/commands"
	"github.com/custody-project/custody/command"
	"github.com/custody-project/custody/doctor/remedy"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/service"
)

type runCmd struct {
	commands.RunCmd
	Workdir string `type:"existingdir" placeholder:"DIR" help:"Copy this directory to /workspace first, except files that its .custodyignore names. Links are not followed."`
	Out     string `type:"path" placeholder:"DIR" help:"Copy /workspace's changed files to this directory at the end."`
	Trust   bool   `help:"Accept the project file's requests without asking."`
	Cold    bool   `help:"Boot the VM instead of restoring its snapshot."`
	Metrics string `placeholder:"ADDRESS" help:"Serve Prometheus metrics at this address during the run."`
	JSON    bool   `name:"json" help:"Print the run's records as NDJSON on stdout, after the run, instead of its output."`
}

func (c runCmd) Run(a *app) error {
	switch {
	case c.Host != "":
		return c.elsewhere(a)
	case c.Session != "" || c.Detach:
		return command.Usage(errors.New("--session and -d are for a service: give --host, or set CUSTODY_URL"))
	}
	if socket := service.Socket(os.Getenv); socket != "" {
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
	return c.finish(a, res)
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
	r := service.Request{Command: commands.Given(c.Command), Secrets: c.Secret, Template: c.Template, Isolation: c.Isolation, Cold: c.Cold, Workdir: c.Workdir, Out: c.Out, Quiet: c.Quiet, JSON: c.JSON}
	var err error
	if r.Source, err = run.ReadSource(a.ctx, c.Project, c.Policy); err != nil {
		return err
	}
	env, err := project.ParseVariables(c.Env, os.LookupEnv)
	if err != nil {
		return err
	}
	for _, v := range env {
		r.Env = append(r.Env, v.String())
	}
	res, err := service.Run(a.ctx, socket, r, service.User{Notice: a.Say, Progress: a.Say, Problem: a.Complain, Attach: c.attach(a), Records: a.stdout})
	if err != nil {
		return err
	}
	return c.finish(a, res)
}

// attach returns a function that connects the caller's terminal to the run's steps.
func (c runCmd) attach(a *app) func() (run.Console, func()) {
	return func() (run.Console, func()) {
		t := console.TakeTerminal(a.stdin, c.TTY)
		out := run.Console{
			Stdin: t.In, Stdout: a.stdout, Stderr: a.stderr, Live: term.IsTerminal(int(os.Stdout.Fd())),
			Window: t.Window, Term: os.Getenv("TERM"), Signals: t.Signals, Resizes: t.Resizes,
		}
		if c.JSON {
			out.Stdout, out.Stderr = nil, nil
		}
		return out, t.Restore
	}
}

// options reads the project file and returns the options of the run.
func (c runCmd) options(a *app) (run.Options, error) {
	o := run.Options{
		Command: commands.Given(c.Command), Secrets: c.Secret, Template: c.Template, Isolation: c.Isolation, Cold: c.Cold, Workdir: c.Workdir, Out: c.Out,
		Version: version(), User: host.Caller(), Accept: trustPrompt{yes: c.Trust, in: a.stdin, out: a.stderr, say: a.Say}.accept, Attach: c.attach(a), Notice: a.Say, Problem: a.Complain,
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

// finish tells the user how the run ended.
func (c runCmd) finish(a *app, res run.Result) error {
	if res.Late != nil {
		a.Say(run.LateNotice(res.Late))
		if h := remedy.Of(res.Late); h != "" {
			a.Say("hint: " + h)
		}
	}
	if !c.Quiet {
		a.Say(fmt.Sprintf("run %s (%s): custody timeline %s", res.ID, res.Tier, res.ID))
	}
	if res.Err != nil {
		a.Complain(res.Err)
	}
	return exitCode(res.ExitCode)
}

// panicked ends the program after a panic of its main goroutine, whose text may quote a secret value.
func (a *app) panicked() {
	if r := recover(); r != nil {
		a.Say(fmt.Sprintf("a mistake in custody's own code, please report it: %v\n%s", r, debug.Stack()))
		os.Exit(exitFailed)
	}
}

var errNoTrust = errors.New("--trust: the service does not need it; an administrator registers a project with `custody project apply`")
