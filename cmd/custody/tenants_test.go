package main

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/store"
)

// ranFor puts a run of a tenant into the user's store, as that tenant's own host does, and returns the host's public key, too.
func (d *door) ranFor(tenant, dsn string) (id, key string) {
	d.Helper()
	dir := d.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "host.yaml"), []byte("version: 1\ntenant: "+tenant+"\n"), 0o600); err != nil {
		d.Fatal(err)
	}
	h, err := host.Open(dir)
	if err != nil {
		d.Fatal(err)
	}
	h.UseStore(dsn)
	id = d.recordIn(h, tenant)
	if key, err = h.Keys().Public(); err != nil {
		d.Fatal(err)
	}
	return id, key
}

// recordIn records a run of a tenant in a home.
func (d *door) recordIn(h *host.Host, tenant string) string {
	d.Helper()
	id := host.NewRunID(time.Now())
	run, err := h.Begin(d.Context(), host.RunOptions{ID: id, Mode: wal.Strict, Facts: statement.Facts{Tenant: tenant}, Redactor: redact.New([]byte("0123456789abcdef0123456789abcdef"))})
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
	return id
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

// TestTenantNamedLater: a host that is given a tenant still shows and reports on the runs that it recorded before,
// each under the tenant that was recorded; a token of the tenant sees only its runs.
func TestTenantNamedLater(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.home = t.TempDir()
	under := func(tenant string) string {
		if tenant != "" {
			d.write(filepath.Join(d.home, "host.yaml"), "version: 1\ntenant: "+tenant+"\n")
		}
		h, err := host.Open(d.home)
		if err != nil {
			t.Fatal(err)
		}
		return d.recordIn(h, tenant)
	}
	before := under("")
	d.must(0, "report", "-f", "soc2", "--from", "2026-01-01") // the store has taken it in
	former, now := under("former"), under("acme")

	period := []string{"report", "-f", "soc2", "--json", "--from", "2026-01-01", "--to", "2200-01-01"}
	reported := d.must(0, period...)
	d.contains(reported.stdout, now)
	d.contains(reported.stderr, before, former, "--tenant '(none)'", "--tenant 'former'")
	if strings.Contains(reported.stdout, before) || strings.Contains(reported.stdout, former) {
		t.Errorf("the report of acme has another tenant's run")
	}
	for tenant, want := range map[string]string{"(none)": before, "former": former, "acme": now} {
		for _, args := range [][]string{append(period, "--tenant", tenant), {"report", "-f", "soc2", "--json", "--tenant", tenant}, {"report", "-f", "soc2", "--json", "--tenant", tenant, want}} {
			out := d.must(0, args...).stdout
			for _, run := range []string{before, former, now} {
				if strings.Contains(out, run) != (run == want) {
					t.Errorf("%q has %s: %v", args, run, run != want)
				}
			}
		}
	}
	d.must(exitFailed, "report", "-f", "soc2", "--tenant", "acme", before)
	d.contains(d.must(exitFailed, append(period, "--tenant", "nobody")...).stderr, "no run began in that time")
	d.contains(d.must(exitFailed, "report", "-f", "soc2", before, now).stderr, "one tenant", "(none)", "acme")

	token := strings.TrimSpace(d.must(0, "token", "new", "ben", "--role", "admin").stdout)
	for _, shown := range []string{now, before} {
		s := d.serving("--run", shown)
		s.token = token
		if runs := got[tenantRuns](s, "runs"); len(runs.Runs) != 1 || runs.Runs[0].ID != now {
			t.Errorf("a token of acme sees %+v", runs)
		}
		for _, path := range []string{"runs?tenant=", "runs?tenant=former", "runs/" + before} {
			if status, body := s.ask("GET", path, nil); status < 400 || strings.Contains(string(body), former) {
				t.Errorf("a token of acme asks for %s: %d %s", path, status, body)
			}
		}
		s.token = ""
		session := s.signIn()
		first := map[string]string{now: "acme", before: ""}[shown]
		if len(session.Grants) != 3 || session.Grants[0].Tenant != first {
			t.Errorf("the printed link grants %+v, want 3, of %q first", session.Grants, first)
		}
		for tenant, want := range map[string]string{"": before, "former": former, "acme": now} {
			if runs := got[tenantRuns](s, "runs?tenant="+tenant); len(runs.Runs) != 1 || runs.Runs[0].ID != want {
				t.Errorf("the printed link sees of %q %+v", tenant, runs)
			}
			if status, body := s.ask("GET", "reports?framework=soc2&format=json&tenant="+tenant+"&run="+want, nil); status != http.StatusOK {
				t.Errorf("a report of %q: %d %.300s", tenant, status, body)
			}
		}
		s.stop()
	}
}

// signIn opens the printed link, as a browser does, and keeps the session's cookie.
func (s *server) signIn() access.Principal {
	s.Helper()
	_, rest, _ := strings.Cut(s.link, "#once=")
	once, _, _ := strings.Cut(rest, "/")
	body := strings.NewReader(`{"token": "` + once + `"}`)
	res, err := http.Post(s.base+"api/v1/session", "application/json", body)
	if err != nil {
		s.Fatal(err)
	}
	defer res.Body.Close()
	var who access.Principal
	if err := json.NewDecoder(res.Body).Decode(&who); err != nil || res.StatusCode != http.StatusCreated {
		s.Fatalf("sign in: %s, %v", res.Status, err)
	}
	s.cookies = res.Cookies()
	return who
}

type tenantRuns struct{ Runs []store.Run }
