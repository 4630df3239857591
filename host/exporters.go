package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/sink"
	"github.com/custody-project/custody/store"
)

// Options returns the options of an exporter from st to t, without the sink. log may be nil.
func (x Exporters) Options(st store.Store, t sink.Target, log *slog.Logger) (export.Options, error) {
	o, err := t.Options()
	if err != nil {
		return o, err
	}
	o.Dir, o.Source, o.Log = x.host.Exports(), x.host.Checks().Marked(st), log
	o.Format, err = t.Encoding()
	return o, err
}

// Exporter is an exporter with its sink.
type Exporter struct {
	*export.Exporter
	sink export.Sink
}

// Close closes the exporter and the sink.
func (x Exporter) Close() error { return errors.Join(x.Exporter.Close(), x.sink.Close()) }

// Open opens an exporter from st to each target. The caller closes those that it returns, also after an error.
func (x Exporters) Open(ctx context.Context, st store.Store, targets []sink.Target, log *slog.Logger) (all []Exporter, err error) {
	for _, t := range targets {
		o, err := x.Options(st, t, log)
		if err == nil {
			o.Sink, err = sink.Open(ctx, t)
		}
		if err != nil {
			return all, fmt.Errorf("sink %s: %w", t.Name, err)
		}
		x, err := export.Open(o)
		if err != nil {
			return all, errors.Join(fmt.Errorf("sink %s: %w", t.Name, err), o.Sink.Close())
		}
		all = append(all, Exporter{x, o.Sink})
	}
	return all, nil
}

// SinkStatus is the progress of a sink, and whether host.yaml names it.
type SinkStatus struct {
	export.Status
	Configured bool `json:"configured"`
}

// Statuses returns the status of the sinks of host.yaml, then of other sinks that have files here. If the store
// cannot be read, it returns an error and the statuses without what the store has.
func (x Exporters) Statuses(ctx context.Context) ([]SinkStatus, error) {
	targets := slices.Clone(x.host.Config().Export)
	configured := len(targets)
	names, errs := export.Names(x.host.Exports())
	for _, name := range names {
		if !slices.ContainsFunc(targets, func(t sink.Target) bool { return t.Name == name }) {
			targets = append(targets, sink.Target{Name: name})
		}
	}
	if len(targets) == 0 {
		return nil, errs
	}
	var src export.Source
	st, err := x.host.Store(ctx)
	if err == nil {
		src = st
		defer st.Close()
	}
	errs = errors.Join(errs, err)
	var all []SinkStatus
	for i, t := range targets {
		var o export.Options
		if i < configured {
			o, err = t.Options()
			errs = errors.Join(errs, err)
		}
		s, err := export.ReadStatus(ctx, x.host.Exports(), t.Name, src, o.Filter)
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("sink %s: %w", t.Name, err))
			continue
		}
		all = append(all, SinkStatus{Status: s, Configured: i < configured})
	}
	return all, errs
}
