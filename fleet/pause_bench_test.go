package fleet_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/custody-project/custody/fleet"
	"github.com/custody-project/custody/quota"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/vmm/vmtest"
)

// BenchmarkPause measures an idle sandbox of 512 MiB: pause, resume to the exit of the next process, and forks into 1 and 4, beside a new sandbox to the exit of its first
// process.
func BenchmarkPause(b *testing.B) {
	r := openRig(b, b.TempDir(), fmt.Sprintf("isolation: {require: %s}\n", vmtest.Driver(b).Tier()), fleet.Config{}, quota.Config{})
	took := map[string]time.Duration{}
	measure := func(name string, do func()) {
		began := time.Now()
		do()
		took[name] += time.Since(began)
	}
	exec := func(s *fleet.Sandbox) {
		p, err := s.Start(b.Context(), run.Command{Argv: []string{"true"}}, false)
		check(b, err)
		if exit, _, err := p.Exit(); err != nil || exit.Code != 0 {
			b.Fatalf("%+v, %v", exit, err)
		}
	}
	fork := func(s *fleet.Sandbox, n int) {
		forks, err := r.Fork(b.Context(), s, n, "ann", nil)
		check(b, err)
		for _, one := range forks {
			check(b, one.Destroy(b.Context()))
		}
	}
	for b.Loop() {
		var s *fleet.Sandbox
		measure("new", func() {
			var err error
			s, _, err = r.Create(b.Context(), fleet.Request{Tenant: "acme"})
			check(b, err)
			exec(s)
		})
		measure("pause", func() { check(b, s.Pause(b.Context())) })
		b.ReportMetric(float64(s.Info().Stored)/(1<<20), "MiB")
		measure("resume", func() { exec(s) })
		check(b, s.Pause(b.Context()))
		measure("fork1", func() { fork(s, 1) })
		measure("fork4", func() { fork(s, 4) })
		check(b, s.Destroy(b.Context()))
	}
	for name, d := range took {
		b.ReportMetric(float64(d.Milliseconds())/float64(b.N), name+"-ms")
	}
}
