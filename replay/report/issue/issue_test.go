package issue

import (
	"archive/zip"
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/sampleruns"
	"github.com/custody-project/custody/replay/report"
	"github.com/custody-project/custody/store"
)

// TestIssuer makes a report of a host's runs, and delivers it as a directory that verifies and as an archive of the same files.
func TestIssuer(t *testing.T) {
	dir := t.TempDir()
	id := sampleruns.Record(t, dir, sampleruns.Large(20))
	h, err := host.Open(dir)
	must(t, err)
	st, err := h.Reader(t.Context())
	must(t, err)
	defer st.Close()
	run, err := st.Run(t.Context(), "", id)
	must(t, err)
	m := Issuer{Host: h, Source: st, Version: "test"}
	checked := m.Verify(t.Context(), []store.Run{run})
	if len(checked) != 1 || checked[0].Verification.State != report.Holds {
		t.Fatalf("the run is checked as %+v", checked)
	}
	r, err := m.Build(t.Context(), report.Input{Framework: "soc2", Runs: checked})
	must(t, err)
	if r.Scope.Tenant != run.Tenant || len(r.Sources) != 1 || r.Sources[0].Run != id {
		t.Errorf("the report is about %+v", r.Scope)
	}
	if keys, err := m.RetiredKeys(r); err != nil || len(keys) > 0 {
		t.Errorf("retired keys %v, %v", keys, err)
	}

	out := filepath.Join(t.TempDir(), "new", "report")
	must(t, m.WriteDir(t.Context(), out, r))
	keys, err := h.Fleet().Known()
	must(t, err)
	found, err := report.Verify(t.Context(), out, proof.Trust{Keys: keys})
	if err != nil || len(found.Runs) != 1 || found.Runs[0].Run != id {
		t.Errorf("the directory verifies as %+v, %v", found, err)
	}

	var archive bytes.Buffer
	must(t, m.WriteZip(t.Context(), &archive, r, "ann"))
	z, err := zip.NewReader(bytes.NewReader(archive.Bytes()), int64(archive.Len()))
	must(t, err)
	for _, f := range z.File {
		if _, err := os.Stat(filepath.Join(out, f.Name)); err != nil {
			t.Errorf("the archive has %s, the directory has not: %v", f.Name, err)
		}
	}
	if want := []string{report.Statement, report.Folder + "soc2.html", report.Folder + "soc2.json", id + ".tar"}; len(z.File) < len(want) ||
		slices.ContainsFunc(want, func(name string) bool { _, err := z.Open(name); return err != nil }) {
		t.Errorf("the archive has %d files, want %v", len(z.File), want)
	}
}

// TestBuildRefuses: a report is about runs, and of one tenant.
func TestBuildRefuses(t *testing.T) {
	h, err := host.Open(t.TempDir())
	must(t, err)
	st, err := h.Reader(t.Context())
	must(t, err)
	defer st.Close()
	m := Issuer{Host: h, Source: st}
	for name, runs := range map[string][]report.Run{
		"no run":      nil,
		"two tenants": {{Run: store.Run{ID: "r-1", Tenant: "a"}}, {Run: store.Run{ID: "r-2", Tenant: "b"}}},
	} {
		if r, err := m.Build(t.Context(), report.Input{Framework: "soc2", Runs: runs}); err == nil {
			t.Errorf("%s: a report was made: %+v", name, r.Scope)
		}
	}
}

// runsOf is a source that lists runs.
type runsOf struct {
	host.Reader
	runs []store.Run
}

// Runs implements host.Reader.
func (s runsOf) Runs(context.Context, store.Filter) ([]store.Run, error) { return s.runs, nil }

// TestDuring: a report has the runs of one tenant, and names the others.
func TestDuring(t *testing.T) {
	for _, c := range []struct{ own, runs, want, omitted string }{
		{"a", "a1 a2", "a1 a2", ""},
		{"d", "a1 a2", "a1 a2", ""}, // all of one other tenant
		{"a", "a1 b1 a2 c1 b2", "a1 a2", "the report is about the tenant a; not in it: b1, b2 of the tenant b (--tenant 'b' reports on them); c1 of the tenant c (--tenant 'c' reports on them)"},
		{"d", "a1 b1", "", ""}, // an error
		{"a", "", "", ""},
	} {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, host.ConfigFile), []byte("version: 1\ntenant: "+c.own+"\n"), 0o600))
		h, err := host.Open(dir)
		must(t, err)
		var all []store.Run
		for name := range strings.FieldsSeq(c.runs) {
			all = append(all, store.Run{ID: name, Tenant: name[:1]})
		}
		runs, omitted, err := Issuer{Host: h, Source: runsOf{runs: all}}.During(t.Context(), time.Time{}, time.Time{}, "")
		var ids []string
		for _, r := range runs {
			ids = append(ids, r.ID)
		}
		if strings.Join(ids, " ") != c.want || omitted != c.omitted || (err != nil) != (c.want == "") {
			t.Errorf("%q of %q: %v, %q, %v", c.own, c.runs, ids, omitted, err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
