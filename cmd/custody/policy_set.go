package main

import (
	"errors"
	"fmt"

	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/run"
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
	h, err := a.home()
	if err != nil {
		return err
	}
	if err := run.CheckTrust(a.ctx, h, &p, c.File, trustPrompt{yes: c.Trust, in: a.stdin, out: a.stderr, say: a.Say}.accept); err != nil {
		return err
	}
	id, err := h.Control().Find(c.Name)
	if err != nil {
		return err
	}
	change, err := h.Control().SetPolicy(a.ctx, id, file)
	if errors.Is(err, host.ErrNotLive) {
		return fmt.Errorf("%w; custody runs lists the runs, a policy for the next one goes into its project's file", err)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "%s: generation %d, %s (before: %s), flows ended: %d\n", id, change.Generation, change.Digest, change.Previous, change.Ended)
	return err
}
