package metrics

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// poolPrefix begins the names of the metrics of a pool. silentName is that of Silent's.
const (
	poolPrefix = "custody_pool_"
	silentName = "custody_silent_workers_total"
)

// ofSandboxes returns whether a metric is of the process that makes the sandboxes.
func ofSandboxes(name string) bool { return strings.HasPrefix(name, poolPrefix) || name == silentName }

// PoolText returns the metrics of this process's pool and workers, for the Remote of another process.
func (s *Set) PoolText() ([]byte, error) {
	families, err := s.registry.Gather()
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	encoder := expfmt.NewEncoder(&text, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families {
		if ofSandboxes(f.GetName()) {
			if err := encoder.Encode(f); err != nil {
				return nil, err
			}
		}
	}
	return text.Bytes(), nil
}

// remoteTime bounds how long a scrape waits for the other process.
const remoteTime = 5 * time.Second

// Remote adds the metrics of the pool and workers of another process to what Handler serves: this process has none. text returns what PoolText
// does there. While it fails, they are absent. Remote is called before Handler, at most once.
func (s *Set) Remote(text func(context.Context) ([]byte, error)) {
	s.registry.Unregister(s.silent)
	gather := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		ctx, cancel := context.WithTimeout(context.Background(), remoteTime)
		defer cancel()
		b, err := text(ctx)
		if err != nil {
			return nil, nil
		}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(bytes.NewReader(b))
		var all []*dto.MetricFamily
		for name, f := range families {
			if ofSandboxes(name) {
				all = append(all, f)
			}
		}
		slices.SortFunc(all, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
		return all, err
	})
	s.remote.Store(&gather)
}

// Handler serves all metrics in the format that the request negotiates.
func (s *Set) Handler() http.Handler {
	sources := prometheus.Gatherers{s.registry, prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		if remote := s.remote.Load(); remote != nil {
			return (*remote)()
		}
		return nil, nil
	})}
	return promhttp.HandlerFor(sources, promhttp.HandlerOpts{Registry: nil, MaxRequestsInFlight: maxReaders, Timeout: 2 * remoteTime})
}
