// Custody runs commands in the sandboxes of a service on another machine.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/custody-project/custody/client/commands"
	"github.com/custody-project/custody/internal/console"
)

// cli is the command line on macOS, which has no sandboxes of its own.
type cli struct {
	Run commands.RunCmd `cmd:"" group:"service" help:"Run a command in a sandbox of a service."`
	commands.All
	Version versionCmd `cmd:"" group:"host" help:"Print the version."`
}

type versionCmd struct{}

// Run prints the version.
func (versionCmd) Run(e *commands.Env) error {
	version := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	_, err := fmt.Fprintln(e.Stdout, "custody", version)
	return err
}

const exitFailed = 125 // of Custody itself

func main() { os.Exit(execute(os.Args[1:])) }

func execute(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	defer context.AfterFunc(ctx, stop)() // the second signal kills the process
	stdout, stderr := console.NewOutput(ctx, os.Stdout), console.NewOutput(ctx, os.Stderr)
	messages := &console.Messages{Out: stderr, Name: "custody", Describe: describe}
	done := false
	words, err := parse(args, stdout, stderr, func() { done = true })
	switch {
	case done: // the help was printed
		return 0
	case err != nil:
		messages.Complain(err)
		messages.Say("hint: see 'custody --help'")
		return exitFailed
	}
	err = words.Run(&commands.Env{Context: ctx, Stdin: os.Stdin, Stdout: stdout, Stderr: stderr, Say: messages.Say})
	if exit := commands.Exit(0); errors.As(err, &exit) {
		return int(exit)
	}
	if err = errors.Join(err, stdout.Err()); err != nil {
		messages.Complain(err)
		return exitFailed
	}
	return 0
}

func parse(args []string, stdout, stderr io.Writer, exit func()) (*kong.Context, error) {
	parser, err := kong.New(new(cli),
		kong.Name("custody"), kong.Description("Runs commands in the sandboxes of a service."), kong.Writers(stdout, stderr), kong.Exit(func(int) { exit() }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.ExplicitGroups([]kong.Group{{Key: "service", Title: "Use the sandboxes of a service:"}, {Key: "host", Title: "Program:"}}),
	)
	if err != nil {
		panic(err) // the tags of cli are wrong
	}
	return parser.Parse(args)
}

// describe returns the text of an error, and its hint.
func describe(err error) (text, hint string) {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		hint = h.Hint()
	}
	return err.Error(), hint
}
