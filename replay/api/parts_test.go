package api_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/replay/api"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// breakable is a store that can be away.
type breakable struct {
	api.Source
	away *atomic.Bool
}

var errGone = errors.New("dial tcp 10.0.0.1:9000: password=hunter2: connection refused")

func (b breakable) Runs(ctx context.Context, f store.Filter) ([]store.Run, error) {
	if b.away.Load() {
		return nil, errGone
	}
	return b.Source.Runs(ctx, f)
}

func (b breakable) Run(ctx context.Context, tenant, name string) (store.Run, error) {
	if b.away.Load() {
		return store.Run{}, errGone
	}
	return b.Source.Run(ctx, tenant, name)
}

func (b breakable) Search(ctx context.Context, q store.Search) iter.Seq2[store.Row, error] {
	if b.away.Load() {
		return func(yield func(store.Row, error) bool) { yield(store.Row{}, errGone) }
	}
	return b.Source.Search(ctx, q)
}

// TestAway: the server starts without its store, reports that it is away and nothing of how, and recovers by itself.
func TestAway(t *testing.T) {
	t.Parallel()
	var away atomic.Bool
	away.Store(true)
	w := newWorld(t, func(w *world, o *api.Options) {
		open := o.Open
		o.Open = func(ctx context.Context) (api.Source, error) {
			if away.Load() {
				return nil, errGone
			}
			src, err := open(ctx)
			return breakable{src, &away}, err
		}
	})
	w.ingest("", madeUp("r-1", 20, 0)...)
	token := w.token("", access.Auditor)
	for range 2 {
		for _, path := range []string{"/runs", "/runs/r-1", "/runs/r-1/records", "/search?q=git", "/findings", "/access", "/runs/r-1/live", "/runs/r-1/export"} {
			r := w.get(path, token)
			p := r.problem(t, http.StatusServiceUnavailable)
			if r.Header.Get("Retry-After") == "" || p.Hint == "" || r.Header.Get("Custody-Error") == "" || strings.Contains(string(r.body), "hunter2") {
				t.Errorf("%s: %v %s", path, r.Header, r.body)
			}
		}
		if !strings.Contains(w.logged.String(), "hunter2") {
			t.Error("the log does not say why the store is away")
		}
		var health api.Health
		w.get("/health", "").json(t, &health)
		if health.Store != "away" {
			t.Errorf("%+v", health)
		}
		away.Store(false)
		w.await(t, func() bool { return w.get("/runs/r-1", token).StatusCode == http.StatusOK })
		w.get("/health", "").json(t, &health)
		if health.Store != "ok" {
			t.Errorf("%+v", health)
		}
		away.Store(true)
	}
}

// TestBundleAndProof: what is downloaded verifies by itself.
func TestBundleAndProof(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.whole("r-1", 40)
	token := w.token("", access.Auditor)
	keys, err := w.home.Keys().Trusted()
	if err != nil {
		t.Fatal(err)
	}
	r := w.get("/runs/r-1/bundle", token)
	if got := r.Header.Get("Content-Disposition"); r.StatusCode != 200 || got != `attachment; filename="r-1.tar"` {
		t.Fatalf("%s %s %.300s", r.Status, got, r.body)
	}
	file := filepath.Join(t.TempDir(), "b.tar")
	if err := os.WriteFile(file, r.body, 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := proof.OpenBundle(file)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if report, err := proof.Verify(t.Context(), e, proof.Trust{Keys: keys}); err != nil || report.Records != 40 {
		t.Errorf("%+v %v", report, err)
	}
	one := w.get("/runs/r-1/records/7/proof", token)
	p, err := proof.ParseRecordProof(one.body)
	if err != nil || p.Seq != 7 || p.State != proof.StateLogged {
		t.Errorf("%+v %v", p, err)
	}
}

// TestBrokenDownload: a download that fails on its way is cut off, so that no one takes a part for the whole.
func TestBrokenDownload(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *world, o *api.Options) {
		o.Bundle = func(_ context.Context, out io.Writer, run store.Run, _ api.Selection) error {
			if run.ID == "r-1" {
				_, _ = out.Write(make([]byte, 1<<20))
			}
			return errors.New("the disk is gone")
		}
	})
	w.ingest("", madeUp("r-1", 20, 0)...)
	w.ingest("", madeUp("r-2", 20, 0)...)
	token := w.token("", access.Auditor)
	w.get("/runs/r-2/bundle", token).problem(t, http.StatusInternalServerError)
	req, err := http.NewRequest("GET", w.base+"/runs/r-1/bundle", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := browser().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if n, err := io.Copy(io.Discard, res.Body); err == nil {
		t.Errorf("%d bytes of a broken bundle look whole", n)
	}
}

// TestExport writes each format, and the same records that the list shows for a filter.
func TestExport(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.whole("r-1", 60)
	token := w.token("", access.Auditor)
	for _, query := range []string{"", "kind=exec", "kind=exec,file&q=change", "from=%2B10ms&to=%2B20ms", "observer=host"} {
		want := strings.Join(w.pages(t, "/runs/r-1/records?"+query, token), "\n") + "\n"
		if want == "\n" {
			want = ""
		}
		if got := w.get("/runs/r-1/export?"+query, token); string(got.body) != want {
			t.Errorf("%s: exported\n%.300s\nwant\n%.300s", query, got.body, want)
		}
		for _, format := range []string{"native", "ecs", "cef"} {
			r := w.get("/runs/r-1/export?format="+format+"&"+query, token)
			if got := strings.Count(string(r.body), "\n"); r.StatusCode != 200 || got != strings.Count(want, "\n") {
				t.Errorf("%s as %s: %s, %d lines, want %d", query, format, r.Status, got, strings.Count(want, "\n"))
			}
		}
	}
}

// files are what the export jobs have on the disk.
func (w *world) files() (names []string) {
	all, _ := filepath.Glob(filepath.Join(w.home.Dir, "serve", "exports", "jobs-*", "*"))
	for _, name := range all {
		if base := filepath.Base(name); base != "lock" {
			names = append(names, base)
		}
	}
	return names
}

// TestJobs: an export in the background is its owner's alone, has the same bytes as one in the foreground, and leaves nothing.
func TestJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.whole("r-1", 60)
	w.whole("r-2", 40)
	token, other := w.token("", access.Auditor), w.token("", access.Auditor)
	r := w.do("POST", "/exports", token, `{"runs":["r-2","r-1","r-2"],"kinds":["exec","run"]}`)
	var job api.Job
	r.json(t, &job)
	if r.StatusCode != http.StatusAccepted || r.Header.Get("Location") != api.Base+"/exports/"+job.ID || job.Runs != 2 {
		t.Fatalf("%s %+v", r.Status, job)
	}
	w.await(t, func() bool {
		w.get("/exports/"+job.ID, token).json(t, &job)
		return job.State == api.Done
	})
	got := w.get("/exports/"+job.ID+"/file", token)
	want := append(w.get("/runs/r-2/export?kind=exec,run", token).body, w.get("/runs/r-1/export?kind=exec,run", token).body...)
	if !bytes.Equal(got.body, want) || job.Bytes != int64(len(want)) || len(want) == 0 {
		t.Errorf("%d bytes, want %d, told %d", len(got.body), len(want), job.Bytes)
	}
	if names := w.files(); len(names) != 1 {
		t.Errorf("files: %v", names)
	} else if info, err := os.Stat(filepath.Join(w.home.Dir, "serve", "exports", filepath.Base(filepath.Dir(one(t, w))), names[0])); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	for _, path := range []string{"/exports/" + job.ID, "/exports/" + job.ID + "/file"} {
		w.get(path, other).problem(t, http.StatusNotFound)
	}
	w.do("DELETE", "/exports/"+job.ID, other, "").problem(t, http.StatusNotFound)
	var list struct{ Exports []api.Job }
	w.get("/exports", other).json(t, &list)
	if len(list.Exports) != 0 {
		t.Errorf("another's list: %+v", list)
	}
	if r := w.do("DELETE", "/exports/"+job.ID, token, ""); r.StatusCode != http.StatusNoContent {
		t.Errorf("%s", r.Status)
	}
	w.get("/exports/"+job.ID, token).problem(t, http.StatusNotFound)
	if names := w.files(); len(names) != 0 {
		t.Errorf("left: %v", names)
	}
	for body, status := range map[string]int{
		``: 415, `{`: 400, `[]`: 400, `{"runs":[]}`: 400, `{"runs":["r-1"],"from":"2026-01-01T00:00:00Z"}`: 400, `{"runs":["r-1"],"x":1}`: 400, `{"runs":["r-1"]} {}`: 400,
		`{"runs":["r-1"],"format":"exe"}`: 400, `{"runs":["r-1"],"kinds":["access"]}`: 400, `{"from":"2026-11-03T12:00:00Z","to":"2026-11-02T12:00:00Z"}`: 400,
		`{"from":"2031-01-01T00:00:00Z"}`: 404, `{"runs":["` + strings.Repeat("x", 300<<10) + `"]}`: 413, `{"runs":["` + strings.Repeat(`r-1","`, 10_000) + `r-1"]}`: 400,
	} {
		w.do("POST", "/exports", token, body).problem(t, status)
	}
}

// one is the only file of the jobs.
func one(t *testing.T, w *world) string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(w.home.Dir, "serve", "exports", "jobs-*", "*"))
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	return all[0]
}

// TestJobBounds: jobs are bounded in number and in size; one that is ended while it is written leaves nothing, and
// so does a server that ends, or that was killed before.
func TestJobBounds(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	stuck := api.Export{Name: "stuck", Type: "text/plain", Suffix: "txt", Write: func(ctx context.Context, out io.Writer, _ api.Source, _ replay.Filter, _ []store.Run) error {
		_, err := out.Write([]byte("x"))
		select {
		case <-hold:
		case <-ctx.Done():
			return ctx.Err()
		}
		return err
	}}
	big := api.Export{Name: "big", Type: "text/plain", Suffix: "txt", Write: func(_ context.Context, out io.Writer, _ api.Source, _ replay.Filter, _ []store.Run) error {
		for {
			if _, err := out.Write(make([]byte, 4096)); err != nil {
				return err
			}
		}
	}}
	var left string
	w := newWorld(t, func(w *world, o *api.Options) {
		o.Exports = append(o.Exports, stuck, big)
		o.ExportBytes = 64 << 10
		left = filepath.Join(o.ExportDir, "jobs-left")
		if err := os.MkdirAll(left, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(left, "file"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what a killed server left is still there: %v", err)
	}
	w.ingest("", madeUp("r-1", 20, 0)...)
	token := w.token("", access.Auditor)
	add := func(format string) (job api.Job) {
		w.do("POST", "/exports", token, `{"runs":["r-1"],"format":"`+format+`"}`).json(t, &job)
		return job
	}
	state := func(job api.Job) api.Job {
		w.get("/exports/"+job.ID, token).json(t, &job)
		return job
	}
	first := add("stuck")
	w.await(t, func() bool { return state(first).State == api.Running && len(w.files()) == 1 })
	w.get("/exports/"+first.ID+"/file", token).problem(t, http.StatusConflict)
	for range 7 {
		add("big")
	}
	w.do("POST", "/exports", token, `{"runs":["r-1"]}`).problem(t, http.StatusTooManyRequests)
	if r := w.do("DELETE", "/exports/"+first.ID, token, ""); r.StatusCode != http.StatusNoContent {
		t.Error(r.Status)
	}
	var list struct{ Exports []api.Job }
	w.await(t, func() bool {
		w.get("/exports", token).json(t, &list)
		return len(list.Exports) == 7 && !slices.ContainsFunc(list.Exports, func(j api.Job) bool { return j.State != api.Failed })
	})
	for _, job := range list.Exports {
		if !strings.Contains(job.Detail, "bigger") || job.Hint == "" || job.Bytes > 64<<10 {
			t.Errorf("%+v", job)
		}
		w.do("DELETE", "/exports/"+job.ID, token, "")
	}
	if names := w.files(); len(names) != 0 {
		t.Errorf("left: %v", names)
	}
	last := add("stuck")
	w.await(t, func() bool { return state(last).State == api.Running })
	if err := w.server.Close(); err != nil {
		t.Error(err)
	}
	if all, _ := filepath.Glob(filepath.Join(w.home.Dir, "serve", "exports", "*")); len(all) != 0 {
		t.Errorf("the server left %v", all)
	}
}

// TestTokens: an admin makes and removes tokens of their own tenant, and sees no others.
func TestTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme, none := w.token("acme", access.Admin), w.token("", access.Admin)
	var made struct{ Token string }
	r := w.do("POST", "/tokens", acme, `{"name":"ci","role":"viewer","ttl_seconds":3600}`)
	r.json(t, &made)
	if r.StatusCode != http.StatusCreated {
		t.Error(r.Status)
	}
	w.get("/runs", made.Token).json(t, &struct{}{})
	w.get("/runs?tenant=", made.Token).problem(t, http.StatusForbidden)
	var list struct{ Tokens []access.Token }
	w.get("/tokens", acme).json(t, &list)
	i := slices.IndexFunc(list.Tokens, func(k access.Token) bool { return k.Name == "ci" })
	if i < 0 || list.Tokens[i].Tenant != "acme" || strings.Contains(fmt.Sprint(list), made.Token) {
		t.Fatalf("%+v", list)
	}
	id := list.Tokens[i].ID
	w.get("/tokens", none).json(t, &list)
	if slices.ContainsFunc(list.Tokens, func(k access.Token) bool { return k.Tenant != "" }) {
		t.Errorf("%+v", list)
	}
	w.do("DELETE", "/tokens/"+id, none, "").problem(t, http.StatusNotFound)
	w.do("DELETE", "/tokens/ci", acme, "").problem(t, http.StatusNotFound)
	if r := w.do("DELETE", "/tokens/"+id, acme, ""); r.StatusCode != http.StatusNoContent {
		t.Error(r.Status)
	}
	w.get("/runs", made.Token).problem(t, http.StatusUnauthorized)
	for _, body := range []string{`{"name":"","role":"viewer"}`, `{"name":"x","role":"root"}`, `{"name":"x","role":"viewer","tenant":"beta"}`, `{"name":"x","role":"viewer","ttl_seconds":-1}`,
		`{"name":"x","role":"viewer","ttl_seconds":99999999999}`, `{"name":"x\u0000","role":"viewer"}`} {
		w.do("POST", "/tokens", acme, body).problem(t, http.StatusBadRequest)
	}
}

// TestAccess: each look is listed to the auditors of the tenant that it was about, and to no others.
func TestAccess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ingest("acme", madeUp("r-1", 20, 0)...)
	acme, none, viewer := w.token("acme", access.Auditor), w.token("", access.Auditor), w.token("acme", access.Viewer)
	w.get("/runs/r-1/records?q=find+me", viewer)
	w.get("/runs/r-1/bundle", viewer).problem(t, http.StatusForbidden)
	w.get("/runs?tenant=acme", none).problem(t, http.StatusForbidden)
	var page struct{ Access []api.AccessEvent }
	has := func(route, about string, finding audit.Verdict) bool {
		return slices.ContainsFunc(page.Access, func(l api.AccessEvent) bool {
			return l.Route == "GET "+api.Base+route && string(l.About) == about && l.Verdict == finding
		})
	}
	w.await(t, func() bool { // what the log has is soon in the store
		w.get("/access?limit=5000", acme).json(t, &page)
		return has("/runs/{run}/records", "r-1", audit.Allow) && has("/runs/{run}/bundle", "r-1", audit.Deny) && has("/runs", "", audit.Deny)
	})
	for i, l := range page.Access {
		if l.Tenant != "acme" || i > 0 && l.Time.After(page.Access[i-1].Time) {
			t.Errorf("%+v", l)
		}
	}
	w.get("/access?limit=5000", none).json(t, &page)
	if slices.ContainsFunc(page.Access, func(l api.AccessEvent) bool { return l.Tenant != "" }) {
		t.Errorf("the looks at another tenant: %+v", page.Access)
	}
	var hits struct{ Hits []json.RawMessage }
	w.get("/search?from=2026-01-01T00:00:00Z&q=find", none).json(t, &hits)
	if len(hits.Hits) != 0 {
		t.Errorf("a search finds looks: %s", hits.Hits)
	}
}

// TestHeaders: every answer has the security headers; what is not found is a problem; a panic is reported by an id.
func TestHeaders(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *world, o *api.Options) {
		o.Proof = func(context.Context, store.Run, uint64) (proof.RecordProof, error) { panic("secret thing") }
		o.Assets = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<!doctype html>") })
	})
	w.whole("r-1", 400)
	token := w.token("", access.Auditor)
	for path, status := range map[string]int{"/runs": 200, "/runs/r-1/lanes": 200, "/nothing": 404, "/runs?x=1": 400, "/health": 200, "/runs/r-1/records/1/proof": 500, "/runs/r-1/export": 200} {
		r := w.get(path, token)
		if r.StatusCode != status {
			t.Errorf("%s: %s", path, r.Status)
		}
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin"} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
		if got := r.Header.Get("Content-Security-Policy"); !strings.HasPrefix(got, "default-src 'none'") || strings.Contains(got, "unsafe") || r.Header.Get("Permissions-Policy") == "" {
			t.Errorf("%s: %q", path, got)
		}
		if id := r.Header.Get("Custody-Error"); status == 500 && (id == "" || !strings.Contains(w.logged.String(), id) || strings.Contains(string(r.body), "secret thing")) {
			t.Errorf("%s: id %q, %s", path, id, r.body)
		}
	}
	for method, path := range map[string]string{"POST": "/runs", "PUT": "/runs/r-1", "DELETE": "/runs/r-1/records/1", "PATCH": "/session", "TRACE": "/health"} {
		if r := w.do(method, path, token, ""); r.Header.Get("Allow") == "" {
			t.Errorf("%s %s: %v", method, path, r.Header)
		} else {
			r.problem(t, http.StatusMethodNotAllowed)
		}
	}
	req, err := http.NewRequest("GET", w.base+"/runs/r-1/records", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept-Encoding", "gzip")
	res, err := browser().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if z, err := gzip.NewReader(res.Body); err != nil || res.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("%v %v", err, res.Header)
	} else if text, err := io.ReadAll(z); err != nil || !json.Valid(text) {
		t.Errorf("%v", err)
	}
	page, err := browser().Get(strings.TrimSuffix(w.base, api.Base) + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer page.Body.Close()
	if got := page.Header.Get("Content-Security-Policy"); !strings.Contains(got, "script-src 'self'") || strings.Contains(got, "unsafe") {
		t.Errorf("the page: %q", got)
	}
}

// TestStories: many concurrent requests about many runs read each run once; memory is bounded; a run that is
// too large for it is a problem of its own, and its records are still there.
func TestStories(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	w := newWorld(t, func(w *world, o *api.Options) {
		open := o.Open
		o.Verify, o.StoryBytes = nil, 1<<20
		o.Open = func(ctx context.Context) (api.Source, error) {
			src, err := open(ctx)
			return counting{src, &asked}, err
		}
	})
	w.ingest("", madeUp("r-1", 400, 0)...)
	w.ingest("", madeUp("r-2", 400, 0)...)
	w.ingest("", madeUp("r-big", 3000, 0)...)
	token := w.token("", access.Viewer)
	var asking sync.WaitGroup
	for i := range 16 {
		asking.Go(func() {
			w.get(fmt.Sprintf("/runs/r-%d/state?at=%%2B%dms", 1+i%2, i), token).json(t, &struct{}{})
		})
	}
	asking.Wait()
	if n := asked.Load(); n != 2 {
		t.Errorf("two runs were read %d times", n)
	}
	for range 2 {
		w.get("/runs/r-big/lanes", token).problem(t, http.StatusInsufficientStorage)
	}
	w.get("/runs/r-big/records?limit=10", token).json(t, &struct{}{})
	w.get("/runs/r-1/files", token).json(t, &struct{}{})
}

// TestGrowing: what a live run has recorded is soon in its state, and the end as well.
func TestGrowing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.token("", access.Viewer)
	events := storetest.Events(40)
	segs := storetest.Segments("r-1", storetest.Frames("r-1", events), 10)
	for i, seg := range segs {
		w.ingest("", seg)
		want := uint64(min((i+1)*10, 40))
		w.await(t, func() bool {
			var state replay.State
			w.get("/runs/r-1/state", token).json(t, &state)
			return state.Events == want && (state.Phase == "ended") == (want == 40)
		})
	}
	var item api.RunItem
	w.get("/runs/r-1", token).json(t, &item)
	if item.Live || time.Since(*item.End) < 0 {
		t.Errorf("%+v", item)
	}
}
