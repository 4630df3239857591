package ship

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/custody-project/custody/store/storetest"
)

// BenchmarkStart starts and closes a transport that carries nothing.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		tr := Start(b.Context(), nil)
		if err := tr.waitReady(b.Context()); err != nil {
			b.Fatal(err)
		}
		tr.Close()
	}
}

// BenchmarkShortRun measures the end of a short run on a running server:
// publish one segment and the closing manifest, drain, and close.
func BenchmarkShortRun(b *testing.B) {
	_, f := start(b, nil)
	i := 0
	for b.Loop() {
		b.StopTimer()
		tr := Start(b.Context(), f)
		if err := tr.waitReady(b.Context()); err != nil {
			b.Fatal(err)
		}
		segs := storetest.Run(fmt.Sprint("r-", i), 20, 20)
		i++
		b.StartTimer()
		publish(b, tr, segs...)
		if err := drain(b, tr); err != nil {
			b.Fatal(err)
		}
		tr.Close()
	}
}

// BenchmarkDirect ingests the same segments into the same store without a transport.
func BenchmarkDirect(b *testing.B) {
	_, f := start(b, nil)
	i := 0
	for b.Loop() {
		for _, seg := range storetest.Run(fmt.Sprint("r-", i), 20, 20) {
			if err := f.Ingest(b.Context(), seg); err != nil {
				b.Fatal(err)
			}
		}
		i++
	}
}

func BenchmarkCarry(b *testing.B) {
	tr, _ := start(b, nil)
	const records = 10000
	events := storetest.Events(records)
	i := 0
	for b.Loop() {
		b.StopTimer()
		run := fmt.Sprint("r-", i)
		i++
		seg := storetest.Segments(run, storetest.Frames(run, events), records)[0]
		b.StartTimer()
		publish(b, tr, seg)
		if err := drain(b, tr); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(records*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

// BenchmarkIdleMemory reports the heap that an idle transport keeps.
func BenchmarkIdleMemory(b *testing.B) {
	var kept int64
	for b.Loop() {
		before := heap()
		tr := Start(b.Context(), nil)
		if err := tr.waitReady(b.Context()); err != nil {
			b.Fatal(err)
		}
		kept += heap() - before
		tr.Close()
	}
	b.ReportMetric(float64(kept)/float64(b.N), "heap-B")
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkRemoteShortRun measures a short run with an external server on this machine that
// syncs always, and an ingester into SQLite: dial, one segment and the closing manifest, drain, close.
func BenchmarkRemoteShortRun(b *testing.B) {
	s := startNATS(b, alwaysSync, "")
	signer, _ := hostKey(b, "h1")
	ingester(b, s.config(), openStore(b), IngestOptions{})
	dial(b, s.config()).Close()
	var dialed, published time.Duration
	i := 0
	for b.Loop() {
		b.StopTimer()
		segs := sealedRun(b, signer, "acme", "h1", fmt.Sprint("r-", i), 20, 20)
		i++
		b.StartTimer()
		start := time.Now()
		r := dial(b, s.config())
		dialed += time.Since(start)
		for _, seg := range segs {
			if err := r.Publish(b.Context(), seg); err != nil {
				b.Fatal(err)
			}
		}
		published += time.Since(start)
		if err := r.Drain(b.Context()); err != nil {
			b.Fatal(err)
		}
		r.Close()
	}
	b.ReportMetric(dialed.Seconds()*1e3/float64(b.N), "ms-dial")
	b.ReportMetric((published-dialed).Seconds()*1e3/float64(b.N), "ms-publish")
}

// BenchmarkRemoteCarry is segments of 10,000 records through a server that syncs always into SQLite.
func BenchmarkRemoteCarry(b *testing.B) {
	s := startNATS(b, alwaysSync, "")
	signer, _ := hostKey(b, "h1")
	ingester(b, s.config(), openStore(b), IngestOptions{})
	r := dial(b, s.config())
	const records = 10000
	i := 0
	for b.Loop() {
		b.StopTimer()
		segs := sealedRun(b, signer, "acme", "h1", fmt.Sprint("r-", i), 5*records, records)
		i++
		b.StartTimer()
		for _, seg := range segs {
			if err := r.Publish(b.Context(), seg); err != nil {
				b.Fatal(err)
			}
		}
		if err := r.Drain(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(5*records*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
