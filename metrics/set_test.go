package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/metrics"
)

// read returns what Prometheus reads, as lines without comments.
func read(t *testing.T, s *metrics.Set) string {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, metrics.Path, nil))
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// want checks that these lines are there.
func want(t *testing.T, s *metrics.Set, lines ...string) {
	t.Helper()
	got := read(t, s)
	for _, line := range lines {
		if !strings.Contains(got, "\n"+line+"\n") {
			t.Errorf("no line %q in\n%s", line, custodyLines(got))
		}
	}
}

func custodyLines(text string) string {
	return strings.Join(regexp.MustCompile(`(?m)^custody_.*$`).FindAllString(text, -1), "\n")
}

// used is a set in which every metric has a value.
func used() *metrics.Set {
	s := metrics.New("1.2.3")
	s.Commit(10, 2000, 3*time.Millisecond)
	s.Lost("wal", 5)
	s.Lost("kernel_ring", 2)
	s.Lost("of a guest's making", 1)
	s.Ingest(100, 20*time.Millisecond)
	s.Refuse(metrics.Conflict)
	s.Refuse("of nobody's making")
	s.Redact(3)
	s.Freeze()()
	s.Queue("recorder", func() (int, int) { return 3, 1024 })
	s.Queue("recorder", func() (int, int) { return 4, 1024 })
	s.Lag(metrics.Store, func() (time.Duration, uint64) { return 1500 * time.Millisecond, 2 })
	s.Lag(metrics.Store, func() (time.Duration, uint64) { return 500 * time.Millisecond, 1 })
	s.Lag("odd", func() (time.Duration, uint64) { return 0, 0 })
	s.Spool(func() (int64, int64) { return 1000, 5000 })
	k := s.Sink("siem")
	k.Exported(7)
	k.Retried()
	k.Dead(1)
	k.Lag(func() (time.Duration, uint64) { return time.Minute, 60 })
	p := s.Pool([]string{"none_warm", "no_memory"}, []string{"used", "died"}, func() (int, int, int, int) { return 2, 3, 1, 4 })
	p.Hit()
	p.Miss("no_memory")
	p.Miss("of a caller's making")
	p.Wait(2 * time.Millisecond)
	p.Refill(3 * time.Second)
	p.Fail()
	p.Destroy("used")
	p.Destroy("of a caller's making")
	c := s.Service([]string{"succeeded"}, []string{"request"})
	c.Connect()
	c.Connect()()
	c.Run("succeeded")
	c.Run("of a caller's making")
	c.Refuse("of a caller's making")
	f := s.Fleet([]string{"cpus", "memory"}, func() []metrics.TenantUse {
		return []metrics.TenantUse{
			{Tenant: "acme", States: map[string]int{"live": 2}, Waiting: 3, Used: map[string]int64{"cpus": 4}, Limits: map[string]int64{"cpus": 8}},
			{States: map[string]int{"ended": 1}, Used: map[string]int64{"cpus": 1}},
		}
	})
	f.Wait(2 * time.Second)
	f.Refuse("cpus")
	f.Refuse("of a caller's making")
	f.Save(time.Minute)
	return s
}

func TestValues(t *testing.T) {
	want(t, used(),
		`custody_build_info{version="1.2.3"} 1`,
		`custody_wal_commit_duration_seconds_bucket{le="0.0025"} 0`,
		`custody_wal_commit_duration_seconds_bucket{le="0.005"} 1`,
		`custody_wal_records_total 10`, `custody_wal_bytes_total 2000`,
		`custody_lost_events_total{stage="wal"} 5`, `custody_lost_events_total{stage="other"} 1`, `custody_lost_events_total{stage="store"} 0`,
		`custody_ingested_records_total 100`,
		`custody_refused_segments_total{reason="conflict"} 1`, `custody_refused_segments_total{reason="other"} 1`,
		`custody_refused_segments_total{reason="malformed"} 0`,
		`custody_service_connections 1`, `custody_service_runs_total{result="succeeded"} 1`, `custody_service_runs_total{result="other"} 1`,
		`custody_service_refused_total{reason="request"} 0`, `custody_service_refused_total{reason="other"} 1`,
		`custody_redactions_total 3`, `custody_freezes_total 1`, `custody_frozen 0`,
		`custody_queue_depth{queue="recorder"} 7`, `custody_queue_capacity{queue="recorder"} 2048`,
		`custody_lag_seconds{sink="",stage="store"} 1.5`, `custody_lag_segments{sink="",stage="store"} 3`,
		`custody_lag_seconds{sink="siem",stage="export"} 60`, `custody_lag_segments{sink="siem",stage="export"} 60`,
		`custody_spool_bytes 1000`, `custody_spool_limit_bytes 5000`,
		`custody_exported_events_total{sink="siem"} 7`, `custody_export_retries_total{sink="siem"} 1`, `custody_dead_letters_total{sink="siem"} 1`,
		`custody_sandboxes{state="live",tenant="acme"} 2`, `custody_sandboxes{state="ended",tenant=""} 1`, `custody_sandbox_starts_waiting{tenant="acme"} 3`,
		`custody_quota_used{quota="cpus",tenant="acme"} 4`, `custody_quota_used{quota="cpus",tenant=""} 1`, `custody_quota_limit{quota="cpus",tenant="acme"} 8`,
		`custody_sandbox_wait_duration_seconds_sum 2`, `custody_sandbox_lazy_saved_seconds_total 60`,
		`custody_sandbox_refused_total{quota="cpus"} 1`, `custody_sandbox_refused_total{quota="memory"} 0`, `custody_sandbox_refused_total{quota="other"} 1`,
		`custody_pool_hits_total 1`, `custody_pool_misses_total{reason="none_warm"} 0`, `custody_pool_misses_total{reason="no_memory"} 1`, `custody_pool_misses_total{reason="other"} 1`,
		`custody_pool_wait_duration_seconds_count 1`, `custody_pool_refill_duration_seconds_sum 3`, `custody_pool_failures_total 1`,
		`custody_pool_destroyed_total{cause="used"} 1`, `custody_pool_destroyed_total{cause="died"} 0`, `custody_pool_destroyed_total{cause="other"} 1`,
		`custody_pool_sandboxes{state="idle"} 2`, `custody_pool_sandboxes{state="leased"} 3`, `custody_pool_sandboxes{state="making"} 1`, `custody_pool_sandboxes{state="ending"} 4`,
	)
}

// TestLint checks names, units and helps against Prometheus' rules.
func TestLint(t *testing.T) {
	problems, err := promlint.New(strings.NewReader(read(t, used()))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestDocumented compares the package's table with the metrics.
func TestDocumented(t *testing.T) {
	listed := documented(t)
	there := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (custody_\S+) (\S+)$`).FindAllStringSubmatch(read(t, used()), -1) {
		there[m[1]] = true
		if listed[m[1]] != m[2] {
			t.Errorf("%s is a %s, listed as %q", m[1], m[2], listed[m[1]])
		}
	}
	for name := range listed {
		if !there[name] {
			t.Errorf("%s is listed and not there", name)
		}
	}
}

// TestNothingIsKept: unregistered functions disappear, and counters stay.
func TestNothingIsKept(t *testing.T) {
	s := metrics.New("x")
	stops := []func(){
		s.Queue("q", func() (int, int) { return 1, 1 }),
		s.Lag(metrics.Log, func() (time.Duration, uint64) { return 1, 1 }),
		s.Spool(func() (int64, int64) { return 1, 1 }),
		s.Sink("k").Lag(func() (time.Duration, uint64) { return 1, 1 }),
	}
	for _, stop := range stops {
		stop()
		stop() // harmless
	}
	for _, gone := range []string{"custody_queue_", "custody_lag_", "custody_spool_"} {
		if strings.Contains(read(t, s), "\n"+gone) {
			t.Errorf("%s is still there", gone)
		}
	}
}

// TestLabels: neither a sink's URL nor a flood of names becomes a label.
func TestLabels(t *testing.T) {
	s := metrics.New("x")
	for _, bad := range []string{"https://user:hunter2@siem.example/x?token=hunter2", "", "a b", "ü", strings.Repeat("x", 65), "x\"} 1\n", "x/y"} {
		s.Sink(bad).Exported(1)
		s.Queue(bad, func() (int, int) { return 1, 1 })
	}
	for i := range 1000 {
		s.Sink(fmt.Sprint("sink-", i)).Dead(1)
	}
	got := read(t, s)
	if strings.Contains(got, "hunter2") {
		t.Error("a credential is a label")
	}
	if n := strings.Count(got, "\ncustody_dead_letters_total{"); n > 66 {
		t.Errorf("%d series for sinks, at most 66", n)
	}
	if !strings.Contains(got, "custody_dead_letters_total{sink=\"other\"} 936\n") || !strings.Contains(got, "custody_exported_events_total{sink=\"unnamed\"} 7\n") {
		t.Errorf("what was not named is not counted:\n%s", custodyLines(got))
	}
}

func TestFrozenNow(t *testing.T) {
	s := metrics.New("x")
	first, second := s.Freeze(), s.Freeze()
	time.Sleep(20 * time.Millisecond)
	want(t, s, "custody_frozen 2", "custody_freezes_total 2")
	if regexp.MustCompile(`(?m)^custody_frozen_seconds_total 0$`).MatchString(read(t, s)) {
		t.Error("a freeze that lasts does not show")
	}
	first()
	first()
	want(t, s, "custody_frozen 1", "custody_freezes_total 2")
	second()
	want(t, s, "custody_frozen 0")
}

// TestAtOnce is for the race detector, and for functions that acquire their owner's
// lock, which is also held when they are unregistered.
func TestAtOnce(t *testing.T) {
	s := metrics.New("x")
	var owner sync.Mutex
	var work sync.WaitGroup
	for range 4 {
		work.Go(func() {
			for range 50 {
				stop := s.Queue("q", func() (int, int) { owner.Lock(); defer owner.Unlock(); return 1, 1 })
				s.Commit(1, 1, 1)
				s.Lost("wal", 1)
				s.Freeze()()
				owner.Lock()
				stop()
				owner.Unlock()
			}
		})
		work.Go(func() {
			for range 20 {
				read(t, s)
			}
		})
	}
	work.Wait()
	want(t, s, "custody_wal_records_total 200", "custody_freezes_total 200", `custody_lost_events_total{stage="wal"} 200`)
}

func TestServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l, err := metrics.Listen(ctx, ":0", false)
	if err != nil {
		t.Fatal(err)
	}
	if !l.Addr().(*net.TCPAddr).IP.IsLoopback() {
		t.Errorf("without a host it listens at %v", l.Addr())
	}
	done := make(chan error)
	go func() { done <- used().ServeOn(ctx, l) }()
	for path, status := range map[string]int{metrics.Path: 200, "/": 404, "/debug/pprof/": 404} {
		r, err := http.Get("http://" + l.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || r.StatusCode != status || status == 200 && !strings.Contains(string(body), "custody_wal_records_total 10") {
			t.Errorf("%s: status %d, %v", path, r.StatusCode, err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
		c.Close()
		t.Error("it still listens")
	}
}

func TestPublic(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:0", "[::]:0", "192.0.2.1:0", "localhost:0", "example.com:0", "[::ffff:192.0.2.1]:0"} {
		l, err := metrics.Listen(t.Context(), addr, false)
		var public *metrics.PublicError
		if !errors.As(err, &public) || public.Hint() == "" {
			t.Errorf("%s: got %v, want a PublicError", addr, err)
		}
		if err == nil {
			l.Close()
		}
	}
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0", "127.9.9.9:0"} {
		l, err := metrics.Listen(t.Context(), addr, false)
		if err != nil {
			t.Errorf("%s: %v", addr, err)
			continue
		}
		l.Close()
	}
	if err := metrics.New("x").Serve(t.Context(), "nonsense", true); err == nil {
		t.Error("nonsense was an address")
	}
	l, err := metrics.Listen(t.Context(), ":0", true)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if ip := l.Addr().(*net.TCPAddr).IP; !ip.IsUnspecified() && !slices.Equal(ip, net.IPv6zero) {
		t.Errorf("public is %v", ip)
	}
	if err := metrics.New("x").Serve(t.Context(), l.Addr().String(), true); err == nil {
		t.Error("a port was taken twice")
	}
}

// TestLostStages: a loss is counted at each stage of the table, and each stage has a series before the first loss.
func TestLostStages(t *testing.T) {
	for _, stage := range audit.Stages() {
		s := metrics.New("x")
		want(t, s, fmt.Sprintf(`custody_lost_events_total{stage=%q} 0`, stage.Stage))
		s.Lost(string(stage.Stage), 3)
		want(t, s, fmt.Sprintf(`custody_lost_events_total{stage=%q} 3`, stage.Stage), `custody_lost_events_total{stage="other"} 0`)
	}
}
