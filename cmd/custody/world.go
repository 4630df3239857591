//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/custody-project/custody/client/commands"
	"github.com/custody-project/custody/command"
	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/redteam/offline"
	"github.com/custody-project/custody/redteam/simnet"
	"github.com/custody-project/custody/run"
)

type worldCmd struct {
	Hosts   bool                `help:"Only list the hosts of the simulated internet."`
	Command []commands.Argument `arg:"" optional:"" passthrough:"partial" help:"The command and its arguments, after --."`
}

// Run runs a command on a separate host in the red team's simulated internet, and reports the traffic that was observed
// outside that host.
func (c worldCmd) Run(a *app) (err error) {
	if c.Hosts {
		return writeHosts(a.stdout, simnet.Hosts())
	}
	if err := run.RequireRoot(); err != nil {
		return err
	}
	argv := commands.Given(c.Command)
	if len(argv) == 0 {
		return command.Usage(errors.New("give a command after --, such as: custody world -- custody run -- true"))
	}
	h, err := a.home()
	if err != nil {
		return err
	}
	s, err := offline.New(a.ctx, h, argv)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	a.Mask = s.Mask
	for _, problem := range s.Problems {
		a.Complain(problem)
	}
	code, err := s.Run(a.ctx, a.stdin, console.Inherited(a.stdout), console.Inherited(a.stderr))
	if err != nil {
		return err
	}
	seen, err := s.Seen()
	for _, line := range seen {
		a.Say(line)
	}
	if err != nil {
		return err
	}
	return exitCode(code)
}

// writeHosts writes a table of hosts.
func writeHosts(out io.Writer, hosts []simnet.Host) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "HOST\tPORTS\tADDRESSES\tWHAT")
	for _, h := range hosts {
		addrs := make([]string, len(h.Addrs))
		for i, a := range h.Addrs {
			addrs[i] = a.String()
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", h.Name, strings.Join(h.Ports, ","), strings.Join(addrs, ","), h.What)
	}
	return table.Flush()
}
