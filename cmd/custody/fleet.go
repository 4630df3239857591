//go:build linux

package main

import (
	"errors"
	"fmt"
	"os/user"

	"github.com/custody-project/custody/host"
)

type shipCmd struct {
	Differ bool `help:"Compare every run on this host with the store's rows, and repair differences in the store."`
}

func (c shipCmd) Run(a *app) error {
	h, err := a.open()
	if err != nil {
		return err
	}
	return h.Shipping().Ship(a.ctx, c.Differ, a.Say)
}

type eraseCmd struct {
	Name   string `arg:"" name:"run" predictor:"run" help:"The run, or a prefix of its id."`
	Seq    uint64 `arg:"" help:"The record's number in the run."`
	Reason string `required:"" help:"The reason; it is part of a signed statement that is kept as long as the run."`
	By     string `help:"Name of the requester (default: you)."`
}

func (c eraseCmd) Run(a *app) error {
	h, err := a.open()
	if err != nil {
		return err
	}
	run, err := h.Logs().Run(a.ctx, "", c.Name)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	if c.By == "" {
		c.By = whoAmI()
	}
	if err := h.Erasures().Erase(a.ctx, host.Erasure{Run: run.ID, Seq: c.Seq, Reason: c.Reason, By: c.By}); err != nil {
		return err
	}
	a.Say(fmt.Sprintf("erased seq %d of run %s; its hash stays, and the run verifies", c.Seq, run.ID))
	a.Say("copies that left this host (bundles, exports, back-ups) are not reached by this")
	return nil
}

func whoAmI() string {
	u, err := user.Current()
	if err != nil || u.Username == "" {
		return "unknown"
	}
	return u.Username
}

var errNoTransport = errors.New("there is no transport: give --nats URL, or transport: in host.yaml")
