package hostmetrics_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/export/sink"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/sampleruns"
	"github.com/custody-project/custody/metrics"
	"github.com/custody-project/custody/metrics/hostmetrics"
	"github.com/custody-project/custody/pool"
	"github.com/custody-project/custody/service"
	"github.com/custody-project/custody/service/remote"
	"github.com/custody-project/custody/ship"
	"github.com/custody-project/custody/store"
)

// served serves metrics at a free port until the test ends.
func served(t *testing.T) (m *hostmetrics.Meters, address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if m, err = hostmetrics.Serve(t.Context(), address, "1.2.3", func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m, address
}

// scraped returns the metrics at address.
func scraped(t *testing.T, address string) string {
	t.Helper()
	answer, err := http.Get("http://" + address + metrics.Path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(answer.Body)
	if err := errors.Join(err, answer.Body.Close()); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v: %s", answer.Status, err, text)
	}
	return string(text)
}

func want(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("no line %q", line)
		}
	}
}

// TestServe: metrics are served until Close, and not where other machines can read them.
func TestServe(t *testing.T) {
	m, address := served(t)
	want(t, scraped(t, address), `custody_build_info{version="1.2.3"} 1`)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if c, err := net.Dial("tcp", address); err == nil {
		t.Error("served after Close", c.Close())
	}
	_, err := hostmetrics.Serve(t.Context(), "0.0.0.0:0", "", func(err error) { t.Error(err) })
	if public := new(metrics.PublicError); !errors.As(err, &public) {
		t.Errorf("a public address: %v", err)
	}
}

// TestNone: without an address nothing is measured, and all methods can be called.
func TestNone(t *testing.T) {
	m, err := hostmetrics.Serve(t.Context(), "", "", func(err error) { t.Error(err) })
	if m != nil || err != nil {
		t.Fatalf("%v, %v", m, err)
	}
	m.Spool(nil)
	var opt ship.IngestOptions
	m.Ingester(&opt, nil)
	if opt.Observe != nil || opt.Refused != nil {
		t.Error("an ingester is measured")
	}
	m.Pool(&pool.Options{}, nil)
	m.Service(&service.Server{})
	m.Exporters(t.Context(), make([]host.Exporter, 1))
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

// TestIngester: commits that succeed are counted, refused segments by their reason, and the caller's function is still called.
func TestIngester(t *testing.T) {
	m, address := served(t)
	var refused int
	opt := ship.IngestOptions{Refused: func(ship.Refused) { refused++ }}
	m.Ingester(&opt, func() ship.Stats { return ship.Stats{Oldest: 1500 * time.Millisecond, Segments: 4} })
	opt.Observe(ship.Commit{Rows: 7})
	opt.Observe(ship.Commit{Rows: 100, Err: errors.New("disk full")})
	for _, err := range []error{fmt.Errorf("segment 1: %w", store.ErrConflict), store.ErrMalformed, store.ErrMalformed, errors.New("other")} {
		opt.Refused(ship.Refused{Err: err})
	}
	if refused != 4 {
		t.Errorf("the caller was called %d times", refused)
	}
	want(t, scraped(t, address), `custody_ingested_records_total 7`,
		`custody_refused_segments_total{reason="conflict"} 1`, `custody_refused_segments_total{reason="malformed"} 2`, `custody_refused_segments_total{reason="other"} 1`,
		`custody_lag_seconds{sink="",stage="store"} 1.5`, `custody_lag_segments{sink="",stage="store"} 4`)
}

// broken makes no sandboxes.
type broken struct{}

func (broken) Make(context.Context, pool.Key) (pool.Sandbox, error) {
	return nil, errors.New("no template")
}

// TestPool: what a pool does is counted, each miss by its reason.
func TestPool(t *testing.T) {
	m, address := served(t)
	var p *pool.Pool
	opt := pool.Options{Maker: broken{}, Available: func() (int64, error) { return 1 << 40, nil }}
	m.Pool(&opt, func() pool.Stats { return p.Stats() })
	p, err := pool.New(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second waits until the making has failed
		var empty *pool.EmptyError
		if l, err := p.Acquire(t.Context(), pool.Key{}, "", pool.Wait(time.Hour)); !errors.As(err, &empty) || empty.Reason != pool.Failing {
			t.Errorf("%v, %v", l, err)
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	text := scraped(t, address)
	want(t, text, `custody_pool_hits_total 0`, `custody_pool_misses_total{reason="failing"} 2`, `custody_pool_misses_total{reason="no_memory"} 0`,
		`custody_pool_wait_duration_seconds_count 2`, `custody_pool_destroyed_total{cause="expired"} 0`, `custody_pool_sandboxes{state="making"} 0`)
	if strings.Contains(text, "custody_pool_failures_total 0") {
		t.Error("no failure is counted")
	}
}

// TestHost: the spool of a host and the progress of its exporters are measured.
func TestHost(t *testing.T) {
	dir := t.TempDir()
	sampleruns.Record(t, filepath.Join(dir, "home"), sampleruns.Review())
	h, err := host.Open(filepath.Join(dir, "home"))
	if err != nil {
		t.Fatal(err)
	}
	st, err := h.Store(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	all, err := h.Exporters().Open(t.Context(), st, []sink.Target{{Name: "siem", To: "file:" + filepath.Join(dir, "events")}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer all[0].Close()

	m, address := served(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel() // Close waits for the counting to end
	m.Spool(h)
	m.Exporters(ctx, all)
	limit := fmt.Sprintf("custody_spool_limit_bytes %v", float64(h.Config().Spool))
	want(t, scraped(t, address), `custody_spool_bytes 0`, limit, `custody_exported_events_total{sink="siem"} 0`, `custody_lag_segments{sink="siem",stage="export"} 1`)

	if err := all[0].CatchUp(ctx); err != nil {
		t.Fatal(err)
	}
	exported := fmt.Sprintf(`custody_exported_events_total{sink="siem"} %d`, all[0].Stats().Sent)
	for end := time.Now().Add(time.Minute); time.Now().Before(end) && !strings.Contains(scraped(t, address), exported); {
		time.Sleep(50 * time.Millisecond)
	}
	if all[0].Stats().Sent == 0 {
		t.Error("nothing was exported")
	}
	want(t, scraped(t, address), exported, `custody_lag_segments{sink="siem",stage="export"} 0`, `custody_lag_seconds{sink="siem",stage="export"} 0`)
}

// TestService: connections, runs and refusals of a service are counted.
func TestService(t *testing.T) {
	m, address := served(t)
	s := &service.Server{
		Open:   func() (*host.Host, error) { return nil, errors.New("no runs here") },
		Notice: func(string) {}, Problem: func(error) {},
	}
	m.Service(s)
	socket := filepath.Join(t.TempDir(), "socket")
	l, err := service.Listen(t.Context(), func(string) string { return "" }, socket, "root")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	ask := func(r remote.Request) {
		if _, err := remote.Run(t.Context(), socket, r, remote.User{}); err == nil {
			t.Error("a run began")
		}
	}
	reaches := func(line string) {
		for !strings.Contains(scraped(t, address), "\n"+line+"\n") {
			time.Sleep(time.Millisecond)
		}
	}
	ask(remote.Request{Command: []string{"true"}})
	ask(remote.Request{Command: []string{"\x00"}})
	want(t, scraped(t, address), `custody_service_runs_total{result="not_begun"} 1`, `custody_service_runs_total{result="succeeded"} 0`,
		`custody_service_refused_total{reason="request"} 1`, `custody_service_refused_total{reason="protocol"} 0`)
	reaches(`custody_service_connections 0`)
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	reaches(`custody_service_connections 1`)
	if _, err := c.Write([]byte("garbage")); err != nil {
		t.Fatal(err)
	}
	reaches(`custody_service_connections 0`)
	want(t, scraped(t, address), `custody_service_refused_total{reason="protocol"} 1`)
}
