package pool_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/custody-project/custody/pool"
)

// instant makes sandboxes that do nothing: what remains is the cost of the pool.
type instant struct{ dead chan struct{} }

func (i instant) Make(context.Context, pool.Key) (pool.Sandbox, error) { return i, nil }
func (i instant) Done() <-chan struct{}                                { return i.dead }
func (i instant) Check(context.Context) error                          { return nil }
func (i instant) Destroy(context.Context) error                        { return nil }
func (i instant) Memory() int64                                        { return mib }

// BenchmarkAcquire measures Acquire while released sandboxes are replaced: with sandboxes that are processes, whose health check is
// a message to the process and back, and with sandboxes that do nothing.
func BenchmarkAcquire(b *testing.B) {
	b.Run("process", func(b *testing.B) { acquire(b, &processes{}) })
	b.Run("instant", func(b *testing.B) { acquire(b, instant{make(chan struct{})}) })
}

func acquire(b *testing.B, maker pool.Maker) {
	p, err := pool.New(b.Context(), pool.Options{Maker: maker, Available: func() (int64, error) { return 64 << 30, nil }, MaxIdle: func(string) int { return 4 }})
	if err != nil {
		b.Fatal(err)
	}
	var took, check []time.Duration
	for b.Loop() {
		for p.Stats().Idle == 0 {
			if l, err := p.Acquire(b.Context(), shop(), "", pool.Wait(time.Second)); err == nil { // makes demand
				l.Release(b.Context())
			}
		}
		began := time.Now()
		l, err := p.Acquire(b.Context(), shop(), "")
		if err != nil {
			continue
		}
		took = append(took, time.Since(began))
		began = time.Now()
		if err := l.Sandbox().Check(b.Context()); err != nil {
			b.Error(err)
		}
		check = append(check, time.Since(began))
		if err := l.Release(b.Context()); err != nil {
			b.Error(err)
		}
	}
	report(b, "acquire", took)
	report(b, "check", check)
	ended, cancel := context.WithCancel(b.Context())
	cancel()
	if err := p.Close(ended); err != nil {
		b.Error(err)
	}
}

// report adds the median and the 99th percentile.
func report(b *testing.B, what string, took []time.Duration) {
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1000, what+"-p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1000, what+"-p99-µs")
}
