//go:build linux

package main

import (
	"fmt"

	"github.com/custody-project/custody/command"
	"github.com/custody-project/custody/replay/show"
	"github.com/custody-project/custody/store"
)

type runsCmd struct {
	JSON    bool   `name:"json" help:"One JSON object per run."`
	Limit   int    `short:"n" help:"Show at most this many." default:"0"`
	Status  string `enum:",running,sealed,interrupted" default:"" help:"Only runs with this status."`
	From    string `placeholder:"TIME" help:"Only runs that began at this time or later: 2026-11-03, 2026-11-03 14:32 or RFC 3339."`
	Until   string `placeholder:"TIME" help:"Only runs that began before this time; a date includes that day."`
	Project string `predictor:"project" placeholder:"NAME" help:"Only runs of this project."`
	Tenant  string `placeholder:"NAME" help:"Only runs of this tenant; (none) are those without one."`
	Access  bool   `help:"List the access logs of custody serve instead."`
	Deleted bool   `help:"List the runs that retention deleted, from this host's signed statements, instead."`
	command.ZoneFlag
}

// Run lists the runs.
func (c runsCmd) Run(a *app) error { return a.perform(command.Runs(c)) }

type rebuildCmd struct{}

func (rebuildCmd) Run(a *app) error {
	h, err := a.home()
	if err != nil {
		return err
	}
	n, err := h.Shipping().Rebuild(a.ctx)
	if err != nil {
		return err
	}
	a.Say(fmt.Sprintf("the store was rebuilt from %d segments; the old one is custody.db.damaged", n))
	return h.Tidy(a.ctx, a.Say)
}

type timelineCmd struct {
	Name     string   `arg:"" name:"run|file" predictor:"run" help:"The run, a prefix of its id, or last; or the file of a bundle, - for standard input." default:"last" optional:""`
	Key      []string `placeholder:"KEY|FILE" help:"Of a bundle: show it only if it verifies with this public key (default: this host's keys)."`
	Kind     []string `short:"k" help:"Only records of these kinds." placeholder:"KIND,..."`
	At       string   `placeholder:"TIME" help:"The state at an instant, and the records of its second: a date and time, HH:MM[:SS] of the run's day, or +1.5s from its start."`
	From     string   `placeholder:"TIME" help:"Only records of this time or later, in the same forms."`
	Until    string   `placeholder:"TIME" help:"Only records until the end of this millisecond, or of this date."`
	Follow   bool     `short:"f" help:"Continue until the run ends."`
	JSON     bool     `name:"json" help:"The records' exact bytes, one per line; a marked one is an object with its mark."`
	HTML     bool     `name:"html" help:"One HTML page without scripts that needs no other file."`
	Notes    bool     `name:"notes" help:"With --json: also the records of notes on the run, after its own."`
	Relative bool     `short:"r" help:"Times since the run's start."`
	command.ZoneFlag
}

// Run shows a run of the host, or a bundle's file.
func (c timelineCmd) Run(a *app) error {
	shown := command.Timeline(c)
	if err := shown.Check(); err != nil {
		return err
	}
	if c.Name == store.Last {
		return a.perform(shown)
	}
	file, err := isFile(c.Name)
	if err != nil {
		return err
	}
	if !file {
		return a.perform(shown)
	}
	b, err := a.openBundle(c.Name, c.Key)
	if err != nil {
		return err
	}
	return shown.Show(a.ctx, a.env(), show.Bundle(b, a.layout()))
}
