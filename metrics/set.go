package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/custody-project/custody/audit"
)

// Stage is a stage in the transfer of a segment.
type Stage string

// The stages with a lag. Export has one for each sink.
const (
	Log        Stage = "log"        // from the event until it is sealed
	Transport  Stage = "transport"  // until the transport has it
	Store      Stage = "store"      // until the store has committed it
	Checkpoint Stage = "checkpoint" // until a signed checkpoint covers it
	Export     Stage = "export"     // until a sink has confirmed it
)

// Reason is the reason why a segment was refused permanently.
type Reason string

// The reasons for refusals.
const (
	Malformed Reason = "malformed" // it contradicts itself
	Conflict  Reason = "conflict"  // the store has other bytes for that segment
	Denied    Reason = "denied"    // its sender may not send this segment
	Other     Reason = "other"
)

// latencies are histogram bounds in seconds, from the fsync of a fast NVMe to a disk that hangs.
func latencies() []float64 {
	return []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
}

// Set is the metrics of one process, in a separate registry. It is safe for concurrent use, and
// its methods do not block.
type Set struct {
	registry *prometheus.Registry
	asked    *asked
	frozen   *freezes
	sinks    *names
	remote   atomic.Pointer[prometheus.GathererFunc] // nil: there is no other process with a pool

	commitSeconds prometheus.Histogram
	walRecords    prometheus.Counter
	walBytes      prometheus.Counter
	lost          *prometheus.CounterVec
	ingested      prometheus.Counter
	ingestSeconds prometheus.Histogram
	refused       *prometheus.CounterVec
	exported      *prometheus.CounterVec
	retried       *prometheus.CounterVec
	dead          *prometheus.CounterVec
	redactions    prometheus.Counter
	silent        prometheus.Counter
}

// New returns a set in which all values are zero. version is Custody's.
func New(version string) *Set {
	s := &Set{
		registry: prometheus.NewRegistry(),
		asked:    newAsked(),
		frozen:   newFreezes(time.Now),
		sinks:    newNames(),

		commitSeconds: histogram("custody_wal_commit_duration_seconds", "Time of one commit of the log: write and fsync."),
		walRecords:    counter("custody_wal_records_total", "Records made durable in the log."),
		walBytes:      counter("custody_wal_bytes_total", "Bytes made durable in the log."),
		lost:          counters("custody_lost_events_total", "Events that gap records declare as lost, by the stage that lost them.", "stage"),
		ingested:      counter("custody_ingested_records_total", "Records written to the store by this process."),
		ingestSeconds: histogram("custody_ingest_duration_seconds", "Time of one commit of the store."),
		refused:       counters("custody_refused_segments_total", "Segments that no store can ever accept.", "reason"),
		exported:      counters("custody_exported_events_total", "Events that a sink has confirmed.", "sink"),
		retried:       counters("custody_export_retries_total", "Batches that are delivered to a sink again.", "sink"),
		dead:          counters("custody_dead_letters_total", "Events that a sink can never accept.", "sink"),
		redactions:    counter("custody_redactions_total", "Values removed from events before they were recorded."),
		silent:        counter(silentName, "Workers of sandboxes that were killed because they gave no sign of life."),
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "custody_build_info", Help: "1, with the version of Custody as its label.",
		ConstLabels: prometheus.Labels{"version": version}})
	info.Set(1)
	s.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), info,
		s.asked, s.frozen, s.commitSeconds, s.walRecords, s.walBytes, s.lost, s.ingested, s.ingestSeconds, s.refused, s.exported,
		s.retried, s.dead, s.redactions, s.silent)
	s.zero()
	return s
}

// zero creates series before the first event, so that a first loss is an increase.
func (s *Set) zero() {
	for _, stage := range audit.Stages() {
		s.lost.WithLabelValues(string(stage.Stage))
	}
	s.lost.WithLabelValues(string(Other))
	for _, r := range []Reason{Malformed, Conflict, Denied, Other} {
		s.refused.WithLabelValues(string(r))
	}
}

// Commit counts a commit of the log; use it as the log's OnCommit.
func (s *Set) Commit(records, bytes int, took time.Duration) {
	s.commitSeconds.Observe(took.Seconds())
	add(s.walRecords, records)
	add(s.walBytes, bytes)
}

// Lost counts events that were lost at a stage, as named in gap records. An unknown stage counts as "other".
func (s *Set) Lost(stage string, events uint64) {
	if _, ok := audit.Stage(stage).Info(); !ok {
		stage = string(Other)
	}
	s.lost.WithLabelValues(stage).Add(float64(events))
}

// Freeze counts a VM as frozen until thaw is first called.
func (s *Set) Freeze() (thaw func()) { return s.frozen.begin() }

// Ingest counts a commit of the store.
func (s *Set) Ingest(records int, took time.Duration) {
	s.ingestSeconds.Observe(took.Seconds())
	add(s.ingested, records)
}

// Refuse counts a segment that was refused permanently.
func (s *Set) Refuse(reason Reason) {
	switch reason {
	case Malformed, Conflict, Denied:
	default:
		reason = Other
	}
	s.refused.WithLabelValues(string(reason)).Inc()
}

// Redact counts removed values.
func (s *Set) Redact(values int) { add(s.redactions, values) }

// Silent counts a worker that was killed because it gave no sign of life.
func (s *Set) Silent() { s.silent.Inc() }

// Sink returns the counters of one sink. name is its name in the
// host's configuration, never its URL, which may contain a credential: a name of other characters
// than letters, digits, "_", "-" and ".", or of more than 64, becomes "unnamed", and
// beyond 64 names all further ones become "other".
func (s *Set) Sink(name string) *Sink {
	name = s.sinks.bounded(name)
	return &Sink{set: s, name: name,
		exported: s.exported.WithLabelValues(name), retried: s.retried.WithLabelValues(name), dead: s.dead.WithLabelValues(name)}
}

// Sink is the counters of one sink.
type Sink struct {
	set                     *Set
	name                    string
	exported, retried, dead prometheus.Counter
}

// Exported counts events that the sink has confirmed.
func (k *Sink) Exported(events int) { add(k.exported, events) }

// Retried counts a batch that is delivered again.
func (k *Sink) Retried() { k.retried.Inc() }

// Dead counts events that became dead letters.
func (k *Sink) Dead(events int) { add(k.dead, events) }

// Lag registers the lag of the sink; see Set.Lag.
func (k *Sink) Lag(f LagFunc) (stop func()) { return k.set.asked.lag(string(Export), k.name, f) }

// add ignores negative numbers, with which a counter would panic.
func add(c prometheus.Counter, n int) {
	if n > 0 {
		c.Add(float64(n))
	}
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func counters(name, help, label string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
}

func histogram(name, help string) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: latencies()})
}
