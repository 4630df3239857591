//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/custody-project/custody/command"
	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/sink"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/replay/forms"
	"github.com/custody-project/custody/store"
)

type exportCmd struct {
	Runs     []string `arg:"" name:"run" predictor:"run" optional:"" help:"The runs, prefixes of their ids, or last. Without one: last."`
	Format   string   `short:"F" enum:"ocsf,ecs,cef,native,json,asciicast,perfetto,csv," default:"" help:"ocsf, ecs, cef, native, or json: the record's exact bytes (default: the sink's, else ocsf). Of one run, to stdout: asciicast, perfetto or csv."`
	OCSF     string   `name:"ocsf" placeholder:"VERSION" help:"OCSF version: 1.1.0, 1.3.0, 1.5.0, 1.8.0 or 1.9.0 (default 1.8.0)."`
	To       string   `placeholder:"SINK" help:"A sink of host.yaml by its name, or its address: file:PATH, syslog+tls://HOST:PORT, ... (default: stdout)."`
	All      bool     `help:"All runs in the store."`
	From     string   `placeholder:"TIME" help:"Only runs that began at this time or later: 2026-11-03, 2026-11-03 14:32, RFC 3339; in UTC, unless a zone follows."`
	Until    string   `placeholder:"TIME" help:"Only runs that began before this time; a date includes that day."`
	Kind     []string `short:"k" placeholder:"KIND,..." help:"Only records of these kinds."`
	Severity string   `placeholder:"NAME" help:"Only records of at least this severity: alert, error, warning, notice, info."`
	Follow   bool     `short:"f" help:"Continue with new records, from the sink's position, until stopped. Without --to: all sinks of host.yaml."`
	Status   bool     `help:"Show for each sink the state of its exporter, the delivered events, the backlog and its age, and the last error."`
	JSON     bool     `name:"json" help:"With --status: one JSON object per sink."`
	Dead     string   `placeholder:"NAME" help:"List the dead letters of a sink."`
	Redrive  string   `placeholder:"NAME" help:"Send the dead letters of a sink again."`
	Metrics  string   `placeholder:"ADDRESS" help:"With --follow: serve Prometheus metrics there."`
}

func (c exportCmd) Run(a *app) error {
	if c.JSON && !c.Status {
		return command.Usage(errors.New("--json is for --status: --format json writes the records' exact bytes"))
	}
	h, err := a.open()
	if err != nil {
		return err
	}
	switch {
	case c.Status:
		return c.status(a, h)
	case c.Dead != "":
		return c.dead(a, h)
	case c.Redrive != "":
		return c.redrive(a, h)
	case c.Follow:
		return c.follow(a, h)
	}
	return c.once(a, h)
}

// target returns the sink that the flags select: one of host.yaml's, or an address.
func (c exportCmd) target(h *host.Host) sink.Target {
	t := sink.Target{To: c.To}
	for _, known := range h.Config().Export {
		if known.Name == c.To {
			t = known
		}
	}
	if c.Format != "" {
		t.Format = c.Format
	}
	if c.OCSF != "" {
		t.Format, t.Version = "ocsf", c.OCSF
	}
	if len(c.Kind) > 0 {
		t.Kinds = c.Kind
	}
	if c.Severity != "" {
		t.MinSeverity = c.Severity
	}
	return t
}

// once writes the runs that the store has now.
func (c exportCmd) once(a *app, h *host.Host) error {
	opened, err := h.Store(a.ctx)
	if err != nil {
		return err
	}
	defer opened.Close()
	st := h.Checks().Marked(opened)
	defer func() { a.sayWrong(st.Wrong) }()
	if written, err := c.view(a, st); written {
		return err
	}
	runs, err := c.runs(a.ctx, st)
	if err != nil {
		return err
	}
	o, err := h.Exporters().Options(opened, c.target(h), a.Log)
	if err != nil {
		return err
	}
	o.Source = st
	if c.To == "" {
		out := bufio.NewWriter(a.stdout)
		_, err := export.Write(a.ctx, out, st, o.Format, o.Filter, runs...)
		return errors.Join(err, out.Flush())
	}
	if o.Sink, err = sink.Open(a.ctx, c.target(h)); err != nil {
		return err
	}
	if o.Name == "" {
		o.Dir = "" // dead letters are a named sink's
	}
	stats, err := export.Send(a.ctx, o, runs...)
	a.Say(fmt.Sprintf("sent %d events", stats.Sent))
	if stats.Dead > 0 {
		err = errors.Join(err, fmt.Errorf("%d events were refused: %s", stats.Dead, stats.LastError))
	}
	return errors.Join(err, o.Sink.Close())
}

// sayWrong prints how many of the exported records are known to differ from what was signed.
func (a *app) sayWrong(n uint64) {
	if n > 0 {
		a.Say(fmt.Sprintf("%d of the records differ from their host's signature and have a mark with the reason; custody fsck names all of them", n))
	}
}

// view writes one run in the format of --format. It reports whether --format is such a format.
func (c exportCmd) view(a *app, st store.Store) (bool, error) {
	v, ok := forms.Named(c.Format)
	if !ok {
		return false, nil
	}
	runs, err := c.runs(a.ctx, st)
	switch {
	case err != nil:
		return true, err
	case len(runs) != 1:
		return true, fmt.Errorf("%d runs have no %s together: name one", len(runs), v.Name)
	case c.To != "":
		return true, command.Usage(errors.New("--format " + v.Name + " goes to stdout: it is no format of a sink's"))
	}
	kinds, err := command.ParseKinds(c.Kind)
	if err != nil {
		return true, err
	}
	return true, v.Write(a.ctx, a.stdout, st, runs[0], kinds)
}

// runs returns the runs that the flags select.
func (c exportCmd) runs(ctx context.Context, st store.Store) ([]store.Run, error) {
	from, until, err := replay.ParseSpan(c.From, c.Until)
	if err != nil {
		return nil, err
	}
	if c.All || c.From != "" || c.Until != "" {
		if len(c.Runs) > 0 {
			return nil, command.Usage(errors.New("give either runs, or --all, --from and --until"))
		}
		runs, err := st.Runs(ctx, store.Filter{})
		slices.Reverse(runs)
		return slices.DeleteFunc(runs, func(r store.Run) bool {
			return r.Start.Before(from) || !until.IsZero() && !r.Start.Before(until)
		}), err
	}
	return named(ctx, st, "", c.Runs)
}

// named finds a tenant's runs by their names, "" for all tenants; without names, it returns the last run.
func named(ctx context.Context, st host.RunReader, tenant string, names []string) ([]store.Run, error) {
	if len(names) == 0 {
		names = []string{store.Last}
	}
	var runs []store.Run
	for _, name := range names {
		run, err := st.Run(ctx, tenant, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		runs = append(runs, run)
	}
	return runs, nil
}

// follow runs an independent exporter for each sink, until the context ends.
func (c exportCmd) follow(a *app, h *host.Host) error {
	targets := h.Config().Export
	if c.To != "" {
		t := c.target(h)
		if t.Name == "" {
			return command.Usage(errors.New("--follow needs a sink of host.yaml: how far it is, is kept under its name"))
		}
		targets = []sink.Target{t}
	}
	if len(targets) == 0 {
		return errors.New("host.yaml has no export: list")
	}
	if err := a.service(h, "export"); err != nil {
		return err
	}
	st, err := h.Store(a.ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	exporters, err := h.Exporters().Open(a.ctx, st, targets, a.Log)
	defer func() {
		for _, x := range exporters {
			a.Close(x)
		}
	}()
	if err != nil {
		return err
	}
	m, err := a.meter(c.Metrics)
	if err != nil {
		return err
	}
	defer a.Close(m)
	m.Exporters(a.ctx, exporters)
	var following sync.WaitGroup
	errs := make([]error, len(exporters))
	for i, x := range exporters {
		following.Go(func() { errs[i] = x.Follow(a.ctx) })
	}
	following.Wait()
	return errors.Join(errs...)
}

func (c exportCmd) dead(a *app, h *host.Host) error {
	letters, err := export.OpenDead(h.Exports(), c.Dead, 0, 0)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(a.stdout)
	for l, err := range letters.Letters() {
		if err == nil {
			err = enc.Encode(l)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c exportCmd) redrive(a *app, h *host.Host) error {
	c.To = c.Redrive
	t := c.target(h)
	if t.Name == "" {
		return fmt.Errorf("host.yaml has no sink named %.40q", c.Redrive)
	}
	st, err := h.Store(a.ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	o, err := h.Exporters().Options(st, t, a.Log)
	if err != nil {
		return err
	}
	if o.Sink, err = sink.Open(a.ctx, t); err != nil {
		return err
	}
	n, err := export.Redrive(a.ctx, o)
	a.Say(fmt.Sprintf("sent %d events again", n))
	return errors.Join(err, o.Sink.Close())
}
