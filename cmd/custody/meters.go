package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/metrics"
	"github.com/custody-project/custody/ship"
	"github.com/custody-project/custody/store"
)

// meters are this process's metrics, if someone wants them; nil: no one does.
type meters struct {
	*metrics.Set
	done sync.WaitGroup
	stop context.CancelFunc
}

// meter serves metrics at address from now on, nothing when it is empty. The caller closes it.
func (a *app) meter(address string) (*meters, error) {
	if address == "" {
		return nil, nil
	}
	m := &meters{Set: metrics.New(version())}
	l, err := metrics.Listen(a.ctx, address, false)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(a.ctx))
	m.stop = stop
	m.done.Go(func() {
		if err := m.ServeOn(ctx, l); err != nil {
			a.Complain(err)
		}
	})
	return m, nil
}

// Close ends the serving.
func (m *meters) Close() error {
	if m != nil {
		m.stop()
		m.done.Wait()
	}
	return nil
}

// spool reports how much of the host's logs the store does not have.
func (m *meters) spool(h *host.Host) {
	if m != nil {
		m.Spool(func() (used, limit int64) { return h.Shipping().Unshipped(), int64(h.Config().Spool) })
	}
}

// ingester counts an ingester's commits, and what it refused.
func (m *meters) ingester(opt *ship.IngestOptions, g func() ship.Stats) {
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
		s := g()
		return s.Oldest, uint64(s.Segments)
	})
}

// exporters keeps each sink's counters up to its exporter's, until the meters are closed.
func (m *meters) exporters(ctx context.Context, all []host.Exporter) {
	if m == nil {
		return
	}
	for _, x := range all {
		k := m.Sink(x.Stats().Name)
		k.Lag(lagOf(ctx, x))
		last := addUp(k, x, export.Stats{}) // what was delivered before is there from the first scrape
		m.done.Go(func() { keepCount(ctx, k, x, last) })
	}
}

// lagOf measures how far behind an exporter is, as custody export --status does. While the store cannot
// be read it gives the last figure, with the age that it has by now.
func lagOf(ctx context.Context, x host.Exporter) metrics.LagFunc {
	var mu sync.Mutex
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

// keepCount adds up what an exporter does, each second.
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

// addUp adds what an exporter did since last.
func addUp(k *metrics.Sink, x host.Exporter, last export.Stats) export.Stats {
	s := x.Stats()
	k.Exported(int(s.Sent - last.Sent))
	k.Dead(int(s.Dead - last.Dead))
	for range s.Retried - last.Retried {
		k.Retried()
	}
	return s
}
