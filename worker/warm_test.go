package worker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/hostd"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/worker"
)

// captured keeps the machine that a driver describes to its server.
type captured struct {
	driver
	server privsep.Server
}

func (c *captured) NewServer(m vmm.Machine) privsep.Server {
	c.server = c.driver.NewServer(m)
	return c.server
}

// warmed returns a sandbox that was warmed up.
func (r *rig) warmed(t testing.TB) *hostd.Sandbox {
	t.Helper()
	s, err := hostd.NewSandbox(t.Context(), r.parts)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	must(t, s.Warm(t.Context()))
	must(t, s.Check(t.Context()))
	return s
}

// TestWarm: a run in a warm sandbox is one of its own: its record has nothing of the rehearsal, and verifies.
func TestWarm(t *testing.T) {
	eachTier(t, func(t *testing.T, d driver) {
		r := newRig(t, d, "uname -n; cat /etc/hostname; exit 7")
		r.parts.Machine.ID = "warm-" + d.Tier()
		s := r.warmed(t)
		select {
		case <-s.Done():
			t.Fatal("the sandbox has died")
		default:
		}
		if err := s.Warm(t.Context()); err == nil {
			t.Error("it was warmed up again")
		}
		result, err := r.runIn(t.Context(), s)
		if err != nil || result.ExitCode != 7 {
			t.Fatalf("%+v, %v", result, err)
		}
		if out := r.out.String(); out != testRun+"\n"+testRun+"\n" {
			t.Errorf("the guest is called %q", out)
		}
		if err := s.Check(t.Context()); err == nil {
			t.Error("a sandbox that had a run passes the check")
		}
		var kinds []string
		for _, rec := range r.records(t) {
			if rec.VM != nil && rec.VM.DurationNS > 0 && rec.VM.Op != "destroy" {
				kinds = append(kinds, rec.VM.Op+" "+rec.VM.Reason)
			}
			if rec.Exec != nil && (len(rec.Exec.Argv) == 0 || rec.Exec.Argv[0] == "true") {
				t.Errorf("the rehearsal is in the record: %+v", rec.Exec)
			}
			if rec.Kind == audit.KindFinding {
				t.Errorf("a finding: %+v", rec.Finding)
			}
		}
		if len(kinds) != 1 || !strings.Contains(kinds[0], "before the run, at ") {
			t.Errorf("the start of the machine: %q", kinds)
		}
	})
}

// TestWarmDies: the worker of a warm sandbox ends with its machine, which its owner sees, and nothing is left to be used.
func TestWarmDies(t *testing.T) {
	eachTier(t, func(t *testing.T, d driver) {
		r := newRig(t, d, "true")
		c := &captured{driver: d}
		r.parts.Machine.ID, r.parts.Driver = "dies-"+d.Tier(), c
		s := r.warmed(t)
		must(t, c.server.Close()) // kills the machine
		<-s.Done()
		if err := s.Check(t.Context()); err == nil {
			t.Error("it passes the check")
		}
		if _, err := r.runIn(t.Context(), s); err == nil {
			t.Error("a run began in it")
		}
	})
}

// TestWarmKilled: the death of a warm sandbox's worker is seen, and its machine ends.
func TestWarmKilled(t *testing.T) {
	eachTier(t, func(t *testing.T, d driver) {
		r := newRig(t, d, "true")
		r.parts.Machine.ID = "killed-" + d.Tier()
		s := r.warmed(t)
		kill(t, <-r.worker)
		<-s.Done()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.Check(ctx); err == nil {
			t.Error("it passes the check")
		}
		must(t, s.Close())
	})
}

// TestWarmShape: a run does not begin in a warm machine that is another one than it asks for. Idle, the machine uses a part of its memory.
func TestWarmShape(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*worker.Config){
		"isolation":    func(c *worker.Config) { c.Facts.Tier = vmm.QEMUTCG },
		"processors":   func(c *worker.Config) { c.Settings.CPUs = 2 },
		"memory":       func(c *worker.Config) { c.Settings.Memory /= 2 },
		"disk":         func(c *worker.Config) { c.Settings.ScratchSize *= 2 },
		"disk rate":    func(c *worker.Config) { c.Settings.DiskRate = 1 << 20 },
		"network rate": func(c *worker.Config) { c.Settings.NetworkRate = 1 << 20 },
	} {
		t.Run(name, func(t *testing.T) {
			r := newGVisorRig(t, "true")
			s := r.warmed(t)
			if used, most := s.Memory(), r.parts.Machine.Memory; used < 8<<20 || used > most/2 {
				t.Errorf("it uses %d bytes of %d", used, most)
			}
			change(&r.options.Config)
			if result, err := r.runIn(t.Context(), s); err == nil || !strings.Contains(err.Error(), "the run asks for") {
				t.Errorf("a run began: %+v, %v", result, err)
			}
		})
	}
}
