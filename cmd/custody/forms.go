package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/custody-project/custody/export/format/asciicast"
	"github.com/custody-project/custody/export/format/csv"
	"github.com/custody-project/custody/export/format/perfetto"
	"github.com/custody-project/custody/export/sink"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/replay/api"
	"github.com/custody-project/custody/store"
)

// view is a form of a run for people's programs: a player, a trace viewer, a spreadsheet.
type view struct {
	name, media, suffix string
	table               bool // several runs have a form together
	write               func(w io.Writer, run store.Run, rows replay.Rows) error
}

func views() []view {
	return []view{
		{"asciicast", "application/x-asciicast", "cast", false, func(w io.Writer, run store.Run, rows replay.Rows) error {
			return asciicast.Write(w, run, rows, asciicast.Options{})
		}},
		{"perfetto", "application/octet-stream", "perfetto-trace", false, perfetto.Write},
		{"csv", "text/csv; charset=utf-8", "csv", true, csv.Write},
	}
}

// view writes the one run in the form that --format names; false: it names another.
func (c exportCmd) view(a *app, st store.Store) (bool, error) {
	for _, v := range views() {
		if v.name != c.Format {
			continue
		}
		runs, err := c.runs(a.ctx, st)
		switch {
		case err != nil:
			return true, err
		case len(runs) != 1:
			return true, fmt.Errorf("%d runs have no %s together: name one", len(runs), v.name)
		case c.To != "":
			return true, usageError{errors.New("--format " + v.name + " goes to stdout: it is no format of a sink's")}
		}
		kinds, err := parseKinds(c.Kind)
		if err != nil {
			return true, err
		}
		out := bufio.NewWriter(a.stdout)
		rows := st.Records(a.ctx, store.Query{Tenant: runs[0].Tenant, Run: runs[0].ID, Kinds: kinds})
		return true, errors.Join(unmarkable(v.name, v.write(out, runs[0], store.Signed(rows))), out.Flush())
	}
	return false, nil
}

// unmarkable describes what to do where a form cannot show a record's mark.
func unmarkable(form string, err error) error {
	var wrong *store.MarkError
	if errors.As(err, &wrong) {
		err = fmt.Errorf("%w; %s cannot show that: --format json, ocsf, ecs, cef and native mark such records", err, form)
	}
	return err
}

// forms are all in which records leave through the API.
func forms() ([]api.Export, error) {
	var all []api.Export
	for _, f := range []struct{ name, media, suffix string }{
		{"ocsf", "application/x-ndjson", "ocsf.ndjson"}, {"ecs", "application/x-ndjson", "ecs.ndjson"},
		{"native", "application/x-ndjson", "native.ndjson"}, {"cef", "text/plain; charset=utf-8", "cef"},
	} {
		format, err := sink.Target{Format: f.name}.Encoding()
		if err != nil {
			return nil, err
		}
		all = append(all, api.FormatLines(format, f.media, f.suffix))
	}
	for _, v := range views() {
		all = append(all, api.Rows(v.name, v.media, v.suffix, !v.table, v.write))
	}
	return all, nil
}
