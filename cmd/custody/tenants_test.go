package main

import (
	"archive/zip"
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/home"
	"github.com/custody-project/custody/redact"
)

// ranFor puts a run of a tenant into the user's store, as that tenant's own host does, and returns the host's public key, too.
func (d *door) ranFor(tenant, dsn string) (id, key string) {
	d.Helper()
	dir := d.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "host.yaml"), []byte("version: 1\ntenant: "+tenant+"\n"), 0o600); err != nil {
		d.Fatal(err)
	}
	h, err := home.Open(dir)
	if err != nil {
		d.Fatal(err)
	}
	h.UseStore(dsn)
	id = home.NewRunID(time.Now())
	run, err := h.Begin(d.Context(), home.RunOptions{ID: id, Mode: wal.Strict, Facts: proof.Facts{Tenant: tenant}, Redactor: redact.New([]byte("0123456789abcdef0123456789abcdef"))})
	if err != nil {
		d.Fatal(err)
	}
	run.Ship(d.Context())
	for _, l := range []audit.Lifecycle{{Phase: audit.PhaseStart, Tenant: tenant}, {Phase: audit.PhaseEnd, Status: audit.StatusDone}} {
		if _, err := run.Record(d.Context(), audit.Event{Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindRun, Lifecycle: &l}); err != nil {
			d.Fatal(err)
		}
	}
	if record, stored := run.Close(d.Context(), wal.Sealed); record != nil || stored != nil {
		d.Fatal(record, stored)
	}
	if key, err = h.PublicKey(); err != nil {
		d.Fatal(err)
	}
	return id, key
}

// TestReportOfATenant: a report with its bundles is had while the server writes its own access log, is
// verified as it is, and has nothing of what the access logs say about other tenants.
func TestReportOfATenant(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	dsn := "sqlite:" + filepath.Join(d.home, "custody.db")
	tokens, runs, keys := map[string]string{}, map[string]string{}, map[string]string{}
	for _, tenant := range []string{"acme", "beta"} {
		runs[tenant], keys[tenant] = d.ranFor(tenant, dsn)
		tokens[tenant] = strings.TrimSpace(d.must(0, "token", "new", tenant+"-auditor", "--tenant", tenant, "--role", "auditor").stdout)
	}
	for i := range 2 { // one access log is closed before the report, and the other one goes on
		if i == 1 {
			d.must(0, "key", "fleet", "new", "fleet.example")
			for _, key := range keys { // both are called after this machine
				d.must(0, "key", "fleet", "enrol", "--again", key)
			}
		}
		s := d.serving()
		for tenant, run := range runs {
			s.token = tokens[tenant]
			want, word := http.StatusConflict, "fleet enrol" // another host made it, whose key is not known
			if i > 0 {
				want, word = http.StatusOK, "host.pub"
			}
			if status, body := s.ask("GET", "runs/"+run+"/bundle", nil); status != want || !strings.Contains(string(body), word) {
				t.Errorf("the bundle of %s's run: %d %.1000s", tenant, status, body)
			}
			if status, body := s.ask("GET", "runs/"+run+"/bundle?from_seq=1&to_seq=1", nil); i > 0 && (status != http.StatusConflict || !strings.Contains(string(body), "host-other")) {
				t.Errorf("a part of the bundle of %s's run: %d %.1000s", tenant, status, body)
			}
		}
		for tenant, run := range runs {
			s.token = tokens[tenant]
			status, body := s.ask("GET", "reports?framework=soc2&format=bundle&run="+run, nil)
			if status != http.StatusOK {
				t.Fatalf("%s's report: %d %s", tenant, status, body)
			}
			dir := filepath.Join(t.TempDir(), "report[1]") // no pattern
			all := unpack(t, body, dir)
			if i > 0 { // of the first, nothing was verified that the host could sign for
				d.must(0, "verify", dir)
				if err := unix.Mkfifo(filepath.Join(dir, "report", "pipe"), 0o600); err != nil {
					t.Fatal(err)
				}
				d.contains(d.must(2, "verify", dir).stderr, "is not a regular file")
			}
			for other, theirs := range runs {
				if other != tenant && (strings.Contains(all, other+"-auditor") || strings.Contains(all, theirs)) {
					t.Errorf("%s's report tells of %s", tenant, other)
				}
			}
		}
		s.stop()
	}
}

// unpack writes a zip's files into dir, and returns all that is in them. The bundles among them are not compressed.
func unpack(t *testing.T, data []byte, dir string) string {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		all.Write(data)
	}
	return all.String()
}
