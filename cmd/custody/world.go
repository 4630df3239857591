package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/custody-project/custody/redteam/world"
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
	code, err := a.inWorld(w, c.Command)
	if err != nil {
		return err
	}
	a.tellSeen(w)
	return exitCode(code)
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

// tellSeen says what got out that nobody meant to.
func (a *app) tellSeen(w *world.World) {
	for _, r := range w.Requests() {
		a.say(fmt.Sprintf("a server got: %s %s%s", r.Method, r.Host, r.URI))
	}
	seen := w.Seen()
	for _, s := range seen {
		a.say("the attacker saw: " + s.String())
	}
	if len(seen) == 0 && w.Lost() == 0 {
		a.say("the attacker saw nothing")
	}
}
