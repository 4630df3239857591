package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// Service is the counters of the service that carries out runs for users. Each value of a label that is not among those given to
// Set.Service counts as "other".
type Service struct {
	results, reasons []string

	connections prometheus.Gauge
	runs        *prometheus.CounterVec
	refused     *prometheus.CounterVec
}

// Service returns the counters of this process's service. results and reasons are the values of the labels, constants in the code. It is
// called at most once.
func (s *Set) Service(results, reasons []string) *Service {
	c := &Service{
		results: slices.Clone(results), reasons: slices.Clone(reasons),
		connections: prometheus.NewGauge(prometheus.GaugeOpts{Name: "custody_service_connections", Help: "Connections of users that are open."}),
		runs:        counters("custody_service_runs_total", "Runs that users asked for, by their result.", "result"),
		refused:     counters("custody_service_refused_total", "Connections and requests of users that were refused, by the reason.", "reason"),
	}
	for _, r := range c.results {
		c.runs.WithLabelValues(r)
	}
	for _, r := range c.reasons {
		c.refused.WithLabelValues(r)
	}
	s.registry.MustRegister(c.connections, c.runs, c.refused)
	return c
}

// Connect counts a connection as open until closed is called.
func (c *Service) Connect() (closed func()) {
	c.connections.Inc()
	return c.connections.Dec
}

// Run counts a run that has ended, or did not begin.
func (c *Service) Run(result string) { c.runs.WithLabelValues(known(c.results, result)).Inc() }

// Refuse counts what was refused.
func (c *Service) Refuse(reason string) { c.refused.WithLabelValues(known(c.reasons, reason)).Inc() }
