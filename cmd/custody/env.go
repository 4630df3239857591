package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/redact/pattern"
)

// envWarnings returns a warning for each plain variable of p, a project's file of that name, whose value looks like a credential.
func envWarnings(file string, p project.File) (warnings []string, err error) {
	vars := slices.Clone(p.Env)
	for _, s := range p.Steps {
		vars = append(vars, s.Env...)
	}
	if len(vars) == 0 {
		return nil, nil
	}
	patterns, err := pattern.New()
	if err != nil {
		return nil, err
	}
	for _, v := range vars {
		if len(patterns.Find(nil, []byte(v.String()))) == 0 {
			continue
		}
		at := "--env"
		if v.Line > 0 {
			at = fmt.Sprintf("%s:%d:%d", file, v.Line, v.Column)
		}
		warnings = append(warnings, at+": the plain variable "+v.Name+" looks like a credential; define a secret with deliver: {env: "+v.Name+"}")
	}
	return warnings, nil
}

// printEnv prints the plain variables of a project's file to w. Values that look like credentials are masked.
func printEnv(w io.Writer, p project.File) error {
	mask, err := pattern.NewRedactor(nil)
	if err != nil {
		return err
	}
	var errs []error
	line := func(where string, vars []project.Variable) {
		for _, v := range vars {
			_, err := fmt.Fprintf(w, "  %s: %s\n", where, console.Clean(mask.String(v.String())))
			errs = append(errs, err)
		}
	}
	line("env", p.Env)
	for _, s := range p.Steps {
		line("env of step "+s.Name, s.Env)
	}
	return errors.Join(errs...)
}
