package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// PoolFunc returns the numbers of sandboxes of a pool by their state: idle, leased, being made, being destroyed. Like all
// functions registered with a Set, it must not block.
type PoolFunc func() (idle, leased, making, ending int)

var sandboxesDesc = prometheus.NewDesc("custody_pool_sandboxes", "Sandboxes of the pool, by their state.", []string{"state"}, nil)

// Pool is the counters of the pool of warm sandboxes. Each value of a label that is not among those given to Set.Pool
// counts as "other".
type Pool struct {
	reasons, causes []string

	hits      prometheus.Counter
	misses    *prometheus.CounterVec
	waits     prometheus.Histogram
	refills   prometheus.Histogram
	failures  prometheus.Counter
	destroyed *prometheus.CounterVec
}

func newPool() *Pool {
	return &Pool{
		hits:      counter("custody_pool_hits_total", "Warm sandboxes that the pool leased."),
		misses:    counters("custody_pool_misses_total", "Runs for which the pool had no warm sandbox, by the reason.", "reason"),
		waits:     histogram("custody_pool_wait_duration_seconds", "Time that a run waited for a warm sandbox, with or without success."),
		refills:   histogram("custody_pool_refill_duration_seconds", "Time to make one warm sandbox."),
		failures:  counter("custody_pool_failures_total", "Warm sandboxes that could not be made."),
		destroyed: counters("custody_pool_destroyed_total", "Sandboxes that the pool destroyed, by the cause.", "cause"),
	}
}

// Pool returns the counters of this process's pool, and registers its numbers of sandboxes. reasons and causes are the
// values of the labels, constants in the code. It is called at most once.
func (s *Set) Pool(reasons, causes []string, f PoolFunc) *Pool {
	p := newPool()
	p.reasons, p.causes = slices.Clone(reasons), slices.Clone(causes)
	for _, r := range p.reasons {
		p.misses.WithLabelValues(r)
	}
	for _, c := range p.causes {
		p.destroyed.WithLabelValues(c)
	}
	s.registry.MustRegister(p.hits, p.misses, p.waits, p.refills, p.failures, p.destroyed, sandboxes(f))
	return p
}

// Hit counts a sandbox that was leased.
func (p *Pool) Hit() { p.hits.Inc() }

// Miss counts a run without a warm sandbox.
func (p *Pool) Miss(reason string) { p.misses.WithLabelValues(known(p.reasons, reason)).Inc() }

// Wait counts a run that waited.
func (p *Pool) Wait(took time.Duration) { p.waits.Observe(took.Seconds()) }

// Refill counts a sandbox that was made.
func (p *Pool) Refill(took time.Duration) { p.refills.Observe(took.Seconds()) }

// Fail counts a sandbox that could not be made.
func (p *Pool) Fail() { p.failures.Inc() }

// Destroy counts a sandbox that was destroyed.
func (p *Pool) Destroy(cause string) { p.destroyed.WithLabelValues(known(p.causes, cause)).Inc() }

func known(values []string, value string) string {
	if slices.Contains(values, value) {
		return value
	}
	return string(Other)
}

// sandboxes is a collector of the numbers of sandboxes.
type sandboxes PoolFunc

// Describe implements prometheus.Collector.
func (f sandboxes) Describe(ch chan<- *prometheus.Desc) { ch <- sandboxesDesc }

// Collect implements prometheus.Collector.
func (f sandboxes) Collect(ch chan<- prometheus.Metric) {
	idle, leased, making, ending := f()
	for state, n := range map[string]int{"idle": idle, "leased": leased, "making": making, "ending": ending} {
		ch <- prometheus.MustNewConstMetric(sandboxesDesc, prometheus.GaugeValue, float64(n), state)
	}
}
