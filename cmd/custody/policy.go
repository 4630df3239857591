package main

import (
	"fmt"

	"github.com/custody-project/custody/project"
)

type policyCmd struct {
	Check policyCheckCmd `cmd:"" help:"Check a project's file; errors come with line and column."`
	Set   policySetCmd   `cmd:"" help:"Put a file's egress rules into force in a run that lives."`
}

type policyCheckCmd struct {
	File string `arg:"" type:"path" default:"custody.yaml" optional:""`
}

func (c policyCheckCmd) Run(a *app) error {
	p, err := project.Load(c.File)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "%s: ok (%s)\n", c.File, digestOf(p))
	return err
}
