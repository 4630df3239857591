package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/project/learn"
	"github.com/custody-project/custody/store"
)

type policyLearnCmd struct {
	Name   string `arg:"" name:"run" predictor:"run" help:"The run, a prefix of its id, or last." default:"last" optional:""`
	Policy string `placeholder:"FILE" help:"Compare with this file (default: custody.yaml here)."`
	Keep   bool   `help:"Keep all rules of the file, and only add missing ones."`
}

func (c policyLearnCmd) Run(a *app) error {
	name, text, file, err := c.present(a.ctx)
	if err != nil {
		return err
	}
	run, traffic, err := c.traffic(a)
	if err != nil {
		return err
	}
	s, err := learn.Suggest(name, text, file, traffic, c.Keep)
	if err != nil {
		return err
	}
	for _, n := range s.Notes {
		a.Say(n)
	}
	if s.Asked == 0 {
		a.Say("run " + run + " requested nothing outside its sandbox")
		return nil
	}
	for _, q := range s.Left {
		a.Say("not learnt: " + q.String() + ": if this is meant, write the rule by hand")
	}
	if len(s.Diff) == 0 {
		a.Say(fmt.Sprintf("%s already allows all traffic of run %s that rules should allow", name, run))
		return nil
	}
	a.warn(ruleWarnings("b/"+filepath.Base(name), s.Warnings))
	a.Say("these are requests of code in the sandbox, good or bad: read each line before you take it; nothing was changed")
	_, err = a.stdout.Write(s.Diff)
	return err
}

// present reads the file to compare with; it returns nothing if the file does not exist.
func (c policyLearnCmd) present(ctx context.Context) (name string, text []byte, f project.File, err error) {
	if name = c.Policy; name == "" {
		name = project.Name
	}
	text, err = regular.Given(ctx, name, statement.MaxGiven)
	if errors.Is(err, fs.ErrNotExist) && c.Policy == "" {
		return name, nil, project.Default(), nil
	}
	if err != nil {
		return name, nil, f, fmt.Errorf("open project file: %w", err)
	}
	f, err = project.Parse(name, text)
	return name, text, f, err
}

// traffic returns the network traffic that a run requested.
func (c policyLearnCmd) traffic(a *app) (string, *learn.Traffic, error) {
	h, st, err := a.openReader()
	if err != nil {
		return "", nil, err
	}
	defer st.Close()
	marks, err := h.Checks().Marks(st)
	if err != nil {
		return "", nil, err
	}
	r, err := st.Run(a.ctx, "", c.Name)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	t, err := learn.Read(r, store.WithMarks(a.ctx, st.Records(a.ctx, learn.Records(r)), marks))
	return r.ID, t, err
}
