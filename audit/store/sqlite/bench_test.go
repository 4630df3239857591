package sqlite

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/custody-project/custody/audit/store"
	"github.com/custody-project/custody/audit/store/storetest"
)

func BenchmarkIngest(b *testing.B) {
	for _, size := range []int{100, 10000} {
		b.Run(fmt.Sprintf("segment=%d", size), func(b *testing.B) {
			s := newStore(b)
			template := storetest.Events(size)
			i := 0
			for b.Loop() {
				b.StopTimer()
				run := fmt.Sprint("r-", i)
				i++
				seg := storetest.Segments(run, storetest.Frames(run, template), size)[0]
				b.StartTimer()
				if err := s.Ingest(b.Context(), seg); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(size)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "store.db")
	storetest.Ingest(b, open1(b, path), storetest.Run("r-1", 100, 100))
	for b.Loop() {
		s, err := Open(path)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Runs(b.Context(), store.Filter{}); err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}

func BenchmarkRead(b *testing.B) {
	s := newStore(b)
	storetest.Ingest(b, s, storetest.Run("r-1", 100000, 10000))
	n := 0
	for b.Loop() {
		n += len(storetest.Collect(b, s.Records(b.Context(), store.Query{Run: "r-1"})))
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "rows/s")
}
