package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	freezesDesc = prometheus.NewDesc("custody_freezes_total", "Times that VMs were frozen because the record could not be written.", nil, nil)
	frozenDesc  = prometheus.NewDesc("custody_frozen", "VMs that are frozen now.", nil, nil)
	secondsDesc = prometheus.NewDesc("custody_frozen_seconds_total", "Time that VMs were frozen, including VMs that are frozen now.", nil, nil)
)

// freezes is a collector of freezes. Its seconds include VMs that are still frozen, so that
// a VM that never thaws shows.
type freezes struct {
	now   func() time.Time
	mu    sync.Mutex // guards the fields below
	since map[int]time.Time
	count int
	over  time.Duration // of freezes that have ended
}

func newFreezes(now func() time.Time) *freezes {
	return &freezes{now: now, since: map[int]time.Time{}}
}

func (f *freezes) begin() (thaw func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := f.count
	f.count++
	f.since[id] = f.now()
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if since, frozen := f.since[id]; frozen {
			f.over += f.now().Sub(since)
			delete(f.since, id)
		}
	}
}

// Describe implements prometheus.Collector.
func (f *freezes) Describe(ch chan<- *prometheus.Desc) {
	ch <- freezesDesc
	ch <- frozenDesc
	ch <- secondsDesc
}

// Collect implements prometheus.Collector.
func (f *freezes) Collect(ch chan<- prometheus.Metric) {
	f.mu.Lock()
	total := f.over
	for _, since := range f.since {
		total += f.now().Sub(since)
	}
	count, now := f.count, len(f.since)
	f.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(freezesDesc, prometheus.CounterValue, float64(count))
	ch <- prometheus.MustNewConstMetric(frozenDesc, prometheus.GaugeValue, float64(now))
	ch <- prometheus.MustNewConstMetric(secondsDesc, prometheus.CounterValue, total.Seconds())
}
