package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/secrets/local"
)

// bindSecrets fetches the values that the project names and makes the redactor
// know them, so that they are masked wherever they turn up. Nothing is handed
// to the sandbox in this version. It returns the names.
func (j *job) bindSecrets() ([]string, error) {
	dir := "."
	if j.cmd.Policy != "" {
		dir = filepath.Dir(j.cmd.Policy)
	}
	names := slices.Sorted(maps.Keys(j.project.Secrets))
	for _, name := range names {
		value, err := local.Resolve(j.ctx, j.project.Secrets[name].From, dir)
		if err != nil {
			return nil, fmt.Errorf("secret %s: %w", name, err)
		}
		if err := j.redactor.Add(name, value); err != nil {
			return nil, fmt.Errorf("secret %s: %w", name, err)
		}
		clear(value)
		if j.project.Secrets[name].Deliver != (project.Deliver{}) {
			j.say("secret " + name + ": this version hands no value to a step; it is only masked wherever it turns up")
		}
	}
	return names, nil
}
