package api_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/export/format/cef"
	"github.com/custody-project/custody/export/format/csv"
	"github.com/custody-project/custody/export/format/ecs"
	"github.com/custody-project/custody/export/format/native"
	"github.com/custody-project/custody/export/format/perfetto"
	"github.com/custody-project/custody/fleet"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/quota"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/replay/api"
	"github.com/custody-project/custody/replay/report"
	"github.com/custody-project/custody/replay/views"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// world is a home with its store, and a server in front of it.
//
//	client -- TCP, a token -- Server -- Gate -- access log, a run of the home
//	                            `-- the home's store, logs and proofs
type world struct {
	t      testing.TB
	home   *host.Host
	looks  *host.AccessLog
	tokens *access.Tokens
	gate   *access.Gate
	server *api.Server
	base   string
	logged *lockedBuffer // the server's log
	doc    routers.Router
}

// lockedBuffer is a log that several write.
type lockedBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newRedactor() *redact.Redactor { return redact.New([]byte("0123456789abcdef0123456789abcdef")) }

// newWorld starts a server over a new home; change may change its parts.
func newWorld(t testing.TB, change ...func(*world, *api.Options)) *world {
	t.Helper()
	h, err := host.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, home: h, logged: &lockedBuffer{}, doc: document(t)}
	if w.tokens, err = access.OpenTokens(filepath.Join(h.Dir, "serve")); err != nil {
		t.Fatal(err)
	}
	w.looks = h.AccessLog(newRedactor(), "test")
	w.gate, err = access.New(access.Options{
		Config: access.Config{Rate: access.Rate{PerSecond: 1e5, Burst: 1e5}}, Tokens: w.tokens, Recorder: w.looks,
	})
	if err != nil {
		t.Fatal(err)
	}
	o := w.options()
	o.Sandboxes, o.Serves = w.noSandboxes(), func(tenant string) bool { return tenant == "" }
	for _, f := range change {
		f(w, &o)
	}
	if w.server, err = api.New(o); err != nil {
		t.Fatal(err)
	}
	w.listen()
	return w
}

// noSandboxes is a fleet that refuses to create any.
func (w *world) noSandboxes() *fleet.Fleet {
	f, end, err := fleet.Open(quota.Config{}, fleet.Config{Runner: &fleet.Runs{
		Open: func() (*host.Host, error) { return nil, errors.New("the test has no sandboxes") },
	}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(end)
	return f
}

// listen serves until the test ends, and takes everything down then.
func (w *world) listen() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.server.Serve(ctx, l, nil) }()
	w.base = "http://" + l.Addr().String() + api.Base
	w.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			w.t.Error("serve:", err)
		}
		for _, part := range []io.Closer{w.server, w.gate, w.looks} {
			if err := part.Close(); err != nil {
				w.t.Errorf("close: %v", err)
			}
		}
	})
}

func (w *world) options() api.Options {
	return api.Options{
		Open: func(ctx context.Context) (api.Source, error) { return w.home.Reader(ctx) },
		Ahead: func(ctx context.Context, src api.Source, run store.Run) (api.Records, error) {
			return w.home.Ahead(ctx, src, run)
		},
		Verify: func(ctx context.Context, run store.Run) (proof.Report, error) {
			return w.verify(ctx, run)
		},
		Bundle: func(ctx context.Context, out io.Writer, run store.Run, s api.Selection) error {
			return w.home.Proofs().Bundle(ctx, out, cmp.Or(run.Tenant, store.NoTenant), run.ID, host.BundleOptions{Since: s.Since, By: s.By})
		},
		Proof: func(ctx context.Context, run store.Run, seq uint64) (proof.RecordProof, error) {
			e, done, err := w.home.Proofs().OfRun(ctx, cmp.Or(run.Tenant, store.NoTenant), run.ID)
			if err != nil {
				return proof.RecordProof{}, err
			}
			defer done()
			return proof.ProofOf(ctx, e, seq)
		},
		Exports: []api.Export{
			api.FormatLines(native.New(), "application/x-ndjson", "ndjson"),
			api.FormatLines(ecs.New(), "application/x-ndjson", "ndjson"),
			api.FormatLines(cef.New(), "text/plain", "cef"),
			api.Rows("csv", "text/csv; charset=utf-8", "csv", false, csv.Write),
			api.Rows("perfetto", "application/octet-stream", "perfetto-trace", true, perfetto.Write),
		},
		Frameworks: []string{"soc2"},
		Report:     func(ctx context.Context, out io.Writer, q api.ReportRequest) error { return w.report(ctx, out, q) },
		ExportDir:  filepath.Join(w.home.Dir, "serve", "exports"),
		Notes:      w.looks, Views: views.Open(w.home.Views()), Tokens: w.tokens, Gate: w.gate,
		Log: slog.New(slog.NewTextHandler(w.logged, nil)),
	}
}

// report writes a report over the runs.
func (w *world) report(ctx context.Context, out io.Writer, q api.ReportRequest) error {
	in := report.Input{Framework: q.Framework, Tenant: q.Tenant, From: q.From, To: q.To, Generated: time.Now()}
	src, err := w.home.Reader(ctx)
	if err != nil {
		return err
	}
	defer src.Close()
	for _, r := range q.Runs {
		in.Runs = append(in.Runs, report.Run{Run: r.Run, Rows: src.Records(ctx, store.Query{Run: r.Run.ID}), Verification: report.Verification{
			State: report.State(r.Verification.State), Name: r.Verification.Name, Text: r.Verification.Text, At: r.Verification.At, Report: r.Report}})
	}
	made, err := report.Build(ctx, in)
	switch {
	case err != nil:
		return err
	case q.Format == "html":
		return made.HTML(out)
	}
	return made.JSON(out)
}

// verify checks the run's evidence, and that the store shows what the log holds.
func (w *world) verify(ctx context.Context, run store.Run) (proof.Report, error) {
	e, done, err := w.home.Proofs().OfRun(ctx, cmp.Or(run.Tenant, store.NoTenant), run.ID)
	if err != nil {
		return proof.Report{}, err
	}
	defer done()
	keys, err := w.home.Keys().Trusted()
	if err != nil {
		return proof.Report{}, err
	}
	report, err := proof.Verify(ctx, e, proof.Trust{Keys: keys})
	if err != nil {
		return report, err
	}
	st, err := w.home.Store(ctx)
	if err != nil {
		return report, err
	}
	defer st.Close()
	_, err = replay.CompareStore(ctx, st.Records(ctx, store.Query{Run: run.ID}), w.home.RunLogs().Frames(run.ID))
	return report, err
}

// ingest puts segments into the home's store as another host would have made them.
func (w *world) ingest(tenant string, segs ...store.Segment) {
	w.t.Helper()
	st, err := w.home.Store(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	defer st.Close()
	for i := range segs {
		segs[i].Tenant = tenant
	}
	if err := st.Ingest(w.t.Context(), segs...); err != nil {
		w.t.Fatal(err)
	}
}

// begin begins a run of this host.
func (w *world) begin(id string) *host.Run {
	w.t.Helper()
	run, err := w.home.Begin(w.t.Context(), host.RunOptions{ID: id, Mode: wal.Strict, Redactor: newRedactor()})
	if err != nil {
		w.t.Fatal(err)
	}
	return run
}

// record records events in a run.
func (w *world) record(run *host.Run, events ...audit.Event) {
	w.t.Helper()
	for _, e := range events {
		if _, err := run.Record(w.t.Context(), e); err != nil {
			w.t.Fatal(err)
		}
	}
}

// end ships and closes a run.
func (w *world) end(run *host.Run) {
	w.t.Helper()
	run.Ship(context.Background())
	w.close(run)
}

// close closes a run that is shipping, and waits until the store has it.
func (w *world) close(run *host.Run) {
	w.t.Helper()
	record, stored := run.Close(context.Background(), wal.Sealed)
	if record != nil || stored != nil {
		w.t.Fatal(record, stored)
	}
}

// whole makes a run of n records on this host.
func (w *world) whole(id string, n int) []audit.Event {
	w.t.Helper()
	events := storetest.Events(n)
	for i := range events {
		if events[i].Kind == audit.KindOutput {
			events[i].Observer = audit.Host
		}
	}
	run := w.begin(id)
	w.record(run, events...)
	w.end(run)
	return events
}

// token makes one, and returns its text.
func (w *world) token(tenant string, role access.Role) string {
	w.t.Helper()
	list, err := w.tokens.List()
	if err != nil {
		w.t.Fatal(err)
	}
	text, err := w.tokens.New(w.t.Context(), fmt.Sprintf("%s-%s-%d", tenant, role, len(list)), tenant, role, time.Hour)
	if err != nil {
		w.t.Fatal(err)
	}
	return text
}

// reply is an answer that was read whole.
type reply struct {
	*http.Response
	body []byte
}

// json decodes the answer.
func (r reply) json(t testing.TB, to any) {
	t.Helper()
	if r.StatusCode >= 300 {
		t.Fatalf("%s %s: %s\n%.600s", r.Request.Method, r.Request.URL, r.Status, r.body)
	}
	if err := json.Unmarshal(r.body, to); err != nil {
		t.Fatalf("%v\n%.600s", err, r.body)
	}
}

// problem is the answer as problem details, with the status wanted.
func (r reply) problem(t testing.TB, status int) access.Problem {
	t.Helper()
	var p access.Problem
	if r.StatusCode != status || r.Header.Get("Content-Type") != "application/problem+json" {
		t.Fatalf("%s %s: %s, want the problem %d\n%.600s", r.Request.Method, r.Request.URL, r.Status, status, r.body)
	}
	if err := json.Unmarshal(r.body, &p); err != nil || p.Status != status || p.Title == "" || p.Detail == "" {
		t.Fatalf("%v: %+v\n%s", err, p, r.body)
	}
	return p
}

// browser follows nothing and keeps nothing.
func browser() *http.Client {
	return &http.Client{Timeout: 60 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// do asks, and holds question and answer to the document. A question that the document does not
// allow has to be refused.
func (w *world) do(method, path, token, body string) reply {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.base+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := browser().Do(req)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	w.hold(req, body, res, text)
	return reply{res, text}
}

func (w *world) get(path, token string) reply {
	w.t.Helper()
	return w.do("GET", path, token, "")
}

// hold validates a request and its answer against the document.
func (w *world) hold(req *http.Request, body string, res *http.Response, text []byte) {
	w.t.Helper()
	again := req.Clone(context.Background())
	again.Body = io.NopCloser(strings.NewReader(body))
	again.URL.Scheme, again.URL.Host = "", ""
	at, params, err := w.doc.FindRoute(again)
	if err != nil {
		if res.StatusCode != http.StatusNotFound && res.StatusCode != http.StatusMethodNotAllowed {
			w.t.Errorf("%s %s is not in the document, and was answered with %s", req.Method, req.URL, res.Status)
		}
		return
	}
	in := &openapi3filter.RequestValidationInput{Request: again, PathParams: params, Route: at, Options: validation()}
	if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil && res.StatusCode < 400 {
		w.t.Errorf("%s %s is not as the document has it, and was answered with %s: %v", req.Method, req.URL, res.Status, err)
	}
	out := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: res.StatusCode, Header: res.Header, Options: validation()}
	out.SetBodyBytes(text)
	if err := openapi3filter.ValidateResponse(context.Background(), out); err != nil {
		w.t.Errorf("the answer to %s %s is not as the document has it: %.1500v", req.Method, req.URL, err)
	}
}

func validation() *openapi3filter.Options {
	return &openapi3filter.Options{IncludeResponseStatus: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}
}

// document reads and checks the document, as the server has it.
func document(t testing.TB) routers.Router {
	t.Helper()
	for _, mediaType := range []string{"application/zip", "application/x-tar", "text/html", "text/event-stream", "application/x-ndjson", "application/x-asciicast", "application/octet-stream"} {
		if openapi3filter.RegisteredBodyDecoder(mediaType) == nil {
			openapi3filter.RegisterBodyDecoder(mediaType, openapi3filter.FileBodyDecoder)
		}
	}
	doc := loadDocument(t)
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	return router
}

func loadDocument(t testing.TB) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		t.Fatal(err)
	}
	return doc
}
