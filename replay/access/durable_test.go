package access_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/store"
)

// TestAccessLog: with a host's own access log, what a handler shows stands on the disk already, and all of it verifies.
func TestAccessLog(t *testing.T) {
	dir := t.TempDir()
	h, err := host.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	log := h.AccessLog(redact.New([]byte("0123456789abcdef0123456789abcdef")), "test")
	tokens, err := access.OpenTokens(filepath.Join(dir, "serve"))
	if err != nil {
		t.Fatal(err)
	}
	g, err := access.New(access.Options{Tokens: tokens, Tenant: "acme", Recorder: log})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{Gate: g, mux: http.NewServeMux(), host: "localhost"}
	s.mux.Handle("GET /runs/{run}", s.Guard("GET /runs/{run}", access.Rule{Role: access.Viewer, Action: "view"}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !onDisk(t, dir, r.PathValue("run")) {
			t.Errorf("the look at %s is shown and not on the disk", r.PathValue("run"))
		}
	})))
	auth := "Authorization: Bearer " + s.token(t, "ann", "acme", access.Viewer)
	for _, run := range []string{"r-marker-one", "r-marker-two"} {
		if w := s.do(s.request("GET", "/runs/"+run, "", auth)); w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	for range 40 { // more than are written one by one
		s.do(s.request("GET", "/runs/r-3?tenant=beta", "", auth))
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	st, err := h.Store(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	runs, err := st.Runs(t.Context(), store.Filter{Class: store.Accesses})
	if err != nil || len(runs) != 1 {
		t.Fatalf("access logs: %v %v", runs, err)
	}
	shown, refused := 0, uint64(0)
	for row, err := range st.Records(t.Context(), store.Query{Run: runs[0].ID, Kinds: []audit.Kind{audit.KindAccess}}) {
		var r audit.Record
		if err != nil || json.Unmarshal(row.Body, &r) != nil {
			t.Fatal(err)
		}
		switch a := r.Access; {
		case a.Verdict == audit.Allow && a.Who == "ann" && a.Tenant == "acme":
			shown++
		case a.Verdict == audit.Deny && a.Tenant == "beta" && a.Who == "ann" && a.Reason == "tenant":
			refused += max(a.Count, 1)
		default:
			t.Errorf("recorded %+v", a)
		}
	}
	if shown != 2 || refused != 40 {
		t.Errorf("%d looks and %d refusals are recorded", shown, refused)
	}
}

// onDisk reports whether a log below dir has text.
func onDisk(t *testing.T, dir, text string) (found bool) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(dir, "runs"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		found = found || bytes.Contains(data, []byte(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
