// Command apidev serves a home's runs for work on the page. Whoever comes without a credential
// is let in as an admin of what has no tenant, unless -login is given; nobody's look is recorded.
package main

import (
	"cmp"
	"iter"
	"time"

	"context"
	"flag"
	"fmt"
	"github.com/custody-project/custody/audit/export/asciicast"
	"github.com/custody-project/custody/audit/export/csv"
	"github.com/custody-project/custody/audit/export/perfetto"
	"github.com/custody-project/custody/replay/report"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/export/cef"
	"github.com/custody-project/custody/audit/export/ecs"
	"github.com/custody-project/custody/audit/export/native"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/store"
	"github.com/custody-project/custody/home"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/replay/api"
)

// unrecorded forgets who looked.
type unrecorded struct{}

func (unrecorded) Record(context.Context, audit.Access) error { return nil }

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	dir := flag.String("home", os.Getenv("CUSTODY_HOME"), "the home")
	addr := flag.String("addr", "127.0.0.1:8390", "where to listen")
	assets := flag.String("assets", "", "a directory with the page")
	login := flag.Bool("login", false, "ask for a login, by the link that is printed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	h, err := home.Open(*dir)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "apidev-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	tokens, err := access.OpenTokens(scratch)
	if err != nil {
		return err
	}
	token, err := tokens.New("dev", "", access.Admin, 0)
	if err != nil {
		return err
	}
	gate, err := access.New(access.Options{Config: access.Config{Listen: *addr, Rate: access.Rate{PerSecond: 1000, Burst: 1000}},
		Tokens: tokens, Recorder: unrecorded{}})
	if err != nil {
		return err
	}
	defer gate.Close()
	o := options(h, gate, tokens, scratch)
	if *assets != "" {
		o.Assets = http.FileServer(http.Dir(*assets))
	}
	s, err := api.New(o)
	if err != nil {
		return err
	}
	defer s.Close()
	l, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	once, _ := gate.Once()
	fmt.Printf("http://%s/#once=%s\ntoken %s\n", *addr, once, token)
	if *login {
		return s.Serve(ctx, l, nil)
	}
	srv := &http.Server{Handler: open(s, token)}
	defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
	if err := srv.Serve(l); err != http.ErrServerClosed {
		return err
	}
	return nil
}

// open lends a token to whoever brings no credential.
func open(next http.Handler, token string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" && len(r.Cookies()) == 0 && r.URL.Path != api.Base+"/session" || r.Method == http.MethodGet && len(r.Cookies()) == 0 {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		next.ServeHTTP(w, r)
	})
}

func options(h *home.Home, gate *access.Gate, tokens *access.Tokens, scratch string) api.Options {
	return api.Options{
		Open: func(ctx context.Context) (api.Source, error) {
			r, err := h.Reader(ctx)
			if err != nil {
				return nil, err
			}
			return r, nil
		},
		Ahead: func(ctx context.Context, src api.Source, run store.Run) (api.Records, error) {
			return h.Ahead(ctx, src, run)
		},
		Verify: func(ctx context.Context, run store.Run) (proof.Report, error) {
			e, done, err := h.Evidence(ctx, run.ID)
			if err != nil {
				return proof.Report{}, err
			}
			defer done()
			keys, err := h.Trusted()
			if err != nil {
				return proof.Report{}, err
			}
			return proof.Verify(ctx, e, proof.Trust{Keys: keys})
		},
		Bundle: func(ctx context.Context, w io.Writer, run store.Run, s api.Selection) error {
			o := home.BundleOptions{Since: s.Since, By: s.By}
			if last := cmp.Or(s.Last, run.LastSeq); s.First > 0 || s.Last > 0 {
				o.Select = &proof.Selection{Context: true, What: fmt.Sprintf("seq %d to %d", s.First, last),
					Shows: func(seq uint64) bool { return s.First <= seq && seq <= last }}
			}
			return h.Bundle(ctx, w, run.ID, o)
		},
		Proof: func(ctx context.Context, run store.Run, seq uint64) (any, error) {
			e, done, err := h.Evidence(ctx, run.ID)
			if err != nil {
				return nil, err
			}
			defer done()
			return proof.ProofOf(ctx, e, seq)
		},
		Frameworks: frameworks(),
		Report:     func(ctx context.Context, w io.Writer, q api.ReportRequest) error { return write(ctx, h, w, q) },
		Exports: []api.Export{
			api.FormatLines(native.New(), "application/x-ndjson", "ndjson"),
			api.FormatLines(ecs.New(), "application/x-ndjson", "ndjson"),
			api.FormatLines(cef.New(), "text/plain", "cef"),
			api.Rows("csv", "text/csv; charset=utf-8", "csv", false, csv.Write),
			api.Rows("perfetto", "application/octet-stream", "perfetto-trace", true, perfetto.Write),
			api.Rows("asciicast", "application/x-asciicast", "cast", true, func(w io.Writer, run store.Run, rows iter.Seq2[store.Row, error]) error {
				return asciicast.Write(w, run, rows, asciicast.Options{})
			}),
		},
		ExportDir: scratch, Tokens: tokens, Gate: gate, Log: slog.Default(),
	}
}

func frameworks() (ids []string) {
	for _, f := range report.Frameworks() {
		ids = append(ids, f.ID)
	}
	return ids
}

// write writes a report as JSON or HTML; bundles are custody serve's.
func write(ctx context.Context, h *home.Home, w io.Writer, q api.ReportRequest) error {
	src, err := h.Reader(ctx)
	if err != nil {
		return err
	}
	defer src.Close()
	in := report.Input{Framework: q.Framework, Tenant: q.Tenant, From: q.From, To: q.To, Generated: time.Now()}
	for _, r := range q.Runs {
		v := r.Verification
		in.Runs = append(in.Runs, report.Run{Run: r.Run, Rows: src.Records(ctx, store.Query{Run: r.Run.ID}),
			Verification: report.Verification{State: report.State(v.State), Name: v.Name, Number: v.Number, Text: v.Text, At: v.At, Report: r.Report}})
	}
	made, err := report.Build(ctx, in)
	switch {
	case err != nil:
		return err
	case q.Format == "html":
		return made.HTML(w)
	}
	return made.JSON(w)
}
