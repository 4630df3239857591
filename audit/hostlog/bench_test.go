package hostlog

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// percentiles reports p50 and p99 of the durations, in µs.
func percentiles(b *testing.B, what string, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), what+"-p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), what+"-p99-µs")
}

func BenchmarkOpen(b *testing.B) {
	dir, k := filepath.Join(b.TempDir(), "log"), newKey(b, "custody-bench")
	l := mustOpen(b, dir, k)
	for i := range 300 {
		mustPublish(b, l, mustAdd(b, l, manifest(i)))
	}
	var took []time.Duration
	for b.Loop() {
		start := time.Now()
		l, err := Open(b.Context(), Options{Dir: dir, Signer: k, Verifier: k.v})
		took = append(took, time.Since(start))
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	percentiles(b, "open", took)
}

func BenchmarkCreate(b *testing.B) {
	k := newKey(b, "custody-bench")
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		start := time.Now()
		l, err := Open(b.Context(), Options{Dir: filepath.Join(b.TempDir(), fmt.Sprint(i)), Signer: k, Verifier: k.v})
		took = append(took, time.Since(start))
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	percentiles(b, "create", took)
}

func BenchmarkAddPublish(b *testing.B) {
	b.Run("alone", func(b *testing.B) { addPublish(b, newKey(b, "custody-bench")) })
	b.Run("witnesses=2of3", func(b *testing.B) {
		k := newKey(b, "custody-bench")
		p := quorum(b, 2, newWatcher(b, "a", k.v), newWatcher(b, "b", k.v), newWatcher(b, "c", k.v))
		addPublish(b, k, under(b, p))
	})
}

func addPublish(b *testing.B, k key, more ...func(*Options)) {
	dir := filepath.Join(b.TempDir(), "log")
	l := mustOpen(b, dir, k, more...)
	var adds, publishes []time.Duration
	for i := 0; b.Loop(); i++ {
		start := time.Now()
		index := mustAdd(b, l, manifest(i))
		added := time.Now()
		mustPublish(b, l, index)
		adds, publishes = append(adds, added.Sub(start)), append(publishes, time.Since(added))
	}
	percentiles(b, "add", adds)
	percentiles(b, "publish", publishes)
	b.ReportMetric(float64(diskUsage(b, dir))/float64(len(adds)), "log-B/entry")
	b.ReportMetric(float64(diskUsage(b, keptPath(dir)))/float64(len(adds)), "kept-B/entry")
}

// BenchmarkFirst measures what one short run costs: open an old log, add one entry, publish one checkpoint.
func BenchmarkFirst(b *testing.B) {
	dir, k := filepath.Join(b.TempDir(), "log"), newKey(b, "custody-bench")
	fill(b, mustOpen(b, dir, k), 300, 50)
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		start := time.Now()
		l, err := Open(b.Context(), Options{Dir: dir, Signer: k, Verifier: k.v})
		if err != nil {
			b.Fatal(err)
		}
		mustPublish(b, l, mustAdd(b, l, manifest(i)))
		if err := l.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	percentiles(b, "run", took)
}

func BenchmarkReader(b *testing.B) {
	dir, k := filepath.Join(b.TempDir(), "log"), newKey(b, "custody-bench")
	l := mustOpen(b, dir, k)
	const n = 2000
	for i := range n {
		mustAdd(b, l, manifest(i))
	}
	mustPublish(b, l, n-1)
	r := reader(b, dir, k)
	b.Run("IndexNewest", func(b *testing.B) { lookUp(b, r, n-1) })
	b.Run("IndexOldest", func(b *testing.B) { lookUp(b, r, 0) })
	b.Run("Inclusion", func(b *testing.B) {
		for b.Loop() {
			if _, err := r.Inclusion(b.Context(), 77, n); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Check", func(b *testing.B) {
		for b.Loop() {
			if err := r.Check(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/entry")
	})
}

func lookUp(b *testing.B, r *Reader, want int) {
	for b.Loop() {
		if got, err := r.Index(b.Context(), manifest(want)); err != nil || got != uint64(want) {
			b.Fatal(got, err)
		}
	}
}

// manifest returns an entry of the size of a signed manifest.
func manifest(i int) []byte {
	return fmt.Appendf(nil, "%08d%s", i, bytes.Repeat([]byte("m"), 900))
}
