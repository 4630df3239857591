package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/custody-project/custody/audit/export/asciicast"
	"github.com/custody-project/custody/audit/export/csv"
	"github.com/custody-project/custody/audit/export/perfetto"
	"github.com/custody-project/custody/audit/export/sink"
	"github.com/custody-project/custody/audit/store"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/replay/api"
)

// view is a form of one run for people's programs: a player, a trace viewer, a spreadsheet.
type view struct {
	name, media, suffix string
	write               func(w io.Writer, run store.Run, rows replay.Rows) error
}

func views() []view {
	return []view{
		{"asciicast", "application/x-asciicast", "cast", func(w io.Writer, run store.Run, rows replay.Rows) error {
			return asciicast.Write(w, run, rows, asciicast.Options{})
		}},
		{"perfetto", "application/octet-stream", "perfetto-trace", perfetto.Write},
		{"csv", "text/csv; charset=utf-8", "csv", csv.Write},
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
			return true, errors.New("--format " + v.name + " goes to stdout: it is no format of a sink's")
		}
		kinds, err := kindsOf(c.Kind)
		if err != nil {
			return true, err
		}
		out := bufio.NewWriter(a.stdout)
		err = v.write(out, runs[0], st.Records(a.ctx, store.Query{Tenant: runs[0].Tenant, Run: runs[0].ID, Kinds: kinds}))
		return true, errors.Join(err, out.Flush())
	}
	return false, nil
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
		all = append(all, api.Export{Name: v.name, Type: v.media, Suffix: v.suffix, OneRun: true,
			Write: func(ctx context.Context, w io.Writer, src api.Source, f replay.Filter, runs []store.Run) error {
				return v.write(w, runs[0], selected(ctx, src, f, runs[0]))
			}})
	}
	return all, nil
}

// selected are the rows of a run that f lets through.
func selected(ctx context.Context, src api.Source, f replay.Filter, run store.Run) replay.Rows {
	return func(yield func(store.Row, error) bool) {
		for row, err := range src.Records(ctx, store.Query{Tenant: run.Tenant, Run: run.ID, Kinds: f.Kinds, From: f.From, To: f.To, AfterSeq: f.AfterSeq}) {
			if err == nil && !replay.Match(f, row) {
				continue
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}
