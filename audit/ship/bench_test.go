package ship

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/custody-project/custody/audit/store"
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

// BenchmarkFirstCommit is what a short run pays: start, one segment, drain, close.
func BenchmarkFirstCommit(b *testing.B) {
	segs := make([]store.Segment, 0, 1000)
	i := 0
	for b.Loop() {
		tr, _ := start(b, nil)
		segs = append(segs[:0], storetest.Run(fmt.Sprint("r-", i), 20, 20)...)
		i++
		publish(b, tr, segs...)
		if err := drain(b, tr); err != nil {
			b.Fatal(err)
		}
		tr.Close()
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
	var kept uint64
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

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
