//go:build linux

package main

import (
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/notify"
)

type notifyCmd struct {
	Test notifyTestCmd `cmd:"" help:"Send a test message to each webhook and hook, and print the answers."`
	Ls   notifyLsCmd   `cmd:"" help:"List the webhooks and hooks with pending and delivered messages and the last error."`
	Send notifySendCmd `cmd:"" help:"Deliver pending messages, once."`
}

type notifyTestCmd struct {
	Name []string `arg:"" optional:"" help:"Only these webhooks and hooks of host.yaml."`
}

func (c notifyTestCmd) Run(a *app) error {
	h, err := a.home()
	if err != nil {
		return err
	}
	web := h.Outside.Web()
	defer web.Close()
	results := notify.Try(a.ctx, h.Config().Notify, web, host.NotifyHost(h), c.Name...)
	if len(results) == 0 {
		return errors.New(host.ConfigFile + " has no webhook or hook under notify: docs/notify.md shows one")
	}
	failed := false
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, r := range results {
		answer := "ok\t" + console.Clean(r.Answer)
		if r.Err != nil {
			failed, answer = true, "FAILED\t"+console.Clean(r.Err.Error())
		}
		fmt.Fprintf(w, "%s\t%s\n", r.Name, answer)
	}
	if err := w.Flush(); err != nil || !failed {
		return err
	}
	return exitCode(1)
}

type notifyLsCmd struct{}

func (notifyLsCmd) Run(a *app) error {
	h, err := a.home()
	if err != nil {
		return err
	}
	states := notify.States(h.Notifications(), h.Config().Notify)
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tWAITING\tDELIVERED\tDROPPED\tLAST\tERROR")
	for _, s := range states {
		last := "-"
		if !s.Last.IsZero() {
			last = s.Last.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%s\n", s.Name, s.Waiting, s.Delivered, s.Dropped, last, console.OrDash(console.Clean(s.Error)))
	}
	return w.Flush()
}

type notifySendCmd struct{}

func (notifySendCmd) Run(a *app) error {
	h, err := a.home()
	if err != nil {
		return err
	}
	web := h.Outside.Web()
	defer web.Close()
	return notify.Deliver(a.ctx, h.Notifications(), h.Config().Notify, web, a.Say)
}
