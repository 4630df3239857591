// Custody-client is the custody of a host with a service. It carries out `custody run` itself, because each run waits for the start of its
// client, and executes the whole program, which is in the same directory, for the rest: other commands, errors in the command line, and flags
// that need more than a connection to the service.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/run/line"
	"github.com/custody-project/custody/service/remote"
)

const exitFailed = 125

func main() {
	flags, socket := parse(os.Args[1:])
	if flags != nil {
		if r, err := flags.Request(context.Background()); err == nil {
			os.Exit(ask(flags, socket, r))
		}
	}
	fmt.Fprintln(os.Stderr, "custody:", whole(os.Args))
	os.Exit(exitFailed)
}

// parse returns the flags of a run that this program can ask the service at socket for, else nil.
func parse(args []string) (flags *line.Flags, socket string) {
	if len(args) == 0 || args[0] != "run" || os.Getenv("COMP_LINE") != "" {
		return nil, ""
	}
	if socket = remote.Socket(os.Getenv); socket == "" {
		return nil, ""
	}
	var c line.CLI[line.Flags]
	printed := false // help or the version, to io.Discard
	parser, err := kong.New(&c, kong.Writers(io.Discard, io.Discard), kong.Exit(func(int) { printed = true }), kong.Vars{"version": ""})
	if err != nil {
		panic(err) // the tags of line.CLI are wrong
	}
	f := &c.Run
	if _, err := parser.Parse(args); err != nil || printed || !f.Simple() {
		return nil, ""
	}
	return f, socket
}

// ask has the service carry out the run, and returns the exit code.
func ask(flags *line.Flags, socket string, r remote.Request) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	defer context.AfterFunc(ctx, stop)() // the first signal cancels the run; the second kills the process
	stderr, err := console.OwnStderr()
	if err != nil {
		fmt.Fprintln(os.Stderr, "custody:", err)
		return exitFailed
	}
	stdout := console.NewOutput(ctx, os.Stdout)
	m := &console.Messages{Out: console.NewOutput(ctx, stderr), Name: "custody", Describe: console.Describe}
	m.Adopt()
	if err := console.ForbidCores(); err != nil { // input and output may hold secret values
		m.Complain(err)
		return exitFailed
	}
	code, err := flags.Ask(ctx, socket, r, line.Program{Messages: m, Stdin: os.Stdin, Stdout: stdout, Stderr: m.Out})
	if err != nil {
		m.Complain(err)
		return exitFailed
	}
	if err := stdout.Err(); err != nil && code == 0 { // the output is incomplete
		m.Complain(err)
		return exitFailed
	}
	return code
}

// whole executes the whole program in place of this one. It returns only if that fails.
func whole(args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program := filepath.Join(filepath.Dir(self), "custody")
	return fmt.Errorf("execute the whole program: %w", &os.PathError{Op: "exec", Path: program, Err: syscall.Exec(program, args, os.Environ())})
}
