//go:build linux

package main

import (
	"os"

	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/command"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/service/remote"
)

type policySetCmd struct {
	Name string `arg:"" name:"run" predictor:"run" help:"The run, a prefix of its id, or last."`
	File string `arg:"" type:"path" help:"The project's file with the new egress rules."`

	Trust bool `help:"Accept the project file's requests without asking."`
}

// Run changes the policy of a live run.
func (c policySetCmd) Run(a *app) error {
	file, err := regular.Given(a.ctx, c.File, statement.MaxGiven)
	if err != nil {
		return err
	}
	p, err := project.Parse(c.File, file) // with its name and line numbers
	if err != nil {
		return err
	}
	set := command.SetPolicy{Name: c.Name, File: c.File, Text: file}
	if remote.Socket(os.Getenv) != "" {
		if c.Trust {
			return command.Usage(errNoTrust)
		}
		return a.perform(set)
	}
	h, err := a.home()
	if err != nil {
		return err
	}
	if err := run.CheckTrust(a.ctx, h, &p, c.File, trustPrompt{yes: c.Trust, in: a.stdin, out: a.stderr, say: a.Say}.accept); err != nil {
		return err
	}
	return a.perform(set)
}
