//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"text/tabwriter"
	"time"

	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/internal/regular"
)

type keyFleetCmd struct {
	New   keyFleetNewCmd   `cmd:"" help:"Make a root key on this machine, and print its public half for auditors."`
	Show  keyFleetShowCmd  `cmd:"" help:"Print the public root key of the fleet."`
	Enrol keyFleetEnrolCmd `cmd:"" help:"Sign a statement that a public key belongs to a host, with the root key of this machine, and print it."`
	Add   keyFleetAddCmd   `cmd:"" help:"Store statements about hosts, to make and check bundles of their runs here."`
	List  keyFleetListCmd  `cmd:"" help:"List the enrolled hosts."`
}

type keyFleetNewCmd struct {
	Name string `arg:"" help:"The fleet's name, as the root key's signatures state it: fleet.example.com."`
}

func (c keyFleetNewCmd) Run(a *app) error {
	h, err := a.home()
	if err != nil {
		return err
	}
	public, err := h.Fleet().Create(c.Name)
	if err != nil {
		return err
	}
	fmt.Fprintln(a.stdout, public)
	a.Say("give it to auditors, and to the hosts as fleet: {root: KEY} in " + host.ConfigFile)
	return nil
}

type keyFleetShowCmd struct{}

func (keyFleetShowCmd) Run(a *app) error {
	h, err := a.home()
	if err != nil {
		return err
	}
	public, err := h.Fleet().Root()
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("this host has no fleet: custody key fleet new NAME makes a root key, and fleet: {root: KEY} in " + host.ConfigFile + " names one")
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.stdout, public)
	return err
}

type keyFleetEnrolCmd struct {
	Key   string `arg:"" name:"key|file" help:"The host's public key: what custody key show prints there. Get it over a trusted channel."`
	Again bool   `help:"The host's key was rotated: this one succeeds the enrolled one."`
}

func (c keyFleetEnrolCmd) Run(a *app) error {
	h, err := a.home()
	if err != nil {
		return err
	}
	key, err := statement.KeyText(a.ctx, c.Key)
	if err != nil {
		return err
	}
	signed, err := h.Fleet().Enrol(key, c.Again)
	if err != nil {
		return err
	}
	_, err = a.stdout.Write(signed)
	return err
}

type keyFleetAddCmd struct {
	Files []string `arg:"" name:"file" type:"existingfile" help:"Statements that custody key fleet enrol printed."`
}

func (c keyFleetAddCmd) Run(a *app) error {
	h, err := a.home()
	if err != nil {
		return err
	}
	for _, file := range c.Files {
		signed, err := regular.Given(a.ctx, file, statement.MaxGiven)
		if err == nil {
			err = h.Fleet().Add(signed)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

type keyFleetListCmd struct{}

func (keyFleetListCmd) Run(a *app) error {
	h, err := a.home()
	if err != nil {
		return err
	}
	hosts, err := h.Fleet().Hosts()
	if err != nil {
		return err
	}
	if len(hosts) == 0 {
		a.Say("no host is enrolled here")
		return nil
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, e := range hosts {
		fmt.Fprintf(w, "%s\t%s\t%s\n", console.Clean(e.Host.Host), e.Time.Format(time.DateTime), console.Clean(e.Key))
	}
	return w.Flush()
}
