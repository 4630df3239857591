package run

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/project"
)

// step is a step of the run: the command, or a step of the project.
type step struct {
	name    string
	argv    []string
	dir     string
	secrets []string // names of the secrets that it gets
	vars    []string // plain variables, NAME=VALUE
	time    time.Duration
}

// planner plans the steps of a run.
type planner struct {
	o        *Options
	messages *messages
}

// plan returns the steps of the run with their secrets and plain variables.
func (p planner) plan() (steps []step, err error) {
	file := &p.o.Project
	if p.o.Serve != nil {
		return nil, nil
	}
	if len(p.o.Command) == 0 && len(file.Steps) == 0 {
		return nil, errors.New("there is nothing to run: give a command, or steps in " + project.Name)
	}
	if len(p.o.Command) > 0 {
		return p.command()
	}
	if len(p.o.Secrets) > 0 {
		return nil, fmt.Errorf("secrets %s: they are chosen for a command; the steps of %s name their own", strings.Join(p.o.Secrets, ", "), p.o.File)
	}
	for i, s := range file.Steps {
		planned := step{name: s.Name, argv: []string{"/bin/sh", "-c", s.Run}, dir: "/workspace", secrets: file.Binds(s), time: s.Time}
		if s.Workdir != "" {
			planned.dir = s.Workdir
		}
		if planned.vars, err = p.variables(&file.Steps[i], planned.secrets); err != nil {
			return nil, err
		}
		steps = append(steps, planned)
	}
	return steps, nil
}

func (p planner) command() ([]step, error) {
	file := &p.o.Project
	names, err := file.BindsAsked(p.o.Secrets)
	if err != nil {
		return nil, err
	}
	if clash := file.Clash(names); clash != "" {
		return nil, errors.New(clash)
	}
	var others []string
	for _, b := range Bindings(*file) {
		if !slices.Contains(names, b.Name) {
			others = append(others, b.Name)
		}
	}
	if len(others) > 0 {
		p.messages.progress("secrets that the command does not get: " + strings.Join(others, ", ") + "; --secret NAME gives it one")
	}
	vars, err := p.variables(nil, names)
	return []step{{name: "main", argv: p.o.Command, dir: "/workspace", secrets: names, vars: vars}}, err
}

// variables returns the plain variables, NAME=VALUE, of a step that gets the named secrets. s is nil for a command.
func (p planner) variables(s *project.Step, names []string) ([]string, error) {
	list, err := p.o.Project.Variables(s, names, p.o.Env)
	if e := new(project.Error); errors.As(err, &e) {
		if e.File = p.o.File; e.Line == 0 {
			e.File = "--env"
		}
	}
	if err != nil {
		return nil, err
	}
	var vars []string
	for _, v := range list {
		vars = append(vars, v.String())
	}
	return vars, nil
}

// Variables of root; the guest sets those of other users.
const (
	rootHome    = "HOME=/root"
	rootUser    = "USER=root"
	rootLogname = "LOGNAME=root"
)

// withoutUser returns env without the variables of root.
func withoutUser(env []string) []string {
	return slices.DeleteFunc(env, func(kv string) bool { return kv == rootHome || kv == rootUser || kv == rootLogname })
}

// environ returns the environment of all steps.
func (j *Job) environ(c Console) []string {
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", rootHome, rootUser, rootLogname,
		"LANG=C.UTF-8", "SHELL=/bin/sh", "CUSTODY_RUN=" + j.id,
	}
	if c.Window != nil && c.Term != "" {
		env = append(env, "TERM="+c.Term)
	}
	if j.policy.OpensTLS() {
		env = append(env, channel.TrustEnv()...)
	}
	return append(env, j.details.Env...)
}

// describeExit describes how a failed step's command ended.
func describeExit(e channel.Exit) string {
	how := fmt.Sprintf("exit code %d", e.Code)
	if e.Signal != 0 {
		how = fmt.Sprintf("killed by %s, %s", unix.SignalName(syscall.Signal(e.Signal)), how)
	}
	if e.OOM {
		how += ", out of memory: raise limits.memory"
	}
	return how
}
