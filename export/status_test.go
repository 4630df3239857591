package export_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/exporttest"
	"github.com/custody-project/custody/store"
)

// TestMeasureOracle compares the result for each possible cursor with the records that the feed has there, one by one.
func TestMeasureOracle(t *testing.T) {
	src := &exporttest.Source{}
	src.Add(exporttest.Run("acme", "r-1", 25, 6)...)
	src.Add(exporttest.Run("", "r-2", 14, 5)...)
	src.Add(exporttest.Run("acme", "r-3", 9, 9)...)
	refs, err := src.Feed(t.Context(), "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, filter := range []export.Filter{{}, {Tenant: "acme"}, {Runs: []string{"r-2"}}} {
		takes := func(ref store.Ref) bool {
			return (filter.Tenant == "" || ref.Tenant == filter.Tenant) && (len(filter.Runs) == 0 || ref.Run == filter.Runs[0])
		}
		for done := range len(refs) + 1 {
			cursors := []export.Cursor{{V: 1, Feed: strconv.Itoa(done)}}
			if done < len(refs) {
				ref := refs[done]
				for seq := ref.First; seq <= ref.Last; seq++ {
					cursors = append(cursors, export.Cursor{V: 1, Feed: strconv.Itoa(done), Part: export.Part{Tenant: ref.Tenant, Run: ref.Run, Index: ref.Index, Seq: seq}})
				}
			}
			for _, c := range cursors {
				var want export.Behind
				for i, ref := range refs[done:] {
					if !takes(ref) {
						continue
					}
					records := uint64(0)
					for row, err := range src.Records(t.Context(), store.Query{Tenant: ref.Tenant, Run: ref.Run}) {
						if err != nil {
							t.Fatal(err)
						}
						if row.Seq < ref.First || row.Seq > ref.Last || i == 0 && row.Seq <= c.Part.Seq {
							continue
						}
						if records++; want.Oldest.IsZero() {
							want.Oldest = row.Time
						}
					}
					if want.Records += records; records > 0 {
						want.Segments++
					}
				}
				if got, err := export.Measure(t.Context(), src, c, filter); got != want || err != nil {
					t.Fatalf("%+v of %+v: %+v, %v; want %+v", c, filter, got, err, want)
				}
			}
		}
	}
}

// TestStatusDisturbsNobody: an exporter can open while others read its status, which has the totals of earlier exporters.
func TestStatusDisturbsNobody(t *testing.T) {
	src, sink := &exporttest.Source{}, &receiver{}
	o := options(t, src, sink)
	stop, reading := make(chan struct{}), sync.WaitGroup{}
	for range 3 {
		reading.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := export.ReadStatus(t.Context(), o.Dir, o.Name, src, o.Filter); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 20 {
		src.Add(exporttest.Run("acme", fmt.Sprint("r-", i), 10, 10)...)
		catchUp(t, o)
	}
	close(stop)
	reading.Wait()
	s, err := export.ReadStatus(t.Context(), o.Dir, o.Name, src, o.Filter)
	if err != nil || s.State != export.Stopped || s.Sent != 200 || s.Behind == nil || *s.Behind != (export.Behind{}) || time.Since(s.LastSuccess) > time.Hour {
		t.Errorf("%+v, %v", s, err)
	}
}
