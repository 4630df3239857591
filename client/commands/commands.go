// Package commands has the commands that use the sandboxes of a service on another machine: run, ps, exec, logs, kill, cp, port, sandbox and destroy. They
// need neither privileges nor any state on this machine, and are the same on Linux and macOS.
package commands

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/custody-project/custody/client"
)

// All are the commands that only a service has.
type All struct {
	Ps      PsCmd      `cmd:"" group:"service" help:"List the sandboxes of a service, or the processes of a sandbox."`
	Exec    ExecCmd    `cmd:"" group:"service" help:"Run a command in a sandbox of a service."`
	Logs    LogsCmd    `cmd:"" group:"service" help:"Print the output of a process of a sandbox."`
	Kill    KillCmd    `cmd:"" group:"service" help:"Send a signal to a process of a sandbox, or to all of them."`
	Cp      CpCmd      `cmd:"" group:"service" help:"Copy files and directories into a sandbox of a service, or out of it."`
	Port    PortCmd    `cmd:"" group:"service" help:"Make TCP ports of a sandbox reachable on this machine until interrupted."`
	Sandbox SandboxCmd `cmd:"" group:"service" help:"Pause, resume and fork sandboxes of a service."`
	Destroy DestroyCmd `cmd:"" group:"service" help:"End sandboxes of a service, and close their records."`
}

// Env is what the commands use of the process.
type Env struct {
	Context        context.Context // it ends if the user wants the command to end
	Stdin          *os.File
	Stdout, Stderr io.Writer
	Say            func(text string) // prints a message
}

// Exit ends the program with the code of a command, without a message.
type Exit int

// Error implements error.
func (e Exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// Failure is an error with a hint what the user can do about it.
type Failure struct {
	text, hint string
	cause      error
}

// Error implements error.
func (f *Failure) Error() string { return f.text }

// Hint returns what the user can do.
func (f *Failure) Hint() string { return f.hint }

// Unwrap returns the cause, nil if there is none.
func (f *Failure) Unwrap() error { return f.cause }

func failure(hint, format string, args ...any) *Failure {
	return &Failure{text: fmt.Sprintf(format, args...), hint: hint}
}

// hints are those to problems whose own hints are for programs.
var hints = map[string]string{
	"no-sandbox":    "custody ps lists the sandboxes",
	"no-process":    "custody ps SANDBOX lists its processes",
	"not-listening": "start a server there on 127.0.0.1, ::1 or all addresses",
	"ended":         "custody runs on the host lists its runs, the first of which has its ID; create another sandbox with custody run -d",
	"state-missing": "its records stay; create another sandbox with custody run -d",
	"state-expired": "its records stay; create another sandbox with custody run -d",
	"state-altered": "end it with custody destroy, and create another one with custody run -d",
	"state-budget":  "end paused sandboxes with custody destroy, or have an administrator raise paused.budget in host.yaml",
}

// explain returns the error of a request with a hint.
func explain(err error) error {
	var p *client.Problem
	var untrusted *tls.CertificateVerificationError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &p):
		hint, ok := hints[p.Type[strings.LastIndexByte(p.Type, ':')+1:]]
		if !ok {
			hint = p.Hint
		}
		text := p.Detail
		if text == "" {
			text = p.Title
		}
		return &Failure{text, hint, err}
	case errors.As(err, &untrusted):
		return &Failure{err.Error(), "give the certificate of the authority that issued the service's with --ca-file FILE", err}
	case errors.Is(err, syscall.ECONNREFUSED):
		return &Failure{err.Error(), "check the address, and that custody serve runs there", err}
	}
	return err
}
