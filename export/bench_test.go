package export_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/exporttest"
	"github.com/custody-project/custody/export/format/cef"
	"github.com/custody-project/custody/export/format/ecs"
	"github.com/custody-project/custody/export/format/native"
	"github.com/custody-project/custody/export/format/ocsf"
	"github.com/custody-project/custody/store/sqlite"
)

// null accepts everything immediately.
type null struct{}

func (null) Send(context.Context, []export.Item) error { return nil }
func (null) Close() error                              { return nil }

// BenchmarkExporter measures exporting 20,000 events from a store to a sink without cost, with a new
// cursor each time: reading, decoding, context, formatting, batches, cursor.
func BenchmarkExporter(b *testing.B) {
	of, err := ocsf.New("")
	if err != nil {
		b.Fatal(err)
	}
	const events = 20000
	st, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "store.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer st.Close()
	for _, seg := range exporttest.Run("acme", "r-1", events, 1000) {
		if err := st.Ingest(b.Context(), seg); err != nil {
			b.Fatal(err)
		}
	}
	for _, f := range []export.Format{export.JSON{}, native.New(), of, ecs.New(), cef.New()} {
		b.Run(f.Name(), func(b *testing.B) {
			began := cpu(b)
			for b.Loop() {
				x, err := export.Open(export.Options{Name: "null", Dir: b.TempDir(), Source: st, Format: f, Sink: null{}})
				if err != nil {
					b.Fatal(err)
				}
				if err := x.CatchUp(b.Context()); err != nil {
					b.Fatal(err)
				}
				if s := x.Stats(); s.Sent != events {
					b.Fatalf("%+v", s)
				}
				x.Close()
			}
			b.ReportMetric(events*float64(b.N)/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(events*float64(b.N)/(cpu(b)-began).Seconds(), "events/cpu-s")
		})
	}
}

// cpu returns the CPU time of this process, which other load on the machine hardly affects.
func cpu(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
