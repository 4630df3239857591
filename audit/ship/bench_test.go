package ship

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/custody-project/custody/audit/store/storetest"
)

// BenchmarkStart is the whole life of a transport that carries nothing.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		tr := Start(b.Context(), nil)
		if err := tr.waitReady(b.Context()); err != nil {
			b.Fatal(err)
		}
		tr.Close()
	}
}

// BenchmarkShortRun is what a short run pays at its end with the server up:
// one segment and the closing manifest published, drained, and the close.
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

// BenchmarkDirect is the same segments into the same store without a transport.
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
