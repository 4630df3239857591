//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/custody-project/custody/command"
)

// groups are the headings of the list of commands.
var groups = []kong.Group{
	{Key: "run", Title: "Run and control sandboxes:"},
	{Key: "service", Title: "Use the sandboxes of a service:"},
	{Key: "runs", Title: "Inspect runs:"},
	{Key: "proof", Title: "Prove and verify:"},
	{Key: "store", Title: "Store, export and delete records:"},
	{Key: "host", Title: "Host and program:"},
}

// newParser returns the parser of the command line into c, a cli or a part of one. It calls exit after it has printed help or the version to stdout.
func newParser(c any, stdout, stderr io.Writer, exit func()) *kong.Kong {
	parser, err := kong.New(c,
		kong.Name("custody"), kong.Description("Runs an agent's commands in a microVM and keeps a record that can be checked."),
		kong.Writers(stdout, stderr), kong.Exit(func(int) { exit() }), kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.ExplicitGroups(groups), kong.Vars{"version": "custody " + version()},
	)
	if err != nil {
		panic(err) // the tags of cli are wrong
	}
	return parser
}

type helpCmd struct {
	Command []string `arg:"" optional:"" help:"The command, such as run or key rotate; without one, the list of commands."`
}

// Run prints what the command prints with --help.
func (c helpCmd) Run(a *app) error {
	for _, word := range c.Command {
		if strings.HasPrefix(word, "-") {
			return command.Usage(fmt.Errorf("%.40q is not a command", word))
		}
	}
	printed := false
	parser := newParser(new(cli), a.stdout, a.stderr, func() { printed = true })
	if err := checkCommand(parser.Model.Node, c.Command); err != nil {
		return err
	}
	_, err := parser.Parse(append(c.Command, "--help"))
	if printed {
		return nil
	}
	return err
}

// checkCommand returns an error unless words are a command, or a group of commands, below node.
func checkCommand(node *kong.Node, words []string) error {
	if len(words) == 0 {
		return nil
	}
	for _, child := range node.Children {
		if child.Name == words[0] {
			return checkCommand(child, words[1:])
		}
	}
	return &command.Misuse{Err: fmt.Errorf("there is no command '%s %.40s'", node.FullPath(), words[0]), Command: node.FullPath()}
}

// parseMisuse adds the command to an error of parsing its arguments.
func parseMisuse(err error) error {
	parse := new(kong.ParseError)
	if errors.As(err, &parse) && parse.Context != nil && parse.Context.Selected() != nil {
		return &command.Misuse{Err: err, Command: parse.Context.Selected().FullPath()}
	}
	return &command.Misuse{Err: err, Command: "custody"}
}
