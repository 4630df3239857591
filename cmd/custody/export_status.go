//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/console"
)

func (c exportCmd) status(a *app, h *host.Host) error {
	all, err := h.Exporters().Statuses(a.ctx)
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
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%d\t%s\t%s\n", name, s.State, s.Sent, s.Behind.String(), timeText(s.Since()), s.DeadKept,
			timeText(s.LastSuccess), console.Clean(lastError(s.Stats)))
	}
	return errors.Join(err, w.Flush())
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
