package run

import (
	"fmt"
	"slices"

	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/redact/pattern"
)

// Warnings returns a warning for each plain variable of the run whose value looks like a credential.
func (o *Options) Warnings() ([]string, error) {
	used := project.File{Env: slices.Concat(o.Project.Env, o.Env)}
	if len(o.Command) == 0 {
		used.Steps = o.Project.Steps
	}
	return EnvWarnings(o.File, used)
}

// EnvWarnings returns a warning for each plain variable of p, a project's file of that name, whose value looks like a credential.
func EnvWarnings(file string, p project.File) (warnings []string, err error) {
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
