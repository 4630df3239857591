package commands

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/custody-project/custody/client"
	"github.com/custody-project/custody/internal/console"
)

// PsCmd lists sandboxes, or the processes of one.
type PsCmd struct {
	JSON    bool   `name:"json" help:"One JSON object for each, as the API has it."`
	Sandbox string `arg:"" optional:"" help:"The ID of the sandbox whose processes to list."`
	Service
}

// Run prints the list.
func (c PsCmd) Run(e *Env) error {
	service, err := c.client()
	if err != nil {
		return err
	}
	if c.Sandbox == "" {
		list, err := service.List(e.Context)
		return c.print(e, err, func() error { return console.WriteJSONLines(e.Stdout, list) }, func(w io.Writer) { sandboxTable(w, list) })
	}
	list, err := service.Sandbox(c.Sandbox).Processes(e.Context)
	return c.print(e, err, func() error { return console.WriteJSONLines(e.Stdout, list) }, func(w io.Writer) { processTable(w, list) })
}

// print prints a list as JSON or as a table, unless the request for it has failed.
func (c PsCmd) print(e *Env, err error, json func() error, table func(io.Writer)) error {
	if err != nil {
		return explain(err)
	}
	if c.JSON {
		return json()
	}
	w := tabwriter.NewWriter(e.Stdout, 0, 0, 2, ' ', 0)
	table(w)
	return w.Flush()
}

func sandboxTable(w io.Writer, list []client.Sandbox) {
	fmt.Fprintln(w, "SANDBOX\tSTATE\tAGE\tPROCESSES\tPROJECT\tSESSION\tCALLER")
	for _, s := range list {
		state := s.State
		if s.Position > 0 {
			state = fmt.Sprintf("%s, place %d", state, s.Position)
		}
		if (s.State == statePaused || s.State == stateArchived) && s.Paused != nil {
			state = fmt.Sprintf("%s for %s", state, age(*s.Paused))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n", console.Clean(s.ID), console.Clean(cmp.Or(s.Error, state)), age(s.Created), s.Running,
			console.OrDash(s.Project), console.OrDash(s.Session), console.OrDash(s.Caller))
	}
}

func processTable(w io.Writer, list []client.StartedProcess) {
	fmt.Fprintln(w, "PROCESS\tSTATE\tAGE\tUSER\tCOMMAND")
	for _, p := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", console.Clean(p.Name), console.Clean(stateOf(p)), age(p.Started), console.OrDash(cmp.Or(p.User, "root")), commandOf(p.Argv))
	}
}

// stateOf describes whether a process runs, and how it ended.
func stateOf(p client.StartedProcess) string {
	switch {
	case p.Ended == nil:
		return "running"
	case p.ExitCode == nil:
		return "ended: " + p.Error
	case p.Signal != "":
		return p.Signal
	}
	return fmt.Sprintf("exit %d", *p.ExitCode)
}

// longestCommand bounds a command in a table, in characters.
const longestCommand = 80

func commandOf(argv []string) string {
	text := []rune(console.Clean(strings.Join(argv, " ")))
	if len(text) > longestCommand {
		return string(text[:longestCommand-3]) + "..."
	}
	return string(text)
}

// age returns the time since an instant in whole seconds.
func age(since time.Time) string { return time.Since(since).Truncate(time.Second).String() }
