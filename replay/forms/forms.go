// Package forms lists the forms in which the records of a run leave Custody: the formats of sinks, and those of a
// player, a trace viewer and a spreadsheet.
package forms

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export/format/asciicast"
	"github.com/custody-project/custody/export/format/csv"
	"github.com/custody-project/custody/export/format/perfetto"
	"github.com/custody-project/custody/export/sink"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/replay/api"
	"github.com/custody-project/custody/store"
)

// View is a form of one run for programs that people use.
type View struct {
	Name          string
	media, suffix string
	table         bool // several runs can share one file
	write         func(w io.Writer, run store.Run, rows replay.Rows) error
}

// Views returns all views.
func Views() []View {
	return []View{
		{"asciicast", "application/x-asciicast", "cast", false, func(w io.Writer, run store.Run, rows replay.Rows) error {
			return asciicast.Write(w, run, rows, asciicast.Options{})
		}},
		{"perfetto", "application/octet-stream", "perfetto-trace", false, perfetto.Write},
		{"csv", "text/csv; charset=utf-8", "csv", true, csv.Write},
	}
}

// Named returns the view of that name.
func Named(name string) (v View, ok bool) {
	for _, v := range Views() {
		if v.Name == name {
			return v, true
		}
	}
	return View{}, false
}

// Write writes a run's records of the given kinds, all if there are none. A view cannot show marks: a record that differs
// from what was signed is an error.
func (v View) Write(ctx context.Context, w io.Writer, st store.Store, run store.Run, kinds []audit.Kind) error {
	out := bufio.NewWriter(w)
	rows := st.Records(ctx, store.Query{Tenant: run.Tenant, Run: run.ID, Kinds: kinds})
	err := v.write(out, run, store.Signed(rows))
	if wrong := new(store.MarkError); errors.As(err, &wrong) {
		err = fmt.Errorf("%w; %s cannot show that: --format json, ocsf, ecs, cef and native mark such records", err, v.Name)
	}
	return errors.Join(err, out.Flush())
}

// Exports returns the forms that the API offers.
func Exports() ([]api.Export, error) {
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
	for _, v := range Views() {
		all = append(all, api.Rows(v.Name, v.media, v.suffix, !v.table, v.write))
	}
	return all, nil
}
