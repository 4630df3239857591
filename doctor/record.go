package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/docker/go-units"

	"github.com/custody-project/custody/doctor/remedy"
	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/notify"
	"github.com/custody-project/custody/ship"
	"github.com/custody-project/custody/store"
)

// record checks the signing key, the store, the logs, and the delivery of records to other hosts.
func (c Checks) record(ctx context.Context) []Finding {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	found := []Finding{c.signingKey(), c.storeWorks(ctx), c.hostLog(ctx), spool(c.Host)}
	if config, ok, err := c.Host.Shipping().Config(); ok && err == nil {
		found = append(found, c.transport(ctx, config))
	}
	return append(append(found, c.sinks(ctx)...), notifications(c.Host)...)
}

func (c Checks) signingKey() Finding {
	f := Finding{Name: "key", Grade: OK}
	key, err := c.Host.Keys().Signing()
	if err != nil {
		f.Grade, f.Detail, f.Hint = Missing, err.Error(), remedy.Of(err)
		return f
	}
	f.Detail = strings.TrimSpace(key.Public) + ", " + c.Host.Keys().Kept()
	if path := c.Host.Keys().InClear(); path != "" {
		f.Grade, f.Detail = Warn, f.Detail+"; "+path+" also exists, unencrypted"
		f.Hint = "custody key rotate --from file removes it, if it is the host's old key"
	}
	return f
}

func (c Checks) storeWorks(ctx context.Context) Finding {
	f := Finding{Name: "store", Grade: OK}
	st, err := c.Host.Reader(ctx)
	if err == nil {
		_, err = st.Runs(ctx, store.Filter{Limit: 1})
		err = errors.Join(err, st.Close())
	}
	switch dsn := c.Host.Config().Store; {
	case err != nil:
		f.Grade, f.Detail, f.Hint = Missing, err.Error(), remedy.Of(err)
	case dsn != "":
		scheme, _, _ := strings.Cut(dsn, ":")
		f.Detail = scheme + " answers"
	case c.Host.Config().Transport != nil:
		f.Detail = "elsewhere; runs are shown from this host's logs"
	default:
		f.Detail = "SQLite on this host"
	}
	return f
}

// hostLog checks the log of manifests and its last checkpoint.
func (c Checks) hostLog(ctx context.Context) Finding {
	f := Finding{Name: "host log", Grade: OK}
	r, err := c.Host.ManifestLog().Reader()
	if err == nil {
		_, err = r.Checkpoint(ctx)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.Detail = "empty: the first run begins it"
	case err != nil:
		f.Grade, f.Detail, f.Hint = Missing, err.Error(), "custody fsck has the details"
	default:
		f.Detail = "there is a checkpoint"
	}
	if n := len(c.Host.Config().Log.Witnesses); n > 0 {
		f.Detail += fmt.Sprintf(", %d witnesses are asked", n)
	} else if f.Grade == OK {
		f.Grade, f.Hint = Warn, "name a witness in "+host.ConfigFile+": without one, the owner of this host's key can show different histories to different verifiers"
	}
	return f
}

func spool(h *host.Host) Finding {
	have, limit := h.Shipping().Unshipped(), int64(h.Config().Spool)
	f := Finding{Name: "spool", Grade: OK, Detail: units.BytesSize(float64(have)) + " are not in the store"}
	if limit > 0 {
		f.Detail += ", at most " + units.BytesSize(float64(limit))
	}
	if limit > 0 && have > limit/2 {
		f.Grade, f.Hint = Warn, "custody ship carries them; when it is full, runs freeze or lose events"
	}
	return f
}

// transport connects to NATS and reports its warnings.
func (c Checks) transport(ctx context.Context, config ship.Config) Finding {
	f := Finding{Name: "transport", Grade: OK, Detail: "NATS takes segments"}
	var warnings []string
	config.Warn = func(text string) { warnings = append(warnings, text) }
	r, err := ship.Dial(ctx, config)
	if err != nil {
		f.Grade, f.Detail, f.Hint = Missing, err.Error(), remedy.Of(err)
		return f
	}
	defer r.Close()
	if _, err := r.Stored(ctx, config.Tenant, "r-doctor", false); err != nil {
		warnings = append(warnings, "no ingester answers: "+err.Error())
	}
	if len(warnings) > 0 {
		f.Grade, f.Detail = Warn, strings.Join(warnings, "; ")
	}
	return f
}

// sinks checks the sinks of host.yaml, and others that have files here.
func (c Checks) sinks(ctx context.Context) []Finding {
	var found []Finding
	all, err := c.Host.Exporters().Statuses(ctx)
	if err != nil {
		found = append(found, Finding{Name: "export", Grade: Warn, Detail: err.Error(), Hint: remedy.Of(err)})
	}
	for _, s := range all {
		found = append(found, sinkFinding(c.Host, s))
	}
	return found
}

func sinkFinding(h *host.Host, s host.SinkStatus) Finding {
	f := Finding{Name: "export " + s.Name, Grade: Warn, Detail: fmt.Sprintf("%s; %d events delivered, behind: %s", s.State, s.Sent, s.Behind)}
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
		f.Hint = "start custody export --follow: this sink gets no events"
	case s.State == export.Killed:
		f.Hint = "its process ended without closing it: look at its log and for the kernel's out-of-memory killer, and start custody export --follow"
	case problem:
		f.Hint = "look whether the sink is up, and at its address and credentials in " + host.ConfigFile + "; the exporter continues by itself"
	case s.Behind == nil:
		f.Hint = "its backlog is unknown: " + s.BehindError
	case s.DeadKept > 0:
		f.Detail += fmt.Sprintf("; %d dead letters", s.DeadKept)
		f.Hint = "custody export --dead " + s.Name + " lists them, --redrive sends them again"
	default:
		f.Grade = OK
	}
	return f
}

// notifications reports whether the notifications of host.yaml are delivered.
func notifications(h *host.Host) []Finding {
	var found []Finding
	for _, s := range notify.States(h.Notifications(), h.Config().Notify) {
		f := Finding{Name: "notify " + s.Name, Grade: OK, Detail: fmt.Sprintf("%d delivered, %d waiting, %d dropped", s.Delivered, s.Waiting, s.Dropped)}
		if s.Error != "" {
			f.Grade = Warn
			f.Detail += ", failing"
			if !s.Since.IsZero() {
				f.Detail += " since " + s.Since.UTC().Format(time.RFC3339)
			}
			f.Detail += ": " + s.Error
			f.Hint = "custody notify test " + s.Name + " tries it"
		}
		found = append(found, f)
	}
	return found
}
