package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/redact/pattern"
)

// warnEnv warns of plain variables whose values look like credentials, and returns how many there are.
func (a *app) warnEnv(file string, p project.File) (found int, err error) {
	vars := slices.Clone(p.Env)
	for _, s := range p.Steps {
		vars = append(vars, s.Env...)
	}
	if len(vars) == 0 {
		return 0, nil
	}
	patterns, err := pattern.New()
	if err != nil {
		return 0, err
	}
	for _, v := range vars {
		if len(patterns.Find(nil, []byte(v.String()))) == 0 {
			continue
		}
		at := "--env"
		if v.Line > 0 {
			at = fmt.Sprintf("%s:%d:%d", file, v.Line, v.Column)
		}
		a.Say("warning: " + at + ": the plain variable " + v.Name + " looks like a credential; define a secret with deliver: {env: " + v.Name + "}")
		found++
	}
	return found, nil
}

// printEnv prints the plain variables of a project's file. Values that look like credentials are masked.
func (a *app) printEnv(p project.File) error {
	mask, err := pattern.NewRedactor(nil)
	if err != nil {
		return err
	}
	var errs []error
	line := func(where string, vars []project.Variable) {
		for _, v := range vars {
			_, err := fmt.Fprintf(a.stdout, "  %s: %s\n", where, console.Clean(mask.String(v.String())))
			errs = append(errs, err)
		}
	}
	line("env", p.Env)
	for _, s := range p.Steps {
		line("env of step "+s.Name, s.Env)
	}
	return errors.Join(errs...)
}
