// Package hostmetrics connects the metrics of a process with the parts of a host that it measures: the log's spool,
// an ingester, exporters, the pool of warm sandboxes, the service for users.
package hostmetrics

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/fleet"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/metrics"
	"github.com/custody-project/custody/pool"
	"github.com/custody-project/custody/quota"
	"github.com/custody-project/custody/service"
	"github.com/custody-project/custody/ship"
	"github.com/custody-project/custody/store"
)

// Meters are the metrics of this process. A nil *Meters measures nothing. Its methods are safe for concurrent use, except
// Close.
type Meters struct {
	*metrics.Set
	done sync.WaitGroup
	stop context.CancelFunc
}

// New returns metrics that are not served, but read with PoolText.
func New(version string) *Meters { return &Meters{Set: metrics.New(version), stop: func() {}} }

// Serve serves the metrics of this process at address until Close, which the caller must call. It returns nil if address
// is empty. version is that of the program. failed is called with an error that ends the service early.
func Serve(ctx context.Context, address, version string, failed func(error)) (*Meters, error) {
	if address == "" {
		return nil, nil
	}
	m := &Meters{Set: metrics.New(version)}
	l, err := metrics.Listen(ctx, address, false)
	if err != nil {
		return nil, err
	}
	ctx, m.stop = context.WithCancel(context.WithoutCancel(ctx))
	m.done.Go(func() {
		if err := m.ServeOn(ctx, l); err != nil {
			failed(err)
		}
	})
	return m, nil
}

// Close stops serving.
func (m *Meters) Close() error {
	if m != nil {
		m.stop()
		m.done.Wait()
	}
	return nil
}

// Spool measures how many bytes of the host's logs the store does not have.
func (m *Meters) Spool(h *host.Host) {
	if m != nil {
		m.Set.Spool(func() (used, limit int64) { return h.Shipping().Unshipped(), int64(h.Config().Spool) })
	}
}

// Ingester adds callbacks to opt that count the ingester's commits and the segments that it refused.
// stats returns the ingester's statistics; it is not called before the metrics are read.
func (m *Meters) Ingester(opt *ship.IngestOptions, stats func() ship.Stats) {
	if m == nil {
		return
	}
	opt.Observe = func(c ship.Commit) {
		if c.Err == nil {
			m.Ingest(c.Rows, c.Took)
		}
	}
	refused := opt.Refused
	opt.Refused = func(r ship.Refused) {
		reason := metrics.Other
		switch {
		case errors.Is(r.Err, store.ErrConflict):
			reason = metrics.Conflict
		case errors.Is(r.Err, store.ErrMalformed):
			reason = metrics.Malformed
		}
		m.Refuse(reason)
		refused(r)
	}
	m.Lag(metrics.Store, func() (time.Duration, uint64) {
		s := stats()
		return s.Oldest, uint64(s.Segments)
	})
}

// Pool sets opt.Meter, which counts what a pool does. stats returns the pool's numbers; it is not called before the metrics
// are read. A process has at most one pool.
func (m *Meters) Pool(opt *pool.Options, stats func() pool.Stats) {
	if m == nil {
		return
	}
	opt.Meter = m.Set.Pool(texts(pool.Reasons()), texts(pool.Causes()), func() (idle, leased, making, ending int) {
		s := stats()
		return s.Idle, s.Leased, s.Making, s.Ending
	})
}

// Remote adds the metrics of the pool of another process, see metrics.Set.
func (m *Meters) Remote(text func(context.Context) ([]byte, error)) {
	if m != nil {
		m.Set.Remote(text)
	}
}

// Service sets the meters of the service that carries out runs for users. A process has at most one service.
func (m *Meters) Service(s *service.Server) {
	if m == nil {
		return
	}
	s.Meters, s.Meter = m, m.Set.Service(service.Results(), service.Reasons())
}

// Fleet sets the meter of the sandboxes of the API. stats returns what their tenants use; it is not called before the metrics are read. A process
// has at most one fleet.
func (m *Meters) Fleet(c *fleet.Config, stats func() []fleet.TenantStats) {
	if m == nil {
		return
	}
	c.Meter = m.Set.Fleet(texts(quota.Quotas()), func() (all []metrics.TenantUse) {
		for _, t := range stats() {
			use := metrics.TenantUse{Tenant: t.Tenant, States: map[string]int{}, Waiting: t.Use.Waiting, Used: named(t.Use.Used()), Limits: named(t.Limits.Set())}
			for state, n := range t.States {
				use.States[string(state)] = n
			}
			all = append(all, use)
		}
		return all
	})
}

func named(values map[quota.Quota]int64) map[string]int64 {
	all := map[string]int64{}
	for q, v := range values {
		all[string(q)] = v
	}
	return all
}

func texts[T ~string](values []T) (all []string) {
	for _, v := range values {
		all = append(all, string(v))
	}
	return all
}

// Exporters updates each sink's counters from its exporter's, every second until ctx is done. Close waits for that.
func (m *Meters) Exporters(ctx context.Context, all []host.Exporter) {
	if m == nil {
		return
	}
	for _, x := range all {
		k := m.Sink(x.Stats().Name)
		k.Lag(lagOf(ctx, x))
		last := addUp(k, x, export.Stats{}) // the first scrape includes earlier deliveries
		m.done.Go(func() { keepCount(ctx, k, x, last) })
	}
}

// lagOf measures the lag of an exporter, as custody export --status does. While the store cannot be read,
// it returns the last lag, increased by the time since then.
func lagOf(ctx context.Context, x host.Exporter) metrics.LagFunc {
	var mu sync.Mutex // guards last
	var last export.Behind
	return func() (time.Duration, uint64) {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		b, err := x.Behind(ctx)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			last = b
		}
		return last.Lag(time.Now()), uint64(last.Segments)
	}
}

// keepCount adds the exporter's progress to the counters every second.
func keepCount(ctx context.Context, k *metrics.Sink, x host.Exporter, last export.Stats) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			last = addUp(k, x, last)
		}
	}
}

// addUp adds the exporter's progress since last to the counters.
func addUp(k *metrics.Sink, x host.Exporter, last export.Stats) export.Stats {
	s := x.Stats()
	k.Exported(int(s.Sent - last.Sent))
	k.Dead(int(s.Dead - last.Dead))
	for range s.Retried - last.Retried {
		k.Retried()
	}
	return s
}
