package run

import (
	"fmt"
	"slices"
	"strings"

	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/project"
)

// Beyond means that a run of no registered project asks for more than the defaults.
type Beyond struct {
	what   string
	beyond []string
}

// Error implements error.
func (e *Beyond) Error() string {
	list := slices.Clone(e.beyond)
	for i, line := range list {
		list[i] = console.Clean(line)
	}
	return fmt.Sprintf("%s asks for more than a run of no registered project gets through the service:\n  %s", e.what, strings.Join(list, "\n  "))
}

// Hint returns what to do about it.
func (e *Beyond) Hint() string {
	return "an administrator can register the project: custody project apply FILE; then its runs need no more"
}

// WithinDefaults returns an error if a run of no registered project asks for more than the defaults: a service carries out no more for its
// users. s is the source that was set.
func (o *Options) WithinDefaults(s Source) error {
	if o.Base != nil {
		return nil
	}
	e := &Beyond{what: "the command line"}
	base := project.Default()
	if o.Template != "" && o.Template != base.Template {
		e.beyond = append(e.beyond, fmt.Sprintf("--template %s; the default is %s", o.Template, base.Template))
	}
	if t := o.Isolation; t != "" && !base.AllowsTier(t) && t != o.Home.Config().Isolation.Require {
		e.beyond = append(e.beyond, fmt.Sprintf("--isolation %s; the default is the strongest tier that works", t))
	}
	if s.Text != nil {
		base.Project, e.what = o.Project.Project, o.File
		_, beyond, err := base.Narrow(o.File, s.Text)
		if err != nil {
			return err
		}
		e.beyond = append(e.beyond, beyond...)
	}
	if len(e.beyond) > 0 {
		return e
	}
	return nil
}
