package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// LagFunc returns the age of the oldest item that has not passed a stage, and the number of
// segments that have not. Like all functions registered with a Set, it is called whenever metrics are
// collected, from any goroutine, and must not block.
type LagFunc func() (oldest time.Duration, segments uint64)

// QueueFunc returns the depth of a queue and the depth at which it applies back pressure; 0 if it has no bound.
type QueueFunc func() (depth, capacity int)

// SpoolFunc returns the size of the logs and its limit, in bytes; 0 if there is no limit.
type SpoolFunc func() (used, limit int64)

// Lag registers the lag of a stage, until stop is called. For sinks there is Sink.Lag.
func (s *Set) Lag(stage Stage, f LagFunc) (stop func()) {
	switch stage {
	case Log, Transport, Store, Checkpoint, Export:
	default:
		stage = Stage(Other)
	}
	return s.asked.lag(string(stage), "", f)
}

// Queue registers a queue of a kind, until stop is called: "recorder", "resolver",
// "export" and so on, a constant in the code.
func (s *Set) Queue(kind string, f QueueFunc) (stop func()) {
	return s.asked.add(source{kind: s.sinks.bounded(kind), queue: f})
}

// Spool registers the space that logs use, until stop is called.
func (s *Set) Spool(f SpoolFunc) (stop func()) { return s.asked.add(source{spool: f}) }

var (
	depthDesc       = prometheus.NewDesc("custody_queue_depth", "Items that wait in a queue of this process.", []string{"queue"}, nil)
	capacityDesc    = prometheus.NewDesc("custody_queue_capacity", "Depth at which a queue applies back pressure.", []string{"queue"}, nil)
	lagSecondsDesc  = prometheus.NewDesc("custody_lag_seconds", "Age of the oldest item that has not passed a stage.", []string{"stage", "sink"}, nil)
	lagSegmentsDesc = prometheus.NewDesc("custody_lag_segments", "Segments that have not passed a stage.", []string{"stage", "sink"}, nil)
	spoolDesc       = prometheus.NewDesc("custody_spool_bytes", "Bytes that the logs on this host use.", nil, nil)
	spoolLimitDesc  = prometheus.NewDesc("custody_spool_limit_bytes", "Size at which strict freezes VMs and degrade declares losses.", nil, nil)
)

// source is one registered function and the labels of its values.
type source struct {
	kind  string // of a queue, or the stage
	sink  string
	lag   LagFunc
	queue QueueFunc
	spool SpoolFunc
}

// asked is a collector of the registered functions' values. Values with equal
// labels are combined, so that many runs have no more series than one.
type asked struct {
	mu      sync.Mutex // guards sources and next; not held while functions are called
	sources map[int]source
	next    int
}

func newAsked() *asked { return &asked{sources: map[int]source{}} }

func (a *asked) lag(stage, sink string, f LagFunc) (stop func()) {
	return a.add(source{kind: stage, sink: sink, lag: f})
}

func (a *asked) add(s source) (stop func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := a.next
	a.next++
	a.sources[id] = s
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.sources, id)
	}
}

// Describe implements prometheus.Collector.
func (a *asked) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{depthDesc, capacityDesc, lagSecondsDesc, lagSegmentsDesc, spoolDesc, spoolLimitDesc} {
		ch <- d
	}
}

// series is one combined value.
type series struct {
	desc       *prometheus.Desc
	kind, sink string
}

// Collect implements prometheus.Collector.
func (a *asked) Collect(ch chan<- prometheus.Metric) {
	a.mu.Lock()
	sources := make([]source, 0, len(a.sources))
	for _, s := range a.sources {
		sources = append(sources, s)
	}
	a.mu.Unlock()
	values := map[series]float64{}
	for _, s := range sources {
		s.ask(values)
	}
	for is, value := range values {
		ch <- prometheus.MustNewConstMetric(is.desc, prometheus.GaugeValue, value, is.labels()...)
	}
}

func (is series) labels() []string {
	switch is.desc {
	case lagSecondsDesc, lagSegmentsDesc:
		return []string{is.kind, is.sink}
	case depthDesc, capacityDesc:
		return []string{is.kind}
	}
	return nil
}

// ask adds a function's values to values. A limit is the host's, and not multiplied by the number of runs.
func (s source) ask(values map[series]float64) {
	switch {
	case s.lag != nil:
		oldest, segments := s.lag()
		seconds := series{lagSecondsDesc, s.kind, s.sink}
		values[seconds] = max(values[seconds], oldest.Seconds())
		values[series{lagSegmentsDesc, s.kind, s.sink}] += float64(segments)
	case s.queue != nil:
		depth, capacity := s.queue()
		values[series{depthDesc, s.kind, ""}] += float64(depth)
		values[series{capacityDesc, s.kind, ""}] += float64(capacity)
	case s.spool != nil:
		used, limit := s.spool()
		values[series{desc: spoolDesc}] += float64(used)
		values[series{desc: spoolLimitDesc}] = max(values[series{desc: spoolLimitDesc}], float64(limit))
	}
}
