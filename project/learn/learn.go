package learn

import (
	"path/filepath"
	"slices"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/project"
)

// Suggestion is a change of a project file. Its texts come from the sandbox and may be hostile.
type Suggestion struct {
	Diff     []byte // from the file to the changed one; empty: the file already allows all that rules should allow
	Warnings []netpolicy.Warning
	Notes    []string             // about traffic that is not among the questions
	Asked    int                  // number of questions
	Left     []netpolicy.Question // denied by the policy, and no rule should allow them
}

// Suggest returns the change of the project file text, called name, that allows the traffic. With keep it keeps everything that
// the file allows and only adds rules.
func Suggest(name string, text []byte, present project.File, t *Traffic, keep bool) (Suggestion, error) {
	policy, err := present.Policy()
	if err != nil {
		return Suggestion{}, err
	}
	s := Suggestion{Notes: t.notes(), Asked: len(t.questions)}
	learnRules := netpolicy.Learn
	if keep {
		learnRules = netpolicy.LearnMore
	}
	rules, left := learnRules(policy, t.questions)
	for _, q := range left {
		if !netpolicy.Decide(policy, q).Allow {
			s.Left = append(s.Left, q)
		}
	}
	if passes(policy, t.questions, left) {
		return s, nil
	}
	changed, err := project.WithEgress(name, text, rules)
	if err != nil {
		return s, err
	}
	shown := filepath.Base(name)
	s.Diff = diff.Diff("a/"+shown, text, "b/"+shown, changed)
	s.Warnings, err = warnings(name, changed, rules)
	return s, err
}

// passes reports whether a policy allows all questions except those in left.
func passes(p *netpolicy.Policy, questions, left []netpolicy.Question) bool {
	return !slices.ContainsFunc(questions, func(q netpolicy.Question) bool {
		return !netpolicy.Decide(p, q).Allow && !slices.Contains(left, q)
	})
}

// warnings returns those about the rules, with their lines in the changed file if it can be parsed.
func warnings(name string, changed []byte, rules []netpolicy.Rule) ([]netpolicy.Warning, error) {
	p, err := netpolicy.New(rules)
	if err != nil {
		return nil, err
	}
	if f, err := project.Parse(name, changed); err == nil {
		if placed, err := f.Policy(); err == nil {
			p = placed
		}
	}
	return netpolicy.Warnings(p), nil
}
