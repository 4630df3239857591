package commands

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/custody-project/custody/client"
)

// RunCmd runs a command in a new sandbox of a service, or in that of a session.
type RunCmd struct {
	Policy      string     `type:"path" placeholder:"FILE" help:"The project's file (default: custody.yaml here, if there is one; none with --host). With --project it narrows the registered one."`
	Project     *string    `predictor:"project" placeholder:"NAME" help:"The registered project that the run is of."`
	Template    string     `predictor:"template" placeholder:"NAME" help:"Template of the sandbox (default: the project's, else base)."`
	Isolation   string     `placeholder:"TIER" help:"Require this isolation tier: firecracker, qemu-kvm, gvisor or qemu-tcg (default: the best that works)."`
	Env         []string   `short:"e" sep:"none" placeholder:"NAME[=VALUE]" help:"Set a plain environment variable in all steps; NAME alone uses the value in this environment. The record contains it: put secret values into the project's secrets."`
	Secret      []string   `placeholder:"NAME,..." help:"Give the command after -- this secret of the project file (default: none)."`
	TTY         bool       `name:"tty" short:"t" help:"Give the command a terminal."`
	Interactive bool       `short:"i" help:"Give the command standard input, as run does unless it is given -d."`
	Quiet       bool       `short:"q" help:"Print only the command's output, and errors."`
	Session     string     `placeholder:"KEY" help:"With --host: use the sandbox that has this key, or create it. It stays after the command."`
	Detach      bool       `short:"d" help:"With --host: print the sandbox's ID when the command has started, and leave it there."`
	Command     []Argument `arg:"" optional:"" passthrough:"partial" help:"The command and its arguments, after --. Without one the project's steps run."`
	Service
}

// idle is how long a sandbox stays whose client is gone, in seconds.
const idle = 60

// lastRequest bounds the time for removing the sandbox at the end.
const lastRequest = 2 * time.Minute

// Run runs the command on the service.
func (c RunCmd) Run(e *Env) error {
	process, err := request(c.Command, c.Env, c.Secret)
	if err != nil {
		return err
	}
	if c.Detach && (c.TTY || c.Interactive) {
		return failure("custody exec -it SANDBOX -- CMD starts another command with a terminal", "-d: the command has no terminal and no input")
	}
	box, err := c.sandbox()
	if err != nil {
		return err
	}
	service, err := c.client()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(e.Context, os.Interrupt) // until the command gets signals
	defer stop()
	s, err := service.Create(ctx, box)
	if err != nil {
		return explain(err)
	}
	lives := false
	defer func() {
		if !lives {
			e.destroy(s)
		}
	}()
	process.Stdin = !c.Detach
	if c.TTY {
		process.Terminal = window(e.Stdin)
	}
	p, err := s.Start(ctx, process)
	if err != nil {
		lives = c.Session != ""
		return explain(err)
	}
	stop()
	lives = c.Session != "" || c.Detach
	if c.Detach {
		if !c.Quiet {
			e.Say(fmt.Sprintf("process %s: custody logs -f %s %[1]s", p.Name, s.ID))
		}
		_, err := fmt.Fprintln(e.Stdout, s.ID)
		return err
	}
	err = e.finish(e.attach(p, c.TTY, true))
	if !c.Quiet {
		e.Say(fmt.Sprintf("run %s of %s, process %s", s.ID, c.Host, p.Name))
	}
	return err
}

// sandbox returns the request for the sandbox.
func (c RunCmd) sandbox() (client.SandboxRequest, error) {
	r := client.SandboxRequest{Template: c.Template, Isolation: c.Isolation, Session: c.Session}
	if c.Session == "" && !c.Detach {
		r.IdleSeconds = idle
	}
	if c.Project != nil {
		r.Project = *c.Project
	}
	if c.Policy != "" {
		b, err := read(c.Policy, maxRoots)
		if err != nil {
			return r, err
		}
		r.Policy = string(b)
	}
	return r, nil
}

// destroy destroys a sandbox at the end of a command.
func (e *Env) destroy(s *client.Box) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.Context), lastRequest)
	defer cancel()
	if err := s.Destroy(ctx); err != nil {
		e.Say(fmt.Sprintf("the sandbox %s could not be destroyed, and ends when it is idle: %v", s.ID, err))
	}
}

// ExecCmd runs a command in an existing sandbox.
type ExecCmd struct {
	Env         []string   `short:"e" sep:"none" placeholder:"NAME[=VALUE]" help:"Set a plain environment variable; NAME alone uses the value in this environment. The record contains it."`
	Secret      []string   `placeholder:"NAME,..." help:"Give the command this secret of the project (default: none)."`
	Dir         string     `short:"w" placeholder:"PATH" help:"The command's directory (default: /workspace)."`
	User        string     `short:"u" placeholder:"NAME" help:"The sandbox's user that the command runs as (default: root)."`
	Interactive bool       `short:"i" help:"Give the command standard input."`
	TTY         bool       `name:"tty" short:"t" help:"Give the command a terminal."`
	Detach      bool       `short:"d" help:"Print the process's name when the command has started, and leave it there."`
	Sandbox     string     `arg:"" help:"The ID of the sandbox."`
	Command     []Argument `arg:"" passthrough:"partial" help:"The command and its arguments, after --."`
	Service
}

// Run runs the command. If this program is ended by SIGTERM or SIGHUP, so is the command.
func (c ExecCmd) Run(e *Env) error {
	r, err := request(c.Command, c.Env, c.Secret)
	if err != nil {
		return err
	}
	if c.Detach && (c.TTY || c.Interactive) {
		return failure("leave -d out, or -i and -t", "-d: the command has no terminal and no input")
	}
	service, err := c.client()
	if err != nil {
		return err
	}
	r.Cwd, r.User, r.Stdin = c.Dir, c.User, c.Interactive
	if c.TTY {
		r.Terminal = window(e.Stdin)
	}
	p, err := service.Sandbox(c.Sandbox).Start(e.Context, r)
	if err != nil {
		return explain(err)
	}
	if c.Detach {
		_, err := fmt.Fprintln(e.Stdout, p.Name)
		return err
	}
	return e.finish(e.attach(p, c.TTY, c.Interactive))
}
