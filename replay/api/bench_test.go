package api_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/replay/api"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/clickhouse"
	"github.com/custody-project/custody/store/clickhouse/clickhousetest"
	"github.com/custody-project/custody/store/sqlite"
	"github.com/custody-project/custody/store/storetest"
)

// benchStore is a Large store behind a server. What is asked for is asked over TCP with a token; each
// access is durable before it is answered, and answers are read whole.
type benchStore struct {
	*world
	token string
}

// BenchmarkSQLite asks the API over a SQLite store of $CUSTODY_BENCH_ROWS records, which is kept where
// $CUSTODY_BENCH_SQLITE names a file.
func BenchmarkSQLite(b *testing.B) {
	path := os.Getenv("CUSTODY_BENCH_SQLITE")
	if path == "" {
		path = b.TempDir() + "/store.db"
	}
	benchmark(b, func(ctx context.Context) (store.Store, error) { return sqlite.Open(ctx, path) })
}

// BenchmarkClickHouse does so over the ClickHouse engine, or the database that $CUSTODY_BENCH_CLICKHOUSE names.
func BenchmarkClickHouse(b *testing.B) {
	dsn := os.Getenv("CUSTODY_BENCH_CLICKHOUSE")
	if dsn == "" {
		dsn = clickhousetest.Start(b).Fresh()
	}
	benchmark(b, func(ctx context.Context) (store.Store, error) {
		return clickhouse.Open(ctx, dsn, clickhouse.Options{Settle: time.Minute})
	})
}

func benchmark(b *testing.B, open func(context.Context) (store.Store, error)) {
	st, err := open(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	large := storetest.LargeOf(b)
	large.Fill(b, st)
	if err := st.Close(); err != nil {
		b.Fatal(err)
	}
	w := newWorld(b, func(_ *world, o *api.Options) {
		o.Verify = nil
		o.Open = func(ctx context.Context) (api.Source, error) { return open(ctx) }
	})
	s := benchStore{w, w.token("acme", access.Auditor)}
	runs := s.runs(b)
	run := runs[0]
	hash := s.hash(b, run.ID)
	for _, q := range []struct {
		name string
		path func(i int) string
	}{
		{"runs", func(int) string { return "/runs?limit=200" }},
		{"run-cold", func(i int) string { return "/runs/" + runs[i%len(runs)].ID }}, // of more runs than are asked for again
		{"run", func(int) string { return "/runs/" + run.ID }},
		{"lanes", func(int) string { return "/runs/" + run.ID + "/lanes?columns=1200" }},
		{"lanes-zoomed", func(i int) string {
			return fmt.Sprintf("/runs/%s/lanes?from=%%2B%ds&to=%%2B%ds", run.ID, i%400, i%400+20)
		}},
		{"state", func(i int) string { return fmt.Sprintf("/runs/%s/state?at=%%2B%dms", run.ID, i*7919%480_000) }},
		{"records", func(i int) string { return fmt.Sprintf("/runs/%s/records?limit=200&after=%d", run.ID, i*97%5000) }},
		{"record", func(i int) string { return fmt.Sprintf("/runs/%s/records/%d", run.ID, 1+i*97%5000) }},
		{"search-hash", func(int) string { return "/search?hash=" + hash }},
		{"search-host", func(int) string { return "/search?limit=50&host=pypi.org" }},
		{"findings", func(int) string { return "/findings?limit=50" }},
	} {
		b.Run(q.name, func(b *testing.B) { s.time(b, q.path) })
	}
}

// BenchmarkBigRun asks about one run of 100,000 records in SQLite.
func BenchmarkBigRun(b *testing.B) {
	w := newWorld(b, func(_ *world, o *api.Options) { o.Verify = nil })
	w.ingest("", storetest.Run("r-1", 100_000, 10_000)...)
	s := benchStore{w, w.token("", access.Auditor)}
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			fresh := newWorld(b, func(_ *world, o *api.Options) {
				o.Verify = nil
				o.Open = func(ctx context.Context) (api.Source, error) { return w.home.Reader(ctx) }
			})
			fresh.ask(b, "/runs/r-1/lanes", fresh.token("", access.Viewer))
		}
	})
	for _, q := range []struct {
		name string
		path func(i int) string
	}{
		{"run", func(int) string { return "/runs/r-1" }},
		{"lanes", func(int) string { return "/runs/r-1/lanes?columns=1200" }},
		{"lanes-zoomed", func(i int) string { return fmt.Sprintf("/runs/r-1/lanes?from=%%2B%ds&to=%%2B%ds", i%90, i%90+5) }},
		{"state", func(i int) string { return fmt.Sprintf("/runs/r-1/state?at=%%2B%dms", i*7919%100_000) }},
		{"records", func(i int) string { return fmt.Sprintf("/runs/r-1/records?limit=200&after=%d", i*7919%100_000) }},
		{"text", func(int) string { return "/runs/r-1/records?q=change+99996" }},
		{"processes", func(int) string { return "/runs/r-1/processes" }},
	} {
		b.Run(q.name, func(b *testing.B) { s.time(b, q.path) })
	}
}

// time asks again and again, one after the other.
func (s benchStore) time(b *testing.B, path func(i int) string) {
	var took []time.Duration
	size := 0
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		size += s.ask(b, path(i), s.token)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	ms := func(q float64) float64 { return float64(took[int(q*float64(len(took)-1))]) / 1e6 }
	b.ReportMetric(ms(0.5), "p50-ms")
	b.ReportMetric(ms(0.99), "p99-ms")
	b.ReportMetric(float64(size)/float64(len(took)), "B/answer")
	b.ReportMetric(0, "ns/op")
}

// ask asks as a browser would, and returns how many bytes came.
func (w *world) ask(b *testing.B, path, token string) int {
	req, err := http.NewRequest("GET", w.base+path, nil)
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept-Encoding", "gzip")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		b.Fatalf("%s: %s %v %.300s", path, res.Status, err, text)
	}
	return len(text)
}

func (s benchStore) runs(b *testing.B) []api.RunItem {
	var page runPage
	s.world.t = b
	s.get("/runs?limit=200", s.token).json(b, &page)
	return page.Runs
}

// hash is that of some file in a run.
func (s benchStore) hash(b *testing.B, run string) string {
	var page struct {
		Records []struct {
			Record struct{ File struct{ SHA256 string } }
		}
	}
	s.get("/runs/"+run+"/records?kind=file&limit=50", s.token).json(b, &page)
	for _, r := range page.Records {
		if r.Record.File.SHA256 != "" {
			return r.Record.File.SHA256
		}
	}
	b.Fatal("no file has a hash")
	return ""
}
