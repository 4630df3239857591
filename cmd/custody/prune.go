//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/docker/go-units"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/console"
)

type pruneCmd struct {
	DryRun bool `name:"dry-run" help:"Only print what would be removed and what would be kept."`
}

func (c pruneCmd) Run(a *app) error {
	h, err := a.open()
	if err != nil {
		return err
	}
	p, err := h.Retention().Prune(a.ctx, c.DryRun)
	deleted, removed := "deleted", "removed"
	if c.DryRun {
		deleted, removed = "would delete", "would remove"
	}
	for _, run := range p.Deleted {
		a.Say(deleted + " run " + run)
	}
	for _, kept := range p.KeptRuns {
		a.Say("kept run " + kept.Run + ", which is due: " + strings.ReplaceAll(kept.Why.Error(), "\n", "; "))
	}
	a.Say(fmt.Sprintf("%s %d segments (%s)", removed, p.Segments, units.BytesSize(float64(p.Bytes))))
	if p.Kept > 0 {
		a.Say(fmt.Sprintf("kept %d segments that are due: the store does not have them whole, or no checkpoint covers them yet", p.Kept))
	}
	return err
}

type holdCmd struct {
	Name    string `arg:"" name:"run" predictor:"run" optional:"" help:"The run, or a prefix of its id. Without it, list the held runs."`
	Reason  string `help:"Reason of the hold."`
	By      string `help:"Name of the requester (default: you)."`
	Release bool   `help:"Release the hold."`
}

func (c holdCmd) Run(a *app) error {
	h, err := a.open()
	if err != nil {
		return err
	}
	if c.Name == "" {
		all, err := h.Retention().Holds()
		if err != nil {
			return err
		}
		if len(all) == 0 {
			a.Say("no run is held")
			return nil
		}
		return printHolds(a.stdout, all)
	}
	run, err := h.Logs().Run(a.ctx, "", c.Name)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	if c.Release {
		return h.Retention().Release(run.ID)
	}
	if c.Reason == "" {
		return errors.New("a hold needs a reason: give --reason")
	}
	if c.By == "" {
		c.By = whoAmI()
	}
	return h.Retention().Hold(host.Hold{Run: run.ID, Reason: c.Reason, By: c.By})
}

// printHolds prints a table of held runs to out.
func printHolds(out io.Writer, all []host.Hold) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RUN\tSINCE\tBY\tREASON")
	for _, hold := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", hold.Run, hold.Time.Format("2006-01-02 15:04:05"), console.Clean(hold.By), console.Clean(hold.Reason))
	}
	return w.Flush()
}
