package main

import (
	"cmp"
	"fmt"
	"slices"

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
	warnings := ruleWarnings(c.File, netpolicy.Warnings(p))
	a.warn(warnings)
	plain, err := run.EnvWarnings(c.File, f)
	if err != nil {
		return err
	}
	a.warn(plain)
	if c.Strict && len(warnings)+len(plain) > 0 {
		return exitCode(1)
	}
	if _, err := fmt.Fprintf(a.stdout, "%s: ok (egress %s)\n", c.File, p.Digest()); err != nil {
		return err
	}
	return run.PrintEnv(a.stdout, f)
}

// ruleWarnings returns the texts of warnings about the rules of a project file, in the file's order.
func ruleWarnings(file string, warnings []netpolicy.Warning) (texts []string) {
	slices.SortStableFunc(warnings, func(x, y netpolicy.Warning) int { return cmp.Compare(x.Rule.Line, y.Rule.Line) })
	for _, w := range warnings {
		texts = append(texts, fmt.Sprintf("%s: %s; %s", at(file, w.Rule), w.Message, w.Hint))
	}
	return texts
}

// warn prints warnings.
func (a *app) warn(warnings []string) {
	for _, w := range warnings {
		a.Say("warning: " + w)
	}
}

// at returns the position of a rule in the format of errors.
func at(file string, r *netpolicy.Rule) string {
	if r.Line == 0 {
		return r.String()
	}
	return fmt.Sprintf("%s:%d:%d", file, r.Line, r.Column)
}
