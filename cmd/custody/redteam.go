//go:build linux

package main

import (
	"fmt"

	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/redteam"
	"github.com/custody-project/custody/run"
)

type redteamCmd struct {
	List      bool   `help:"Print the probes without running them."`
	JSON      bool   `name:"json" help:"One JSON object per probe."`
	Isolation string `placeholder:"TIER" help:"Attack sandboxes of this isolation tier (default: the best that works)."`
	Only      string `placeholder:"GLOB" help:"Run only the probes whose ID matches, such as 'dns/*', and the controls that belong to them."`
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
	outcomes, run, err := redteam.Attack{Host: h, Only: c.Only, Tier: c.Isolation, Version: version(), Say: a.Say}.Run(a.ctx)
	if err != nil {
		return err
	}
	return c.judge(a, outcomes, run)
}

func (c redteamCmd) list(a *app, list []redteam.Probe) error {
	if c.JSON {
		return console.WriteJSONLines(a.stdout, list)
	}
	return redteam.WriteProbes(a.stdout, list)
}

// judge prints the outcomes and returns the exit code as an error.
func (c redteamCmd) judge(a *app, outcomes []redteam.Outcome, run string) error {
	if c.JSON {
		if err := console.WriteJSONLines(a.stdout, outcomes); err != nil {
			return err
		}
	} else if err := redteam.WriteOutcomes(a.stdout, outcomes); err != nil {
		return err
	}
	a.Say(fmt.Sprintf("run %s: custody timeline %s", run, run))
	if code := redteam.ExitCode(outcomes); code != 0 {
		return exitCode(code)
	}
	return nil
}
