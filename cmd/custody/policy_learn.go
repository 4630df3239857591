//go:build linux

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"

	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/command"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/project"
)

type policyLearnCmd struct {
	Name   string `arg:"" name:"run" predictor:"run" help:"The run, a prefix of its id, or last." default:"last" optional:""`
	Policy string `placeholder:"FILE" help:"Compare with this file (default: custody.yaml here)."`
	Keep   bool   `help:"Keep all rules of the file, and only add missing ones."`
}

// Run proposes a policy.
func (c policyLearnCmd) Run(a *app) error {
	l := command.LearnPolicy{Name: c.Name, File: cmp.Or(c.Policy, project.Name), Keep: c.Keep}
	var err error
	l.Text, err = regular.Given(a.ctx, l.File, statement.MaxGiven)
	if err != nil && (c.Policy != "" || !errors.Is(err, fs.ErrNotExist)) { // the default file may be missing
		return fmt.Errorf("open project file: %w", err)
	}
	return a.perform(l)
}
