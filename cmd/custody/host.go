//go:build linux

package main

import (
	"os"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/hostd"
	"github.com/custody-project/custody/metrics/hostmetrics"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/service"
)

type hostCmd struct {
	Socket string `default:"/run/custody/host.sock" placeholder:"PATH" help:"The unix socket to listen at."`
	Warm   int    `placeholder:"N" help:"Keep up to this many warm sandboxes for each project with recent runs, which start faster (default: none)."`
	Max    uint16 `placeholder:"N" help:"Let runs have this many sandboxes at the same time; further ones wait (default: 16 for each processor)."`
	User   string `default:"custody" placeholder:"NAME" help:"The user that custody serve runs as. No other user but root can connect."`
}

// Run serves custody serve until the program is ended.
func (c hostCmd) Run(a *app) error {
	if err := run.RequireHost(); err != nil {
		return err
	}
	h, err := a.home()
	if err != nil {
		return err
	}
	if err := a.service(h, "host"); err != nil {
		return err
	}
	if h.ManifestLog().Served() == nil { // the first time: what is not complete in this log, which the service continues
		a.env().Tidy(a.ctx, h)
	}
	templates, err := run.Templates(h, a.Writer())
	if err != nil {
		return err
	}
	d := hostd.Daemon{
		Home: h, Templates: templates, Socket: c.Socket, User: c.User, Idle: c.Warm, Max: int(c.Max), Notice: a.Say, Ready: service.Ready,
		Meters: hostmetrics.New(version()), Log: a.Log,
	}
	return d.Serve(a.ctx)
}

// opener returns what opens the host's state if custody host has the key; nil: this process has it.
func (a *app) opener() func(dir string) (*host.Host, error) {
	c := a.privileged()
	if c == nil {
		return nil
	}
	return func(dir string) (*host.Host, error) {
		h, err := c.OpenHome(a.ctx, dir)
		if err == nil {
			h.CloseLog = run.CloseLogThrough(c)
		}
		return h, err
	}
}

// privileged returns the client of custody host; nil: this process needs none.
func (a *app) privileged() *hostd.Client {
	if socket := os.Getenv(hostd.SocketEnv); socket != "" && a.hostd == nil {
		a.hostd = hostd.NewClient(socket)
	}
	return a.hostd
}
