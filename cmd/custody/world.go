package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/redteam/world"
	"github.com/custody-project/custody/secrets"
	"github.com/custody-project/custody/secrets/local"
)

type worldCmd struct {
	Command []string `arg:"" passthrough:"partial" help:"The command and its arguments, after --."`
}

// Run runs a command on a host of its own in the red team's little internet,
// and tells what was seen outside of it.
func (c worldCmd) Run(a *app) (err error) {
	if err := needRoot(); err != nil {
		return err
	}
	if c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	if len(c.Command) == 0 {
		return errors.New("give a command after --, such as: custody world -- custody run -- true")
	}
	w, err := world.New(a.ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	red, err := a.worldRedactor(w, c.Command)
	if err != nil {
		return err
	}
	a.mask = red.String
	code, err := a.inWorld(w, c.Command)
	if err != nil {
		return err
	}
	a.tellSeen(w, red)
	return exitCode(code)
}

// worldRedactor knows the key of the world's model, the values of the command's project that can be read without
// minting, and what looks like a secret.
func (a *app) worldRedactor(w *world.World, argv []string) (*redact.Redactor, error) {
	h, err := a.home()
	if err != nil {
		return nil, err
	}
	tag, err := h.TagKey()
	if err != nil {
		return nil, err
	}
	red, err := newRedactor(tag)
	if err != nil {
		return nil, err
	}
	if err := red.Add("world-llm-key", []byte(w.ModelKey())); err != nil {
		return nil, err
	}
	path := policyOf(argv)
	p, err := project.Load(a.ctx, path)
	if err != nil {
		return red, nil // the command says what is wrong with it
	}
	values, _ := local.Broker{}.Tell(secrets.Request{Bindings: bindings(p), Dir: filepath.Dir(path)})
	for name, value := range values {
		if err := red.Add(name, value); err != nil {
			a.say("the secret " + name + " is not masked here: " + err.Error())
		}
	}
	return red, nil
}

// policyOf returns the path of the project's file of a custody command.
func policyOf(argv []string) string {
	for i, arg := range argv {
		if path, ok := strings.CutPrefix(arg, "--policy="); ok {
			return path
		}
		if arg == "--policy" && i+1 < len(argv) {
			return argv[i+1]
		}
	}
	return project.Name
}

// inWorld runs a command that trusts the world's authority, and has the key of its model in
// WORLD_LLM_KEY.
func (a *app) inWorld(w *world.World, argv []string) (code int, err error) {
	dir, err := os.MkdirTemp("", "custody-world-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ca := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, w.CA(), 0o644); err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(a.ctx, argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.stdin, a.stdout, a.stderr
	cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+ca, "WORLD_LLM_KEY="+w.ModelKey())
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	err = w.Run(cmd)
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		return 0, fmt.Errorf("run %s: %w", argv[0], err)
	}
	return cmd.ProcessState.ExitCode(), nil
}

// tellSeen says what got out that nobody meant to. What was seen of a packet is its beginning only, and masked
// before it is shortened.
func (a *app) tellSeen(w *world.World, red *redact.Redactor) {
	for _, r := range w.Requests() {
		a.say(fmt.Sprintf("a server got: %s %s%s", r.Method, r.Host, r.URI))
	}
	seen := w.Seen()
	for _, s := range seen {
		s.Text = red.Cut(s.Text)
		a.say("the attacker saw: " + s.String())
	}
	if len(seen) == 0 && w.Lost() == 0 {
		a.say("the attacker saw nothing")
	}
}
