package vault

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"
)

// BenchmarkStep mints, reads one secret and revokes, sequentially.
func BenchmarkStep(b *testing.B) {
	s := prepared(b)
	v := opened(b, s.config(b))
	var mints, revokes []time.Duration
	for b.Loop() {
		began := time.Now()
		g, err := v.Mint(b.Context(), request("agent", git))
		must(b, err)
		mints = append(mints, time.Since(began))
		began = time.Now()
		must(b, g.Revoke(context.Background()))
		revokes = append(revokes, time.Since(began))
	}
	report(b, "mint", mints)
	report(b, "revoke", revokes)
}

// 50 steps begin each second, as they would on a busy host, and end a second later.
func BenchmarkFifty(b *testing.B) {
	const rate = 50
	s := prepared(b)
	v := opened(b, s.config(b))
	var mu sync.Mutex // guards the two
	var mints, revokes []time.Duration
	var steps sync.WaitGroup
	tick := time.NewTicker(time.Second / rate)
	defer tick.Stop()
	step := func() {
		began := time.Now()
		g, err := v.Mint(context.Background(), request("agent", git))
		if err != nil {
			b.Error(err)
			return
		}
		mint := time.Since(began)
		time.Sleep(time.Second)
		began = time.Now()
		if err := g.Revoke(context.Background()); err != nil {
			b.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		mints, revokes = append(mints, mint), append(revokes, time.Since(began))
	}
	for b.Loop() {
		<-tick.C
		steps.Go(step)
	}
	steps.Wait()
	report(b, "mint", mints)
	report(b, "revoke", revokes)
}

func report(b *testing.B, what string, all []time.Duration) {
	slices.Sort(all)
	at := func(share float64) float64 {
		return float64(all[int(share*float64(len(all)-1))]) / float64(time.Millisecond)
	}
	b.ReportMetric(at(0.5), what+"-p50-ms")
	b.ReportMetric(at(0.99), what+"-p99-ms")
}
