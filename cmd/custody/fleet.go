//go:build linux

package main

import (
	"cmp"
	"errors"
	"os"
	"os/user"

	"github.com/custody-project/custody/command"
	"github.com/custody-project/custody/service/remote"
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
	erase := command.Erase{Name: c.Name, Seq: c.Seq, Reason: c.Reason, By: cmp.Or(c.By, whoAmI())}
	if h.ManifestLog().Served() != nil {
		return command.Client{Socket: remote.ServiceSocket(os.Getenv), Env: a.env()}.Erase(a.ctx, h, erase)
	}
	return erase.Execute(a.ctx, a.env())
}

func whoAmI() string {
	u, err := user.Current()
	if err != nil || u.Username == "" {
		return "unknown"
	}
	return u.Username
}

var errNoTransport = errors.New("there is no transport: give --nats URL, or transport: in host.yaml")
