//go:build linux

package main

import (
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/command"
	"github.com/custody-project/custody/internal/regular"
)

type bundleCmd struct {
	Name    string   `arg:"" name:"run" predictor:"run" help:"The run, a prefix of its id, or last."`
	Out     string   `short:"o" required:"" type:"path" placeholder:"FILE" help:"The file to write."`
	Since   string   `type:"existingfile" placeholder:"FILE" help:"An earlier checkpoint: include a proof that the host's log is an extension of it."`
	Records []string `placeholder:"SEQ,.." help:"Disclose only these records, such as 40-60,71; the bundle marks the others as withheld and still verifies."`
	Context bool     `help:"With --records: show steps, policies, operations on the VM and findings, too."`
}

// Run writes the bundle of a run.
func (c bundleCmd) Run(a *app) error {
	b := command.Bundle{Name: c.Name, Out: c.Out, Records: c.Records, Context: c.Context}
	if err := b.Check(); err != nil {
		return err
	}
	if c.Since != "" {
		var err error
		if b.Since, err = regular.Given(a.ctx, c.Since, statement.MaxGiven); err != nil {
			return err
		}
	}
	return a.perform(b)
}
