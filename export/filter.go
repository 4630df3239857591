package export

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/custody-project/custody/audit"
)

// Filter selects the events to export. Empty fields are ignored; the zero Filter selects all.
type Filter struct {
	Tenant   string
	Runs     []string
	Kinds    []audit.Kind
	Observer audit.Observer
	// MinSeverity selects events that are at least as severe.
	MinSeverity Severity
}

// run reports whether the filter can select events of this run.
func (f Filter) run(tenant, run string) bool {
	return (f.Tenant == "" || f.Tenant == tenant) && (len(f.Runs) == 0 || slices.Contains(f.Runs, run))
}

// kind reports whether the filter can select records of this kind and observer. An erased record has neither: its erasure is
// exported to sinks that get all kinds.
func (f Filter) kind(k audit.Kind, o audit.Observer, erased bool) bool {
	if erased {
		return len(f.Kinds) == 0 && f.Observer == ""
	}
	return (len(f.Kinds) == 0 || slices.Contains(f.Kinds, k)) && (f.Observer == "" || f.Observer == o)
}

// severity reports whether an event of this severity is selected. More severe numbers are lower.
func (f Filter) severity(s Severity) bool { return f.MinSeverity == 0 || s <= f.MinSeverity }

// item formats a selected event. An event that the format does not support is still an
// item, with the record as its data.
func (f Filter) item(e Event, format Format) (i Item, pass bool, misfit error) {
	severity := SeverityOf(e)
	if !f.kind(e.Kind, e.Observer, e.Erased) || !f.severity(severity) {
		return Item{}, false, nil
	}
	i = Item{ID: e.ID(), Time: e.Time, Severity: severity, Kind: e.Kind, Tenant: e.Tenant, Host: e.Host, Run: e.Run, Seq: e.Seq}
	i.Data, misfit = format.Append(nil, e)
	if misfit == nil && bytes.IndexByte(i.Data, '\n') >= 0 {
		misfit = errors.New("it contains a newline, which some sinks would treat as two events")
	}
	if misfit != nil {
		i.Data, misfit = e.Body, fmt.Errorf("format %s: %w", format.Name(), misfit)
	}
	return i, true, misfit
}

// ParseSeverity parses the name of a severity: alert, error, warning, notice or info. "" is 0: all.
func ParseSeverity(name string) (Severity, error) {
	switch name {
	case "":
		return 0, nil
	case "alert":
		return Alert, nil
	case "error":
		return Error, nil
	case "warning":
		return Warning, nil
	case "notice":
		return Notice, nil
	case "info":
		return Info, nil
	}
	return 0, fmt.Errorf("%.40q is not a severity: alert, error, warning, notice or info", name)
}
