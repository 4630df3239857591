//go:build linux

package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/custody-project/custody/command"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/replay/report"
	"github.com/custody-project/custody/replay/report/issue"
	"github.com/custody-project/custody/store"
)

type reportCmd struct {
	Runs      []string `arg:"" name:"run" predictor:"run" optional:"" help:"The runs, prefixes of their ids, or last. Without one, and without --from and --to: last."`
	Framework string   `short:"f" required:"" placeholder:"NAME" help:"soc2, iso27001, nist80053, pci, gdpr or euaiact."`
	From      string   `placeholder:"TIME" help:"Runs that began at this time or later: 2026-11-03, 2026-11-03 14:32, RFC 3339; in UTC, unless a zone follows."`
	To        string   `placeholder:"TIME" help:"Runs that began before this time; a date includes that day."`
	Tenant    *string  `placeholder:"NAME" help:"Only runs of this tenant; (none) are those without one. With --from or --to the default is host.yaml's."`
	Out       string   `short:"o" type:"path" placeholder:"DIR" help:"Write the report as HTML and JSON there, signed, with a bundle of each run."`
	JSON      bool     `name:"json" help:"Print the report as JSON."`
}

func (c reportCmd) Run(a *app) error {
	if !slices.ContainsFunc(report.Frameworks(), func(f report.Framework) bool { return f.ID == c.Framework }) {
		return &report.UnknownError{Framework: c.Framework}
	}
	h, st, err := a.env().Reader(a.ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	in := report.Input{Framework: c.Framework}
	if in.From, in.To, err = replay.ParseSpan(c.From, c.To); err != nil {
		return err
	}
	issuer := issue.Issuer{Host: h, Source: st, Version: version()}
	runs, err := c.runs(a, issuer, in)
	if err != nil {
		return err
	}
	in.Runs = issuer.Verify(a.ctx, runs)
	r, err := issuer.Build(a.ctx, in)
	switch {
	case err != nil:
		return err
	case c.Out != "":
		return c.write(a, issuer, r)
	case c.JSON:
		return r.JSON(a.stdout)
	}
	if err := r.Summary(a.stdout); err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.stdout, "\n-o DIR writes all of it, with each claim's records, signed.")
	return err
}

// runs returns the runs that the arguments select, of one tenant.
func (c reportCmd) runs(a *app, issuer issue.Issuer, in report.Input) ([]store.Run, error) {
	tenant := ""
	if c.Tenant != nil {
		tenant = store.TenantFilter(*c.Tenant)
	}
	if c.From == "" && c.To == "" {
		return named(a.ctx, issuer.Source, tenant, c.Runs)
	}
	if len(c.Runs) > 0 {
		return nil, command.Usage(errors.New("give either runs, or --from and --to"))
	}
	runs, omitted, err := issuer.During(a.ctx, in.From, in.To, tenant)
	if omitted != "" {
		a.Say(omitted)
	}
	return runs, err
}

// write writes the report's files into the directory.
func (c reportCmd) write(a *app, issuer issue.Issuer, r *report.Report) error {
	if err := issuer.WriteDir(a.ctx, c.Out, r); err != nil {
		return err
	}
	a.Say("wrote " + filepath.Join(c.Out, report.Folder+c.Framework+".html") + ", signed, and the runs' bundles beside it")
	keys, err := issuer.RetiredKeys(r)
	for _, key := range keys {
		a.Say("an older key of this host signed some of these runs: give the verifier that one too, with a second --key: " + key)
	}
	return err
}
