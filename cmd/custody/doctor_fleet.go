package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/docker/go-units"

	"github.com/custody-project/custody/doctor"
	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/ship"
	"github.com/custody-project/custody/store"
)

// record reports whether what is recorded here gets to where it survives this host.
func (a *app) record(h *host.Host) []doctor.Finding {
	ctx, cancel := context.WithTimeout(a.ctx, 10*time.Second)
	defer cancel()
	found := []doctor.Finding{a.signingKey(h), a.storeWorks(ctx, h), a.hostLog(ctx, h), spoolOf(h)}
	if config, ok, err := h.Shipping().Config(); ok && err == nil {
		found = append(found, a.transport(ctx, config))
	}
	return append(append(found, a.sinks(ctx, h)...), notifications(h)...)
}

func (a *app) signingKey(h *host.Host) doctor.Finding {
	f := doctor.Finding{Name: "key", Grade: doctor.OK}
	key, err := h.Keys().Signing()
	if err != nil {
		f.Grade, f.Detail, f.Hint = doctor.Missing, err.Error(), hint(err)
		return f
	}
	f.Detail = strings.TrimSpace(key.Public) + ", " + h.Keys().Kept()
	if path := h.Keys().InClear(); path != "" {
		f.Grade, f.Detail = doctor.Warn, f.Detail+"; "+path+" is there, too, in the clear"
		f.Hint = "custody key rotate --from file removes it, if it is the host's old key"
	}
	return f
}

func (a *app) storeWorks(ctx context.Context, h *host.Host) doctor.Finding {
	f := doctor.Finding{Name: "store", Grade: doctor.OK}
	st, err := h.Reader(ctx)
	if err == nil {
		_, err = st.Runs(ctx, store.Filter{Limit: 1})
		err = errors.Join(err, st.Close())
	}
	switch dsn := h.Config().Store; {
	case err != nil:
		f.Grade, f.Detail, f.Hint = doctor.Missing, err.Error(), hint(err)
	case dsn != "":
		scheme, _, _ := strings.Cut(dsn, ":")
		f.Detail = scheme + " answers"
	case h.Config().Transport != nil:
		f.Detail = "elsewhere; runs are shown from this host's logs"
	default:
		f.Detail = "SQLite on this host"
	}
	return f
}

// hostLog looks at the log of manifests, and whether its last checkpoint is one.
func (a *app) hostLog(ctx context.Context, h *host.Host) doctor.Finding {
	f := doctor.Finding{Name: "host log", Grade: doctor.OK}
	r, err := h.ManifestLog().Reader()
	if err == nil {
		_, err = r.Checkpoint(ctx)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.Detail = "empty: the first run begins it"
	case err != nil:
		f.Grade, f.Detail, f.Hint = doctor.Missing, err.Error(), "custody fsck says more"
	default:
		f.Detail = "there is a checkpoint"
	}
	if n := len(h.Config().Log.Witnesses); n > 0 {
		f.Detail += fmt.Sprintf(", %d witnesses are asked", n)
	} else if f.Grade == doctor.OK {
		f.Grade, f.Hint = doctor.Warn, "name a witness in "+host.ConfigFile+": without one, who owns this host's key can tell two histories"
	}
	return f
}

func spoolOf(h *host.Host) doctor.Finding {
	have, limit := h.Shipping().Unshipped(), int64(h.Config().Spool)
	f := doctor.Finding{Name: "spool", Grade: doctor.OK, Detail: units.BytesSize(float64(have)) + " are not in the store"}
	if limit > 0 {
		f.Detail += ", at most " + units.BytesSize(float64(limit))
	}
	if limit > 0 && have > limit/2 {
		f.Grade, f.Hint = doctor.Warn, "custody ship carries them; when it is full, runs freeze or lose events"
	}
	return f
}

// transport logs in to NATS, and takes its warnings for findings.
func (a *app) transport(ctx context.Context, config ship.Config) doctor.Finding {
	f := doctor.Finding{Name: "transport", Grade: doctor.OK, Detail: "NATS takes segments"}
	var warnings []string
	config.Warn = func(text string) { warnings = append(warnings, text) }
	r, err := ship.Dial(ctx, config)
	if err != nil {
		f.Grade, f.Detail, f.Hint = doctor.Missing, err.Error(), hint(err)
		return f
	}
	defer r.Close()
	if _, err := r.Stored(ctx, config.Tenant, "r-doctor", false); err != nil {
		warnings = append(warnings, "no ingester answers: "+err.Error())
	}
	if len(warnings) > 0 {
		f.Grade, f.Detail = doctor.Warn, strings.Join(warnings, "; ")
	}
	return f
}

// sinks are findings about the sinks of host.yaml, and those that have files here.
func (a *app) sinks(ctx context.Context, h *host.Host) []doctor.Finding {
	var found []doctor.Finding
	all, err := h.Exporters().Statuses(ctx)
	if err != nil {
		found = append(found, doctor.Finding{Name: "export", Grade: doctor.Warn, Detail: err.Error(), Hint: hint(err)})
	}
	for _, s := range all {
		found = append(found, sinkFinding(h, s))
	}
	return found
}

func sinkFinding(h *host.Host, s host.SinkStatus) doctor.Finding {
	f := doctor.Finding{Name: "export " + s.Name, Grade: doctor.Warn, Detail: fmt.Sprintf("%s; %d events delivered, behind: %s", s.State, s.Sent, behindText(s.Behind))}
	if t := s.Since(); !t.IsZero() {
		f.Detail += " since " + t.UTC().Format(time.RFC3339)
	}
	problem := s.State == export.Failing || s.State == export.Halted
	if problem {
		f.Detail += ": " + s.LastError
	}
	switch {
	case !s.Configured:
		f.Detail += "; " + host.ConfigFile + " does not name it"
		f.Hint = fmt.Sprintf("name it in %s, or remove %s.*", host.ConfigFile, filepath.Join(h.Exports(), s.Name))
	case s.State == export.NeverRan, s.State == export.Stopped:
		f.Hint = "start custody export --follow: nothing goes to this sink"
	case s.State == export.Killed:
		f.Hint = "its process ended without closing it: look at its log and for the kernel's out-of-memory killer, and start custody export --follow"
	case problem:
		f.Hint = "look whether the sink is up, and at its address and credentials in " + host.ConfigFile + "; the exporter goes on by itself"
	case s.Behind == nil:
		f.Hint = "how far behind it is, is not known: " + s.BehindError
	case s.DeadKept > 0:
		f.Detail += fmt.Sprintf("; %d dead letters", s.DeadKept)
		f.Hint = "custody export --dead " + s.Name + " lists them, --redrive sends them again"
	default:
		f.Grade = doctor.OK
	}
	return f
}
