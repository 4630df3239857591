package command

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/project/learn"
	"github.com/custody-project/custody/store"
)

// LearnPolicy proposes the smallest policy that allows a run's traffic.
type LearnPolicy struct {
	Name string // the run, a prefix of its ID, or last
	File string // name of the project file to compare with; it is not opened
	Text []byte // its contents; nil: there is none
	Keep bool   `json:",omitempty"`
}

// Path implements Command.
func (LearnPolicy) Path() string { return "policy learn" }

func (c LearnPolicy) access() access {
	c.Text = nil
	return access{action: "view", about: c.Name, query: c}
}

// Execute implements Command.
func (c LearnPolicy) Execute(ctx context.Context, e *Env) error {
	file := project.Default()
	if c.Text != nil {
		var err error
		if file, err = project.Parse(c.File, c.Text); err != nil {
			return err
		}
	}
	run, traffic, err := c.traffic(ctx, e)
	if err != nil {
		return err
	}
	s, err := learn.Suggest(c.File, c.Text, file, traffic, c.Keep)
	if err != nil {
		return err
	}
	for _, n := range s.Notes {
		e.Say(n)
	}
	if s.Asked == 0 {
		e.Say("run " + run + " requested nothing outside its sandbox")
		return nil
	}
	for _, q := range s.Left {
		e.Say("not learnt: " + q.String() + ": if this is meant, write the rule by hand")
	}
	if len(s.Diff) == 0 {
		e.Say(fmt.Sprintf("%s already allows all traffic of run %s that rules should allow", c.File, run))
		return nil
	}
	e.Warn(RuleWarnings("b/"+filepath.Base(c.File), s.Warnings))
	e.Say("these are requests of code in the sandbox, good or bad: read each line before you take it; nothing was changed")
	_, err = e.Stdout.Write(s.Diff)
	return err
}

// traffic returns the network traffic that a run requested.
func (c LearnPolicy) traffic(ctx context.Context, e *Env) (string, *learn.Traffic, error) {
	h, st, err := e.Reader(ctx)
	if err != nil {
		return "", nil, err
	}
	defer st.Close()
	marks, err := h.Checks().Marks(st)
	if err != nil {
		return "", nil, err
	}
	r, err := st.Run(ctx, "", c.Name)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	t, err := learn.Read(r, store.WithMarks(ctx, st.Records(ctx, learn.Records(r)), marks))
	return r.ID, t, err
}

// RuleWarnings returns the texts of warnings about the rules of a project file, in the file's order.
func RuleWarnings(file string, warnings []netpolicy.Warning) (texts []string) {
	slices.SortStableFunc(warnings, func(x, y netpolicy.Warning) int { return cmp.Compare(x.Rule.Line, y.Rule.Line) })
	for _, w := range warnings {
		texts = append(texts, fmt.Sprintf("%s: %s; %s", at(file, w.Rule), w.Message, w.Hint))
	}
	return texts
}

// at returns the position of a rule in the format of errors.
func at(file string, r *netpolicy.Rule) string {
	if r.Line == 0 {
		return r.String()
	}
	return fmt.Sprintf("%s:%d:%d", file, r.Line, r.Column)
}
