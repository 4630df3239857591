//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/custody-project/custody/doctor"
	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/run"
)

type doctorCmd struct {
	JSON bool `name:"json" help:"One JSON object per finding."`
}

func (c doctorCmd) Run(a *app) error {
	h, err := a.home()
	if err != nil {
		return err
	}
	templates, err := run.Templates(h, a.Writer())
	if err != nil {
		return err
	}
	found := doctor.Checks{Host: h, Templates: templates, Notice: a.Say}.All(a.ctx)
	if c.JSON {
		if err := console.WriteJSONLines(a.stdout, found); err != nil {
			return err
		}
	} else if err := printFindings(a.stdout, found); err != nil {
		return err
	}
	if slices.ContainsFunc(found, func(f doctor.Finding) bool { return f.Grade == doctor.Missing }) {
		return exitCode(1)
	}
	return nil
}

func printFindings(out io.Writer, found []doctor.Finding) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, f := range found {
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.Grade, f.Name, console.Clean(f.Detail))
		if f.Hint != "" {
			fmt.Fprintf(w, "\t\t-> %s\n", f.Hint)
		}
	}
	return w.Flush()
}
