//go:build linux

package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/secrets"
)

type secretsCmd struct {
	Check secretsCheckCmd `cmd:"" help:"Mint each of a project's secrets, revoke it again, and print the results. No value is shown."`
}

type secretsCheckCmd struct {
	Trust  bool   `help:"Accept the project file's requests without asking."`
	Policy string `type:"path" placeholder:"FILE" help:"The project's file (default: custody.yaml here)."`
}

// Run tests each secret separately.
func (c secretsCheckCmd) Run(a *app) error {
	path := c.Policy
	if path == "" {
		path = project.Name
	}
	p, err := project.Load(a.ctx, path)
	if err != nil {
		return err
	}
	h, err := a.home()
	if err != nil {
		return err
	}
	if err := run.CheckTrust(a.ctx, h, &p, path, trustPrompt{yes: c.Trust, in: a.stdin, out: a.stderr, say: a.Say}.accept); err != nil {
		return err
	}
	all, err := run.OpenBrokers(a.ctx, h, p, path, run.CheckRun)
	if err != nil {
		return err
	}
	defer all.Close(a.ctx)
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SECRET\tSOURCE\tDELIVERED\tRESULT")
	bad := 0
	for _, b := range run.Bindings(p) {
		result := "ok"
		if err := all.Try(a.ctx, b, filepath.Dir(path)); err != nil {
			result, bad = err.Error(), bad+1
		}
		scheme, _, _ := strings.Cut(b.From, ":")
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", b.Name, scheme, deliveries(b.Deliver), console.Clean(result))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if bad > 0 {
		return exitCode(1)
	}
	return nil
}

func deliveries(d secrets.Deliver) string {
	var list []string
	for _, w := range []struct{ kind, name string }{{"header", d.Header}, {"env", d.Env}, {"file", d.File}, {"token", d.Token}} {
		if w.name != "" {
			list = append(list, w.kind+" "+w.name)
		}
	}
	if len(list) == 0 {
		return "masked only"
	}
	return strings.Join(list, ", ")
}
