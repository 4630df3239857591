package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/custody-project/custody/audit/export"
	"github.com/custody-project/custody/audit/export/sink"
	"github.com/custody-project/custody/host"
)

// sinkStatus is how a sink stands, and whether host.yaml names it.
type sinkStatus struct {
	export.Status
	Configured bool `json:"configured"`
}

// sinkStatuses reads how the sinks of host.yaml stand, and then those others that have files here. If the store
// cannot be read it is an error beside them: the rest of each is right.
func sinkStatuses(ctx context.Context, h *host.Host) ([]sinkStatus, error) {
	targets := slices.Clone(h.Config().Export)
	configured := len(targets)
	names, errs := export.Names(h.Exports())
	for _, name := range names {
		if !slices.ContainsFunc(targets, func(t sink.Target) bool { return t.Name == name }) {
			targets = append(targets, sink.Target{Name: name})
		}
	}
	if len(targets) == 0 {
		return nil, errs
	}
	var src export.Source
	st, err := h.Store(ctx)
	if err == nil {
		src = st
		defer st.Close()
	}
	errs = errors.Join(errs, err)
	var all []sinkStatus
	for i, t := range targets {
		var o export.Options
		if i < configured {
			o, err = t.Options()
			errs = errors.Join(errs, err)
		}
		s, err := export.ReadStatus(ctx, h.Exports(), t.Name, src, o.Filter)
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("sink %s: %w", t.Name, err))
			continue
		}
		all = append(all, sinkStatus{Status: s, Configured: i < configured})
	}
	return all, errs
}

func (c exportCmd) status(a *app, h *host.Host) error {
	all, err := sinkStatuses(a.ctx, h)
	if c.JSON {
		enc := json.NewEncoder(a.stdout)
		for _, s := range all {
			err = errors.Join(err, enc.Encode(s))
		}
		return err
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SINK\tSTATE\tDELIVERED\tBEHIND\tSINCE\tDEAD\tLAST DELIVERY\tLAST ERROR")
	for _, s := range all {
		name := s.Name
		if !s.Configured {
			name += " (not in " + host.ConfigFile + ")"
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%d\t%s\t%s\n", name, s.State, s.Sent, behindText(s.Behind), timeText(s.Since()), s.DeadKept,
			timeText(s.LastSuccess), clean(lastError(s.Stats)))
	}
	return errors.Join(err, w.Flush())
}

func behindText(b *export.Behind) string {
	switch {
	case b == nil:
		return "unknown"
	case b.More:
		return fmt.Sprintf("over %d records", b.Records)
	case b.Records == 1:
		return "1 record"
	}
	return fmt.Sprintf("%d records", b.Records)
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

func lastError(s export.Stats) string {
	text := s.LastError
	if text != "" {
		text += ", at " + timeText(s.LastErrorAt)
	}
	return strings.TrimSpace(text + " " + s.Warning)
}
