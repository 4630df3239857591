package sandbox_test

import (
	"io"
	"slices"
	"testing"
	"time"

	"github.com/custody-project/custody/sandbox"
	"github.com/custody-project/custody/vmm/template"
	"github.com/custody-project/custody/vmm/vmtest"
)

// BenchmarkAcquire compares a run that takes a warm sandbox with one that starts its own, alternately: the time from the
// identity, or from the start of the VM, until a first command has ended. It also reports how long the warm-up takes, and the private
// memory of the VM while it is idle.
func BenchmarkAcquire(b *testing.B) {
	drivers := map[string]func() template.Driver{
		"vm":     func() template.Driver { return vmtest.Driver(b) },
		"gvisor": func() template.Driver { return vmtest.GVisor(b) },
	}
	for _, name := range []string{"vm", "gvisor"} {
		b.Run(name, func(b *testing.B) {
			d := drivers[name]()
			var up, warmed, cold, identity []time.Duration
			var memory float64
			for b.Loop() {
				began := time.Now()
				w := start(b, d)
				must(b, w.Rehearse(b.Context()))
				up = append(up, time.Since(began))
				_, clean, dirty := memoryOf(b)
				memory = clean + dirty
				began = time.Now()
				s, _ := assign(b, w, "r-warm")
				identity = append(identity, time.Since(began))
				first(b, s)
				warmed = append(warmed, time.Since(began))
				must(b, s.Close(b.Context()))

				began = time.Now()
				s, _ = assign(b, start(b, d), "r-cold")
				first(b, s)
				cold = append(cold, time.Since(began))
				must(b, s.Close(b.Context()))
			}
			b.ReportMetric(median(up), "warm-up-ms")
			b.ReportMetric(median(identity), "identity-ms")
			b.ReportMetric(median(warmed), "warm-first-ms")
			b.ReportMetric(median(cold), "cold-first-ms")
			b.ReportMetric(memory, "idle-private-MB")
		})
	}
}

// first runs the first command of a run.
func first(b *testing.B, s *sandbox.Sandbox) {
	b.Helper()
	exit, err := s.Step(b.Context(), sandbox.Step{Name: "main", Argv: []string{"true"}, Stdout: io.Discard, Stderr: io.Discard})
	must(b, err)
	if exit.Code != 0 {
		b.Fatalf("exit code %d: %s", exit.Code, exit.Error)
	}
}

func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2].Microseconds()) / 1000
}
