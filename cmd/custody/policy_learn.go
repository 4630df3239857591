package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/store"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/project"
)

type policyLearnCmd struct {
	Name   string `arg:"" name:"run" help:"The run, a beginning of its name, or last." default:"last" optional:""`
	Policy string `placeholder:"FILE" help:"The file that the diff is against (default: custody.yaml here)."`
	Keep   bool   `help:"Keep all that the file allows now, and only add what is missing."`
}

func (c policyLearnCmd) Run(a *app) error {
	name, text, file, err := c.present(a.ctx)
	if err != nil {
		return err
	}
	policy, err := file.Policy()
	if err != nil {
		return err
	}
	run, asked, err := c.traffic(a)
	if err != nil {
		return err
	}
	a.tell(asked.notes())
	if len(asked.questions) == 0 {
		a.say("run " + run + " asked for nothing outside of its sandbox")
		return nil
	}
	rules, left := c.learn(policy, asked.questions)
	for _, q := range left {
		if !netpolicy.Decide(policy, q).Allow {
			a.say("not learnt: " + shownQuestion(q) + ": if this is meant, write the rule by hand")
		}
	}
	if passes(policy, asked.questions, left) {
		a.say(fmt.Sprintf("all traffic of run %s that rules should allow passes under %s as it is", run, name))
		return nil
	}
	changed, err := project.WithEgress(name, text, rules)
	if err != nil {
		return err
	}
	return a.suggest(name, text, changed, rules)
}

// present reads the file that the diff is against, or nothing where there is none yet.
func (c policyLearnCmd) present(ctx context.Context) (name string, text []byte, f project.File, err error) {
	if name = c.Policy; name == "" {
		name = project.Name
	}
	text, err = regular.Given(ctx, name, maxGiven)
	if errors.Is(err, fs.ErrNotExist) && c.Policy == "" {
		return name, nil, project.Default(), nil
	}
	if err != nil {
		return name, nil, f, fmt.Errorf("open project file: %w", err)
	}
	f, err = project.Parse(name, text)
	return name, text, f, err
}

// traffic reads what a run asked for. A record that no host signed is an error: who can write to the store does not choose rules.
func (c policyLearnCmd) traffic(a *app) (string, *traffic, error) {
	h, st, err := a.openReader()
	if err != nil {
		return "", nil, err
	}
	defer st.Close()
	marks, err := h.Marks(st)
	if err != nil {
		return "", nil, err
	}
	run, err := st.Run(a.ctx, "", c.Name)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	t := newTraffic()
	rows := st.Records(a.ctx, store.Query{Tenant: run.Tenant, Run: run.ID, Kinds: []audit.Kind{audit.KindDNS, audit.KindFlow, audit.KindHTTP}})
	for row, err := range store.Signed(store.WithMarks(a.ctx, rows, marks)) {
		var wrong *store.MarkError
		if errors.As(err, &wrong) {
			return "", nil, fmt.Errorf("nothing is learnt from run %s, of which the store has what no host signed: %w; custody fsck names all of it", run.ID, err)
		}
		if err != nil {
			return "", nil, err
		}
		if err := t.add(row.Body); err != nil {
			return "", nil, fmt.Errorf("run %s: record %d: %w", run.ID, row.Seq, err)
		}
	}
	return run.ID, t, nil
}

func (c policyLearnCmd) learn(present *netpolicy.Policy, asked []netpolicy.Question) (rules []netpolicy.Rule, left []netpolicy.Question) {
	if c.Keep {
		return netpolicy.LearnMore(present, asked)
	}
	return netpolicy.Learn(present, asked)
}

// passes reports whether a policy allows all that was asked but what is left out.
func passes(p *netpolicy.Policy, asked, left []netpolicy.Question) bool {
	return !slices.ContainsFunc(asked, func(q netpolicy.Question) bool {
		return !netpolicy.Decide(p, q).Allow && !slices.Contains(left, q)
	})
}

// suggest prints the change, to be read. What is wide about it is said beside it.
func (a *app) suggest(name string, before, after []byte, rules []netpolicy.Rule) error {
	shown := filepath.Base(name)
	d := diff.Diff("a/"+shown, before, "b/"+shown, after)
	p, err := netpolicy.New(rules)
	if err != nil {
		return err
	}
	if f, err := project.Parse(name, after); err == nil { // for the lines that they would stand in
		if placed, err := f.Policy(); err == nil {
			p = placed
		}
	}
	a.warn("b/"+shown, netpolicy.Warnings(p))
	a.say("this is what code in the sandbox asked for, good or bad: read each line before you take it; nothing was changed")
	_, err = a.stdout.Write(d)
	return err
}

func (a *app) tell(notes []string) {
	for _, n := range notes {
		a.say(n)
	}
}
