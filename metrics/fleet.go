package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TenantUse is what a tenant has and uses of a host. The keys of Used and Limits are names of quotas, those of States states of sandboxes.
type TenantUse struct {
	Tenant       string
	States       map[string]int
	Waiting      int // starts
	Used, Limits map[string]int64
}

// FleetFunc returns what each tenant uses. Like all functions registered with a Set, it must not block.
type FleetFunc func() []TenantUse

var (
	liveDesc    = prometheus.NewDesc("custody_sandboxes", "Sandboxes of the API, by tenant and state.", []string{"tenant", "state"}, nil)
	waitingDesc = prometheus.NewDesc("custody_sandbox_starts_waiting", "Starts of sandboxes that wait for their turn, by tenant.", []string{"tenant"}, nil)
	usedDesc    = prometheus.NewDesc("custody_quota_used", "What tenants use of their quotas, in the units of host.yaml; memory in bytes.", []string{"tenant", "quota"}, nil)
	limitDesc   = prometheus.NewDesc("custody_quota_limit", "The quotas of tenants, in the same units. A quota without a limit is not there.", []string{"tenant", "quota"}, nil)
)

// Fleet is the counters of the sandboxes that are created through the API. A quota that is not among those given to Set.Fleet counts as
// "other".
type Fleet struct {
	quotas []string

	waits   prometheus.Histogram
	refused *prometheus.CounterVec
	saved   prometheus.Counter
}

// Fleet returns the counters of this process's sandboxes, and registers what their tenants use. quotas are names of quotas, constants in the
// code. It is called at most once.
func (s *Set) Fleet(quotas []string, f FleetFunc) *Fleet {
	c := &Fleet{
		quotas:  slices.Clone(quotas),
		waits:   prometheus.NewHistogram(prometheus.HistogramOpts{Name: "custody_sandbox_wait_duration_seconds", Help: "Time that a start waited for its turn.", Buckets: prometheus.ExponentialBuckets(.001, 4, 10)}),
		refused: counters("custody_sandbox_refused_total", "Starts of sandboxes that were refused, by the quota that was used up.", "quota"),
		saved:   counter("custody_sandbox_lazy_saved_seconds_total", "Time for which promised sandboxes had no VM, because nothing used them yet."),
	}
	for _, q := range c.quotas {
		c.refused.WithLabelValues(q)
	}
	s.registry.MustRegister(c.waits, c.refused, c.saved, uses{f, newNames()})
	return c
}

// Wait counts a start that got its turn.
func (c *Fleet) Wait(took time.Duration) { c.waits.Observe(took.Seconds()) }

// Refuse counts a start that was refused.
func (c *Fleet) Refuse(quota string) { c.refused.WithLabelValues(known(c.quotas, quota)).Inc() }

// Save counts the time for which a promised sandbox had no VM.
func (c *Fleet) Save(d time.Duration) { c.saved.Add(max(d, 0).Seconds()) }

// uses is a collector of what tenants use. Beyond 64 tenants all further ones are added up as "other".
type uses struct {
	get     FleetFunc
	tenants *names
}

// Describe implements prometheus.Collector.
func (u uses) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{liveDesc, waitingDesc, usedDesc, limitDesc} {
		ch <- d
	}
}

// usesOf is one value: desc with a tenant and another label.
type usesOf struct {
	desc        *prometheus.Desc
	tenant, key string
}

// Collect implements prometheus.Collector.
func (u uses) Collect(ch chan<- prometheus.Metric) {
	sums := map[usesOf]float64{}
	for _, t := range u.get() {
		tenant := t.Tenant
		if tenant != "" {
			tenant = u.tenants.bounded(tenant)
		}
		sums[usesOf{waitingDesc, tenant, ""}] += float64(t.Waiting)
		for state, n := range t.States {
			sums[usesOf{liveDesc, tenant, state}] += float64(n)
		}
		for quota, n := range t.Used {
			sums[usesOf{usedDesc, tenant, quota}] += float64(n)
		}
		for quota, n := range t.Limits {
			sums[usesOf{limitDesc, tenant, quota}] += float64(n)
		}
	}
	for s, v := range sums {
		labels := []string{s.tenant, s.key}
		if s.desc == waitingDesc {
			labels = labels[:1]
		}
		ch <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, v, labels...)
	}
}
