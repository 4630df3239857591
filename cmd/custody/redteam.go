package main

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"

	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/redteam"
	"github.com/custody-project/custody/run"
)

type redteamCmd struct {
	List bool   `help:"Print the probes and make none."`
	JSON bool   `name:"json" help:"One JSON object a probe."`
	Only string `placeholder:"GLOB" help:"Make only the probes whose ID matches, such as 'dns/*', and the controls that belong to them."`
}

func (c redteamCmd) Run(a *app) error {
	list, err := redteam.Match(redteam.Probes(""), c.Only)
	if err != nil {
		return err
	}
	if c.List {
		return c.list(a, list)
	}
	if err := run.RequireRoot(); err != nil {
		return err
	}
	h, err := a.open()
	if err != nil {
		return err
	}
	outcomes, run, err := redteam.Attack{Host: h, Only: c.Only, Version: version(), Say: a.Say}.Run(a.ctx)
	if err != nil {
		return err
	}
	return c.judge(a, outcomes, run)
}

func (c redteamCmd) list(a *app, list []redteam.Probe) error {
	if c.JSON {
		return printJSON(a, list)
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PROBE\tFAMILY\tBYPASS\tWHAT IT TRIES")
	for _, p := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", p.ID, p.Family, p.Bypass, p.Title)
	}
	return w.Flush()
}

func printJSON[T any](a *app, list []T) error {
	enc := json.NewEncoder(a.stdout)
	for _, v := range list {
		if err := enc.Encode(v); err != nil {
			return err
		}
	}
	return nil
}

// judge prints the outcomes.
func (c redteamCmd) judge(a *app, outcomes []redteam.Outcome, run string) error {
	if c.JSON {
		if err := printJSON(a, outcomes); err != nil {
			return err
		}
	} else if err := table(a, outcomes); err != nil {
		return err
	}
	a.Say(fmt.Sprintf("run %s: custody timeline %s", run, run))
	if code := redteam.ExitCode(outcomes); code != 0 {
		return exitCode(code)
	}
	return nil
}

func table(a *app, outcomes []redteam.Outcome) error {
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PROBE\tFAMILY\tBLOCKED\tRECORDED\tWHAT THE RECORD SAYS")
	var probes, held, controls, worked int
	for _, o := range outcomes {
		blocked := yes(o.Blocked)
		if o.Control {
			controls++
			worked += count(o.Holds())
			blocked = map[bool]string{true: "(works)", false: "DOES NOT WORK"}[!o.Blocked]
		} else {
			probes++
			held += count(o.Holds())
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", o.ID, o.Family, blocked, yes(o.Recorded), console.Clean(o.Detail[:min(len(o.Detail), 160)]))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(a.stdout, "\n%d of %d probes blocked and recorded, %d of %d controls work\n", held, probes, worked, controls)
	return err
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "NO"
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}
