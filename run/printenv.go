package run

import (
	"errors"
	"fmt"
	"io"

	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/redact/pattern"
)

// PrintEnv prints the plain variables of a project file to w. Values that look like credentials are masked.
func PrintEnv(w io.Writer, p project.File) error {
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
