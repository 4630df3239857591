package main

import (
	"archive/zip"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/replay/api"
	"github.com/custody-project/custody/replay/report"
	"github.com/custody-project/custody/store"
)

type reportCmd struct {
	Runs      []string `arg:"" name:"run" predictor:"run" optional:"" help:"The runs, beginnings of their names, or last. Without one, and without --from and --to: last."`
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
	h, st, err := a.openReader()
	if err != nil {
		return err
	}
	defer st.Close()
	in := report.Input{Framework: c.Framework}
	if in.From, in.To, err = replay.ParseSpan(c.From, c.To); err != nil {
		return err
	}
	runs, err := c.runs(a, h, st, in)
	if err != nil {
		return err
	}
	for _, run := range runs {
		in.Runs = append(in.Runs, a.checked(a.ctx, h, st, run))
	}
	r, err := a.build(a.ctx, h, st, in)
	switch {
	case err != nil:
		return err
	case c.Out != "":
		return c.write(a, h, st, r)
	case c.JSON:
		return r.JSON(a.stdout)
	}
	return summary(a.stdout, r)
}

// runs are those that the arguments name, of one tenant.
func (c reportCmd) runs(a *app, h *host.Host, st host.Reader, in report.Input) ([]store.Run, error) {
	tenant := ""
	if c.Tenant != nil {
		tenant = store.TenantFilter(*c.Tenant)
	}
	if c.From == "" && c.To == "" {
		return named(a.ctx, st, tenant, c.Runs)
	}
	if len(c.Runs) > 0 {
		return nil, usageError{errors.New("give either runs, or --from and --to")}
	}
	all, err := st.Runs(a.ctx, store.Filter{Class: store.Sandboxes, Tenant: tenant, From: in.From, To: in.To})
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, errors.New("no run began in that time")
	}
	own := h.Config().Tenant
	if !slices.ContainsFunc(all, func(r store.Run) bool { return r.Tenant == own }) {
		if outsideOf(all[0].Tenant, all) != "" {
			return nil, fmt.Errorf("no run of the tenant %s began in that time: %s", store.TenantFilter(own), outsideOf(own, all))
		}
		own = all[0].Tenant // that of all
	}
	runs := slices.DeleteFunc(slices.Clone(all), func(r store.Run) bool { return r.Tenant != own })
	if outside := outsideOf(own, all); outside != "" {
		a.Say(fmt.Sprintf("the report is about the tenant %s; not in it: %s", store.TenantFilter(own), outside))
	}
	return runs, nil
}

// outsideOf returns which of the runs belong to another tenant, and how to report on them; "" if none does.
func outsideOf(tenant string, runs []store.Run) string {
	others := map[string][]string{}
	for _, r := range runs {
		if r.Tenant != tenant {
			others[store.TenantFilter(r.Tenant)] = append(others[store.TenantFilter(r.Tenant)], r.ID)
		}
	}
	var parts []string
	for _, other := range slices.Sorted(maps.Keys(others)) {
		parts = append(parts, fmt.Sprintf("%s of the tenant %s (--tenant '%s' reports on them)", strings.Join(others[other], ", "), other, other))
	}
	return strings.Join(parts, "; ")
}

// checked is a run with what its verification says now.
func (a *app) checked(ctx context.Context, h *host.Host, st host.Reader, run store.Run) report.Run {
	found, err := h.Checks().VerifyTrusted(ctx, st, run)
	return report.Run{Run: run, Verification: report.Verified(found, err, time.Now().UTC())}
}

// build makes a report of in's runs, which are checked, with the access logs that may tell who looked.
func (a *app) build(ctx context.Context, h *host.Host, st api.Source, in report.Input) (*report.Report, error) {
	marks, err := h.Checks().Marks(st)
	if err != nil {
		return nil, err
	}
	rows := func(run store.Run) replay.Rows {
		return store.WithMarks(ctx, st.Records(ctx, store.Query{Tenant: run.Tenant, Run: run.ID}), marks)
	}
	for i, run := range in.Runs {
		if run.Run.Tenant != in.Runs[0].Run.Tenant {
			return nil, fmt.Errorf("a report is about the runs of one tenant: %s is of %s, %s of %s", in.Runs[0].Run.ID, store.TenantFilter(in.Runs[0].Run.Tenant), run.Run.ID, store.TenantFilter(run.Run.Tenant))
		}
		in.Runs[i].Rows = rows(run.Run)
	}
	in.Tenant = in.Runs[0].Run.Tenant
	in.Generated, in.Version = time.Now().UTC(), version()
	first := in.Runs[0].Run.Start
	for _, run := range in.Runs {
		if run.Run.Start.Before(first) {
			first = run.Run.Start
		}
	}
	logs, err := st.Runs(ctx, store.Filter{Class: store.Accesses, From: first.Add(-host.AccessDay)})
	if err != nil {
		return nil, err
	}
	for _, log := range logs {
		found, err := h.Checks().VerifyTrusted(ctx, st, log)
		in.Access = append(in.Access, report.Run{Run: log, Rows: rows(log),
			Verification: report.Verified(found, err, time.Now().UTC())})
	}
	return report.Build(ctx, in)
}

// write puts the report's files into the directory.
func (c reportCmd) write(a *app, h *host.Host, st api.Source, r *report.Report) error {
	if err := os.MkdirAll(c.Out, 0o700); err != nil {
		return err
	}
	out, err := os.OpenRoot(c.Out)
	if err != nil {
		return err
	}
	defer out.Close()
	err = deliver(a.ctx, h, st, r, "", func(name string, write func(io.Writer) error) error {
		if err := out.MkdirAll(path.Dir(name), 0o700); err != nil {
			return err
		}
		dir, err := out.OpenRoot(path.Dir(name))
		if err != nil {
			return err
		}
		defer dir.Close()
		return regular.ReplaceIn(dir, path.Base(name), write)
	})
	if err == nil {
		a.Say("wrote " + filepath.Join(c.Out, report.Folder+c.Framework+".html") + ", signed, and the runs' bundles beside it")
		err = a.sayKeys(h, r)
	}
	return err
}

// sayKeys names the older keys that signed runs of a report: with the present one alone these cannot be judged.
func (a *app) sayKeys(h *host.Host, r *report.Report) error {
	said := map[string]bool{}
	for _, s := range r.Sources {
		if !s.Whole() || !store.ValidRun(s.Run) {
			continue
		}
		if _, err := os.Stat(h.RunDir(s.Run)); err != nil {
			continue // another host's
		}
		key, retired, err := h.Keys().Of(s.Run)
		if err != nil {
			return err
		}
		if retired && !said[key] {
			said[key] = true
			a.Say("an older key of this host signed some of these runs: give the verifier that one too, with a second --key: " + key)
		}
	}
	return nil
}

// deliver gives put each file of a report: the report itself, the host's statement about it, and of each
// run a bundle that has both as well. by is who asked for it; empty: this host.
// What goes on has no bundle yet; of an access log the bundle shows what is about the report's tenant.
func deliver(ctx context.Context, h *host.Host, st api.Source, r *report.Report, by string, put func(name string, write func(io.Writer) error) error) error {
	files, err := r.Attachments()
	if err != nil {
		return err
	}
	about, err := r.Subjects()
	if err != nil {
		return err
	}
	key, err := h.Keys().Signing()
	if err != nil {
		return err
	}
	if by == "" {
		by = key.Name()
	}
	write := func(name string, data []byte) error {
		return put(name, func(w io.Writer) error { _, err := w.Write(data); return err })
	}
	if len(about) > 0 { // no one can sign for runs of which none verifies
		signed, err := r.Sign(key, by, r.Generated)
		if err != nil {
			return err
		}
		if err := write(report.Statement, signed); err != nil {
			return err
		}
	}
	for _, f := range files {
		if err := write(f.Name, f.Data); err != nil {
			return err
		}
	}
	for _, s := range r.Sources {
		if !s.Whole() {
			continue
		}
		if !store.ValidRun(s.Run) {
			return fmt.Errorf("no run can be called %.80q, as the store says", s.Run)
		}
		run, err := st.Run(ctx, "", s.Run)
		if err != nil {
			return err
		}
		o := host.BundleOptions{Attachments: files, By: by, About: slices.DeleteFunc(slices.Clone(about), func(o proof.Subject) bool { return o.Run == s.Run })}
		if !h.RunLogs().HasOf(store.TenantFilter(run.Tenant), run.ID) { // only the host that made a run can attach to it
			o.Attachments, o.About = nil, nil
			var unknown *host.NotEnrolledError
			if err := h.Proofs().Bundles(ctx, store.TenantFilter(run.Tenant), run.ID); errors.As(err, &unknown) {
				continue // nor could its verification be in the report
			} else if err != nil {
				return err
			}
		}
		if s.Class == store.Accesses {
			if o.Select, err = looksAt(ctx, st, run, r.Scope.Tenant); err != nil {
				return err
			}
		}
		if err := put(s.Run+".tar", func(w io.Writer) error { return h.Proofs().Bundle(ctx, w, store.TenantFilter(run.Tenant), run.ID, o) }); err != nil {
			return err
		}
	}
	return nil
}

// looksAt selects what an access log has about a tenant: what it has about others is not the report's reader's.
func looksAt(ctx context.Context, st api.Source, log store.Run, tenant string) (*proof.Selection, error) {
	about := map[uint64]bool{}
	for row, err := range st.Records(ctx, store.Query{Tenant: log.Tenant, Run: log.ID, Kinds: []audit.Kind{audit.KindAccess}}) {
		if err != nil {
			return nil, err
		}
		var r audit.Record
		if json.Unmarshal(row.Body, &r) == nil && r.Access != nil && r.Access.Tenant == tenant {
			about[row.Seq] = true
		}
	}
	return &proof.Selection{Shows: func(seq uint64) bool { return about[seq] }, What: "looks at the records of " + cmp.Or(tenant, "no tenant")}, nil
}

// report writes one for the API.
func (a *app) report(ctx context.Context, h *host.Host, w io.Writer, q api.ReportRequest) error {
	st, err := h.Reader(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	in := report.Input{Framework: q.Framework, From: q.From, To: q.To}
	for _, run := range q.Runs {
		in.Runs = append(in.Runs, report.Run{Run: run.Run, Verification: report.Verification{State: report.State(run.Verification.State),
			Name: run.Verification.Name, Number: run.Verification.Number, Text: run.Verification.Text, At: run.Verification.At, Report: run.Report}})
	}
	r, err := a.build(ctx, h, st, in)
	switch {
	case err != nil:
		return err
	case q.Format == "html":
		return r.HTML(w)
	case q.Format == "json":
		return r.JSON(w)
	}
	z := zip.NewWriter(w)
	err = deliver(ctx, h, st, r, q.By, func(name string, write func(io.Writer) error) error {
		f, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store, Modified: r.Generated})
		if err != nil {
			return err
		}
		return write(f)
	})
	return errors.Join(err, z.Close())
}

// summary tells a person what a report came to.
func summary(w io.Writer, r *report.Report) error {
	fmt.Fprintf(w, "Evidence toward %s, from %s.\n%s\n\n", r.Framework.Title, r.Scope.Text, r.Notice)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range r.Controls {
		fmt.Fprintf(table, "%s\t%s\t%s\n", c.ID, strings.ToUpper(string(c.Status)[:1])+string(c.Status)[1:], c.Title)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, o := range r.Against {
		fmt.Fprintf(w, "\nagainst %s: %s", strings.Join(o.Controls, ", "), o.Text)
	}
	_, err := fmt.Fprintln(w, "\n-o DIR writes all of it, with each claim's records, signed.")
	return err
}
