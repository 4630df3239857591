package run_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/run"
)

// died returns a home with the log of a run whose process died after so many sealed segments, and one record in the next one.
func died(t *testing.T, sealed int) (h *host.Host, id string) {
	t.Helper()
	h, err := host.Open(t.TempDir())
	check(t, err)
	id = host.NewRunID(time.Now())
	key, err := h.Keys().Signing()
	check(t, err)
	before := filepath.Join(t.TempDir(), id)
	facts := statement.Facts{Tier: "none", Tenant: "acme"}
	log, err := wal.Create(before, wal.Options{Run: id, Sealer: statement.NewSealer(key, facts), SegmentAge: time.Hour})
	check(t, err)
	r := audit.NewRecorder(log, redact.New(make([]byte, 32)))
	for i := range sealed + 1 {
		ev := audit.Event{Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindOutput, Output: &audit.Output{Stream: "stdout", Text: "hello"}}
		if i == 0 {
			ev.Kind, ev.Output, ev.Lifecycle = audit.KindRun, nil, &audit.Lifecycle{Phase: audit.PhaseStart, Tier: "none", Tenant: "acme"}
		}
		_, err := r.Record(t.Context(), ev)
		check(t, err)
		if i < sealed {
			check(t, log.Rotate(t.Context()))
		}
	}
	check(t, os.CopyFS(h.RunDir(id), os.DirFS(before))) // the copy has no lock
	check(t, log.Close(t.Context(), wal.Interrupted))
	return h, id
}

// verify verifies the record of a run, and returns its number of records.
func verify(t *testing.T, h *host.Host, id string) (statement.Manifest, uint64) {
	t.Helper()
	trusted, err := h.Keys().Trusted()
	check(t, err)
	e, err := proof.OpenDir(h.RunDir(id))
	check(t, err)
	defer e.Close()
	report, err := proof.Verify(t.Context(), e, proof.Trust{Keys: trusted, Unlogged: true})
	check(t, err)
	names, err := filepath.Glob(filepath.Join(h.RunDir(id), "*"+wal.ManifestSuffix))
	check(t, err)
	signed, err := os.ReadFile(names[len(names)-1])
	check(t, err)
	m, err := statement.ReadManifest(signed)
	check(t, err)
	return m, report.Records
}

// TestCloseLog: a worker closes the log of a run whose process died, whatever bytes are in it, or it stays as it is.
func TestCloseLog(t *testing.T) {
	segment := func(h *host.Host, id string) string {
		names, err := wal.Segments(h.RunDir(id))
		check(t, err)
		return names[len(names)-1]
	}
	add := func(data string) func(*host.Host, string) {
		return func(h *host.Host, id string) {
			f, err := os.OpenFile(segment(h, id), os.O_WRONLY|os.O_APPEND, 0)
			check(t, err)
			_, err = f.WriteString(data)
			check(t, errors.Join(err, f.Close()))
		}
	}
	replace := func(name string, data []byte) func(*host.Host, string) {
		return func(h *host.Host, id string) { check(t, os.WriteFile(filepath.Join(h.RunDir(id), name), data, 0o600)) }
	}
	for name, c := range map[string]struct {
		sealed int
		change func(*host.Host, string)
		tenant string // of the manifests
		fails  string
	}{
		"as it was":         {0, func(*host.Host, string) {}, "acme", ""},
		"sealed segments":   {3, func(*host.Host, string) {}, "acme", ""},
		"a torn frame":      {1, add("CWF1\xff\xff\xff\xff0123"), "acme", ""},
		"garbage":           {0, add(strings.Repeat("\x00\xff", 1<<20)), "acme", ""},
		"the host's facts":  {0, replace("facts", []byte(`{"tenant":"beta"}`)), "beta", ""}, // not those of the first record
		"facts, later":      {1, replace("facts", []byte(`{"tenant":"beta"}`)), "acme", ""},
		"endless facts":     {0, replace("facts", make([]byte, 1<<20)), "", "more than"},
		"a forged manifest": {0, replace(wal.FileName(1, wal.ManifestSuffix), []byte("forged")), "", "damaged"},
		"an endless one":    {0, replace(wal.FileName(1, wal.ManifestSuffix), make([]byte, 1<<20)), "", "more than"},
		"a missing manifest": {3, func(h *host.Host, id string) {
			check(t, os.Remove(filepath.Join(h.RunDir(id), wal.FileName(2, wal.ManifestSuffix))))
		}, "", "damaged"},
		"a removed last manifest": {2, func(h *host.Host, id string) {
			check(t, os.Remove(filepath.Join(h.RunDir(id), wal.FileName(2, wal.ManifestSuffix))))
		}, "", "damaged"},
		"another run's manifest": {1, func(h *host.Host, id string) {
			key, err := h.Keys().Signing()
			check(t, err)
			_, m, err := statement.NewSealer(key, statement.Facts{}).Seal(wal.Segment{Run: "r-other", First: 1, Last: 1, Count: 1, Time: time.Now()})
			check(t, err)
			replace(wal.FileName(1, wal.ManifestSuffix), m)(h, id)
		}, "", "damaged"},
		"a link to another file": {0, func(h *host.Host, id string) {
			path := segment(h, id)
			check(t, os.Remove(path))
			check(t, os.WriteFile(path+".elsewhere", []byte("secret"), 0o600))
			check(t, os.Symlink(path+".elsewhere", path))
		}, "", "too many levels of symbolic links"},
	} {
		t.Run(name, func(t *testing.T) {
			h, id := died(t, c.sealed)
			c.change(h, id)
			started := 0
			h.CloseLog = run.CloseLog(func(ctx context.Context, w privsep.Worker, handlers map[string]privsep.Handler) (*privsep.Process, error) {
				started++
				return startWorker(ctx, w, handlers)
			})
			notice := ""
			err := h.Tidy(t.Context(), func(text string) { notice += text })
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) || notice != "" {
					t.Errorf("%v, %q; want the error %q", err, notice, c.fails)
				}
				return
			}
			check(t, err)
			m, records := verify(t, h, id)
			if started != 1 || !strings.Contains(notice, "interrupted") || m.Closing != wal.Interrupted || records < 2 || m.Tenant != c.tenant {
				t.Errorf("%d workers, %q, %d records, %+v", started, notice, records, m)
			}
			notice = ""
			if check(t, h.Tidy(t.Context(), func(text string) { notice += text })); started != 1 || notice != "" {
				t.Errorf("again: %d workers, %q", started, notice)
			}
		})
	}
}

// TestCloseLogNeedsWorker: if no worker can be started, the log stays as it is, and the next start closes it.
func TestCloseLogNeedsWorker(t *testing.T) {
	h, id := died(t, 1)
	none := errors.New("no more processes")
	h.CloseLog = run.CloseLog(func(context.Context, privsep.Worker, map[string]privsep.Handler) (*privsep.Process, error) {
		return nil, none
	})
	if err := h.Tidy(t.Context(), func(string) {}); !errors.Is(err, none) {
		t.Errorf("got %v, want %v", err, none)
	}
	h.CloseLog = run.CloseLog(startWorker)
	check(t, h.Tidy(t.Context(), func(string) {}))
	if m, _ := verify(t, h, id); m.Closing != wal.Interrupted {
		t.Errorf("%+v", m)
	}
}
