package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/sandbox"
	"github.com/custody-project/custody/worker"
)

// Live is a run without steps, in whose sandbox processes are started until Options.Serve returns. It is safe for concurrent use.
type Live struct {
	job     *Job
	session *worker.Session
	count   atomic.Int64
}

// Command is a process to start in a live run.
type Command struct {
	Argv      []string
	Env       []project.Variable // in addition to the project's and the run's
	Dir       string             // "": /workspace
	User      string             // of the sandbox; "": root
	Secrets   []string           // names of the project's secrets that it gets
	Time      time.Duration      // limit; 0: only the run's
	Terminal  *channel.Winsize   // nil: it has none
	Term      string             // type of the terminal, for TERM
	Immediate bool               // output is shown without delay instead of in blocks
}

// Process is a process of a live run.
type Process struct {
	*worker.Started
	Name string // of its step in the record
	live *Live
}

// Run returns the ID of the run.
func (l *Live) Run() string { return l.job.id }

// Tier returns the isolation tier of the run.
func (l *Live) Tier() string { return l.job.details.Tier }

// FileCall is an operation on a file of a live run.
type FileCall = sandbox.FileCall

// Filed is such an operation that was started.
type Filed = worker.Filed

// CommandError is why a command cannot be started: its description is wrong.
type CommandError struct{ Err error }

// Error implements error.
func (e *CommandError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *CommandError) Unwrap() error { return e.Err }

// Start starts a process. An error can be a CommandError. The files are its standard streams; see worker.Session.Start.
func (l *Live) Start(ctx context.Context, c Command, stdin, stdout, stderr *os.File) (*Process, error) {
	p, err := l.process("", c)
	if err != nil {
		return nil, &CommandError{err}
	}
	started, err := l.session.Start(ctx, p, stdin, stdout, stderr)
	if err != nil {
		return nil, err
	}
	return &Process{started, p.Name, l}, nil
}

// process returns a command as the worker starts it. An empty name is replaced by a new one.
func (l *Live) process(name string, c Command) (p worker.Process, err error) {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return p, errors.New("there is nothing to run: the command is empty")
	}
	o := l.job.o
	names, err := o.Project.BindsAsked(c.Secrets)
	if err != nil {
		return p, err
	}
	if clash := o.Project.Clash(names); clash != "" {
		return p, errors.New(clash)
	}
	o.Env = append(o.Env[:len(o.Env):len(o.Env)], c.Env...)
	vars, err := planner{&o, l.job.messages}.variables(nil, names)
	if err != nil {
		return p, err
	}
	env := l.job.environ(Console{Window: c.Terminal, Term: c.Term})
	if c.User != "" {
		env = withoutUser(env)
	}
	if name == "" {
		name = fmt.Sprint("p", l.count.Add(1))
	}
	return worker.Process{
		Name: name, Argv: c.Argv, Env: env, Vars: vars, Dir: audit.Text(cmp.Or(c.Dir, "/workspace")), User: audit.Text(c.User), Secrets: names, Time: c.Time,
		Terminal: c.Terminal, Live: c.Immediate,
	}, nil
}

// File starts an operation on a file; see worker.Session.File.
func (l *Live) File(ctx context.Context, c FileCall, pipe *os.File) (*Filed, error) {
	return l.session.File(ctx, c, pipe)
}

// Quiet returns for how long the processes have done nothing; see worker.Session.
func (l *Live) Quiet(ctx context.Context) (time.Duration, error) { return l.session.Quiet(ctx) }

// Ports returns the TCP ports on which processes of the run listen.
func (l *Live) Ports(ctx context.Context) ([]int, error) { return l.session.Ports(ctx) }

// Dial connects to a port; see worker.Session.Dial.
func (l *Live) Dial(ctx context.Context, c worker.Connection) (*worker.Tunnel, error) {
	return l.session.Dial(ctx, c)
}

// Signal sends a signal to the process's group.
func (p *Process) Signal(ctx context.Context, sig syscall.Signal) error {
	return p.live.session.Signal(ctx, p.Name, sig)
}

// Resize sets the size of the process's terminal.
func (p *Process) Resize(ctx context.Context, size channel.Winsize) error {
	return p.live.session.Resize(ctx, p.Name, size)
}
