//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/command"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/internal/regular"
)

type fsckCmd struct {
	JSON    bool     `name:"json" help:"One JSON object per problem."`
	Since   string   `type:"existingfile" placeholder:"FILE" help:"An earlier checkpoint that you kept elsewhere: this host's log must be an extension of it."`
	Witness []string `placeholder:"KEY|POLICY|all" help:"Check whether this witness of host.yaml, those of this policy file, or all of host.yaml have seen more of this host's log than this host has."`
	Quorum  int      `placeholder:"N" help:"Number of witnesses that must answer (default: the policy's quorum; all that are named by key)."`
}

func (c fsckCmd) Run(a *app) error {
	h, err := a.open()
	if err != nil {
		return a.env().CannotBeJudged(a.ctx, err)
	}
	o, err := c.options(a.ctx, h)
	if err != nil {
		return a.env().CannotBeJudged(a.ctx, err)
	}
	checked, err := h.Checks().Fsck(a.ctx, o)
	if err != nil {
		return a.env().CannotBeJudged(a.ctx, err)
	}
	for _, p := range checked.Problems {
		if err := c.print(a, p); err != nil {
			return err
		}
	}
	projects := ""
	if checked.Projects > 0 {
		projects = fmt.Sprintf(", %d versions of registered projects", checked.Projects)
	}
	a.Say(fmt.Sprintf("%d runs, %d live and left out, %d segments, %d entries of the host's log%s: %d problems",
		checked.Runs, checked.Live, checked.Segments, checked.Entries, projects, len(checked.Problems)))
	if checked.Unknown > 0 {
		a.Say(fmt.Sprintf("%d runs of other hosts are not checked: their keys are not known here (docs/keys.md)", checked.Unknown))
	}
	if checked.Unasked != nil {
		a.Complain(checked.Unasked)
	}
	switch {
	case len(checked.Problems) > 0:
		first := checked.Problems[0]
		a.env().NotifyFailed(a.ctx, h, first.Run, fmt.Sprintf("fsck: %d problems, the first: %s: %s", len(checked.Problems), first.Name(), first.Error()))
		return exitDoesNotHold
	case checked.Unasked != nil:
		return exitCannotBeKnown
	}
	return nil
}

func (c fsckCmd) print(a *app, p host.Problem) error {
	if c.JSON {
		line := map[string]any{"run": p.Run, "segment": p.Segment, "name": p.Name(), "problem": p.Err.Error()}
		if hint := p.Hint(); hint != "" {
			line["hint"] = hint
		}
		return json.NewEncoder(a.stdout).Encode(line)
	}
	fmt.Fprintf(a.stdout, "%s: %s\n", p.Name(), console.Clean(p.Error()))
	if hint := p.Hint(); hint != "" {
		a.Say("hint: " + hint)
	}
	return nil
}

// options returns the options that the flags select.
func (c fsckCmd) options(ctx context.Context, h *host.Host) (o host.FsckOptions, err error) {
	if c.Since != "" {
		if o.Since, err = regular.Given(ctx, c.Since, statement.MaxGiven); err != nil {
			return o, err
		}
	}
	if o.Quorum = c.Quorum; c.Quorum < 0 || c.Quorum > 0 && len(c.Witness) == 0 {
		return o, command.Usage(errors.New("--quorum is how many of the witnesses have to answer: give --witness"))
	}
	if len(c.Witness) == 0 {
		return o, nil
	}
	if o.Witnesses, err = h.ManifestLog().GivenWitnesses(ctx, c.Witness); err != nil {
		return o, fmt.Errorf("--witness: %w", err)
	}
	if n := len(o.Witnesses.Peers()); c.Quorum > n {
		return o, command.Usage(fmt.Errorf("--quorum %d of %d witnesses", c.Quorum, n))
	}
	return o, nil
}
