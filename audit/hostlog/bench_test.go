package hostlog

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// percentiles reports p50 and p99 of what was measured, in µs.
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
	dir, k := filepath.Join(b.TempDir(), "log"), newKey(b, "custody-bench")
	l := mustOpen(b, dir, k)
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
	b.ReportMetric(float64(diskUsage(b, dir)+diskUsage(b, keptPath(dir)))/float64(len(adds)), "disk-B/entry")
}

// manifest makes an entry of the size of a signed manifest.
func manifest(i int) []byte {
	return fmt.Appendf(nil, "%08d%s", i, bytes.Repeat([]byte("m"), 900))
}
