package api_test

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/replay/api"
	"github.com/custody-project/custody/store"

	_ "modernc.org/sqlite"
)

// standing is what the list of runs says of the run's record.
func (w *world) standing(run, token string) api.Verification {
	w.t.Helper()
	var page runPage
	w.get("/runs", token).json(w.t, &page)
	for _, r := range page.Runs {
		if r.ID == run {
			return r.Verification
		}
	}
	w.t.Fatalf("there is no %s", run)
	return api.Verification{}
}

// TestVerify: a run that verifies is shown so without a request for it. One that was tampered with, in the log or in the
// store, fails once it is checked, with the finding's name, number and text, in every answer that shows the run.
func TestVerify(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, id := range []string{"r-good", "r-log", "r-store"} {
		w.whole(id, 40)
	}
	token := w.token("", access.Auditor)
	for _, id := range []string{"r-good", "r-log", "r-store"} {
		w.await(t, func() bool { return w.standing(id, token).State == api.Holds })
	}
	var v api.Verification
	w.get("/runs/r-good/verify", token).json(t, &v)
	if v.State != api.Holds || v.Report == nil || v.Report.Records != 40 || v.Report.HoldsTo != 40 || v.Report.Published == nil {
		t.Errorf("%+v", v)
	}
	segments, err := filepath.Glob(filepath.Join(w.home.RunDir("r-log"), "*.seg"))
	if err != nil || len(segments) == 0 {
		files, _ := os.ReadDir(w.home.RunDir("r-log"))
		t.Fatal(files, err)
	}
	text, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(text), "change 8")
	text[at] = 'C'
	if err := os.WriteFile(segments[0], text, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", filepath.Join(w.home.Dir, "custody.db"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "UPDATE records SET time = time + 1 WHERE run = 'r-store' AND seq = 7"); err != nil {
		t.Fatal(err)
	}
	db.Close()
	for id, name := range map[string]string{"r-log": "record-", "r-store": "store-differs", "r-good": ""} {
		v = api.Verification{}
		w.do("POST", "/runs/"+id+"/verify", token, "").json(t, &v)
		if want := map[bool]string{true: api.Fails, false: api.Holds}[name != ""]; v.State != want || !strings.HasPrefix(v.Name, name) || v.Text == "" {
			t.Errorf("%s: %+v", id, v)
		}
		listed := w.standing(id, token)
		var detail api.RunDetail
		w.get("/runs/"+id, token).json(t, &detail)
		var diff api.Comparison
		w.get("/compare?a="+id+"&b=r-good", token).json(t, &diff)
		for where, other := range map[string]api.Verification{"list": listed, "run": detail.Verification, "comparison": diff.A.Verification} {
			if other.State != v.State || other.Name != v.Name || other.Number != v.Number || other.Text != v.Text || other.Report != nil {
				t.Errorf("%s: the %s says %+v", id, where, other)
			}
		}
	}
}

// TestVerifyOnce: however many requests come concurrently, a run is checked once; a check that could not be made is reported as such.
func TestVerifyOnce(t *testing.T) {
	t.Parallel()
	var checks atomic.Int64
	release := make(chan struct{})
	w := newWorld(t, func(w *world, o *api.Options) {
		o.Verify = func(ctx context.Context, run store.Run) (proof.Report, error) {
			checks.Add(1)
			select {
			case <-release:
			case <-ctx.Done():
			}
			return proof.Report{}, errors.New("secret path /var/x")
		}
	})
	w.ingest("", madeUp("r-1", 20, 0)...)
	token := w.token("", access.Auditor)
	answers := make(chan reply, 4)
	for range 4 {
		go func() { answers <- w.get("/runs/r-1/verify", token) }()
	}
	w.await(t, func() bool { return w.standing("r-1", token).State == api.Checking })
	close(release)
	for range 4 {
		var v api.Verification
		(<-answers).json(t, &v)
		if v.State != api.Cannot || strings.Contains(v.Text, "/var/x") {
			t.Errorf("%+v", v)
		}
	}
	if n := checks.Load(); n != 1 {
		t.Errorf("%d checks, want 1", n)
	}
}

// TestUnsigned: rows that were written into the store without any signed record are marked in every answer that shows the run.
func TestUnsigned(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.whole("r-good", 40)
	token := w.token("", access.Auditor)
	db, err := sql.Open("sqlite", filepath.Join(w.home.Dir, "custody.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // which has the temporary table
	for _, table := range []string{"runs", "records"} {
		for _, stated := range []string{
			"CREATE TEMP TABLE copy AS SELECT * FROM " + table + " WHERE run = 'r-good'",
			"UPDATE temp.copy SET run = 'r-invented'", "INSERT INTO " + table + " SELECT * FROM temp.copy", "DROP TABLE temp.copy",
		} {
			if _, err := db.ExecContext(t.Context(), stated); err != nil {
				t.Fatalf("%s: %v", stated, err)
			}
		}
	}
	var v api.Verification
	w.do("POST", "/runs/r-invented/verify", token, "").json(t, &v)
	if v.State != api.Unsigned || v.Name != "unsigned" || !strings.Contains(v.Text, "no signature covers this run") {
		t.Errorf("%+v", v)
	}
	if v := w.standing("r-invented", token); v.State != api.Unsigned {
		t.Errorf("in the list: %+v", v)
	}
	if _, err := db.ExecContext(t.Context(), "INSERT INTO manifests SELECT 'r-invented', idx, first, last, root, bytes, tenant, host, count FROM manifests WHERE run = 'r-good'"); err != nil {
		t.Fatal(err)
	}
	w.do("POST", "/runs/r-invented/verify", token, "").json(t, &v)
	if v.State != api.Fails || v.Name != "store-differs" || !strings.Contains(v.Text, "another run") {
		t.Errorf("with the manifests of another run: %+v", v)
	}
	w.do("POST", "/runs/r-good/verify", token, "").json(t, &v)
	if v.State != api.Holds {
		t.Errorf("the run that it is a copy of: %+v", v)
	}
}

// TestUnverifiable: a run of which no one has the record cannot be judged; a live one neither.
func TestUnverifiable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ingest("", madeUp("r-made-up", 20, 0)...)
	token := w.token("", access.Auditor)
	var v api.Verification
	w.get("/runs/r-made-up/verify", token).json(t, &v)
	t.Log(v)
	if v.State == api.Holds || v.State == api.Unchecked {
		t.Errorf("a run with made-up manifests: %+v", v)
	}
	live := w.begin("r-live")
	live.Ship(context.Background())
	w.record(live, madeUpEvents(20)[:10]...)
	w.await(t, func() bool { return w.get("/runs/r-live", token).StatusCode == http.StatusOK })
	w.get("/runs/r-live/verify", token).json(t, &v)
	if v.State != api.Cannot || v.Name != "run-live" || v.Number != 81 {
		t.Errorf("a live run: %+v", v)
	}
	w.record(live, madeUpEvents(20)[10:]...)
	w.close(live)
}
