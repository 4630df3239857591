//go:build linux

package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/alecthomas/kong"
	mangokong "github.com/alecthomas/mango-kong"
	kongcompletion "github.com/jotaen/kong-completion"
	"github.com/muesli/roff"
	"github.com/posener/complete"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/project/registry"
	"github.com/custody-project/custody/vmm/template"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish. Evaluate its output: source <(custody completion bash)"`
}

// Run prints the code that sets up tab completion.
func (c completionCmd) Run(ctx *kong.Context) error {
	return (&kongcompletion.Completion{Shell: c.Shell, Code: true}).Run(ctx)
}

// maxCompleted bounds the names that are offered.
const maxCompleted = 50

// answerCompletion answers the shell, and exits, if the shell requests completions in $COMP_LINE.
func answerCompletion(parser *kong.Kong) {
	kongcompletion.Register(parser, kongcompletion.WithPredictors(map[string]complete.Predictor{
		"run":      complete.PredictFunc(completeRuns),
		"template": complete.PredictFunc(completeTemplates),
		"project":  complete.PredictFunc(completeProjects),
	}))
}

// completeRuns lists the newest runs with logs on this host. It opens no files: runs that cannot be listed have no
// completions.
func completeRuns(complete.Args) []string {
	names := []string{"last"}
	dir, err := host.Dir()
	if err != nil {
		return names
	}
	entries, err := os.ReadDir(host.Layout{Dir: dir}.Runs())
	if err != nil {
		return names
	}
	for _, e := range slices.Backward(entries) {
		if e.IsDir() && len(names) <= maxCompleted {
			names = append(names, e.Name())
		}
	}
	return names
}

func completeTemplates(complete.Args) (names []string) {
	dir, err := host.Dir()
	if err != nil {
		return nil
	}
	all, err := template.Store{Dir: host.Layout{Dir: dir}.Templates()}.List()
	if err != nil {
		return nil
	}
	for _, t := range all {
		names = append(names, t.Name)
	}
	return names
}

// completeProjects lists the registered projects that are not withdrawn.
func completeProjects(complete.Args) (names []string) {
	dir, err := host.Dir()
	if err != nil {
		return nil
	}
	all, err := registry.Registry{Dir: host.Layout{Dir: dir}.Projects()}.Projects()
	if err != nil {
		return nil
	}
	for _, v := range all {
		if v.Withdrawn == nil && len(names) < maxCompleted {
			names = append(names, v.Project)
		}
	}
	return names
}

type manCmd struct{}

// Run writes the manual page.
func (manCmd) Run(a *app, parser *kong.Kong) error {
	_, err := fmt.Fprint(a.stdout, mangokong.NewManPage(1, parser.Model).Build(roff.NewDocument()))
	return err
}
