//go:build linux

package main

import (
	"fmt"

	"github.com/custody-project/custody/command"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/run"
)

type policyCmd struct {
	Check   policyCheckCmd   `cmd:"" help:"Check a project's file; errors come with line and column, warnings name broad rules."`
	Explain policyExplainCmd `cmd:"" help:"Print what the policy decides for a destination, and why: exit 0 allowed, 1 denied."`
	Learn   policyLearnCmd   `cmd:"" help:"Propose the smallest policy that allows a run's traffic, as a diff to read."`
	Set     policySetCmd     `cmd:"" help:"Apply a file's egress rules to a live run."`
}

type policyCheckCmd struct {
	File   string `arg:"" default:"custody.yaml" optional:""`
	Strict bool   `help:"Exit 1 if there are warnings."`
}

func (c policyCheckCmd) Run(a *app) error {
	f, err := project.Load(a.ctx, c.File)
	if err != nil {
		return err
	}
	p, err := f.Policy()
	if err != nil {
		return err
	}
	warnings := command.RuleWarnings(c.File, netpolicy.Warnings(p))
	a.env().Warn(warnings)
	plain, err := run.EnvWarnings(c.File, f)
	if err != nil {
		return err
	}
	a.env().Warn(plain)
	if c.Strict && len(warnings)+len(plain) > 0 {
		return exitCode(1)
	}
	if _, err := fmt.Fprintf(a.stdout, "%s: ok (egress %s)\n", c.File, p.Digest()); err != nil {
		return err
	}
	return run.PrintEnv(a.stdout, f)
}
