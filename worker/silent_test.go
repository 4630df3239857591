package worker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/sandbox"
	"github.com/custody-project/custody/vmm/qemu"
	"github.com/custody-project/custody/worker"
)

// stop stops the processes of the run's container.
func (r *rig) stop(t *testing.T) {
	t.Helper()
	stopped := 0
	for _, task := range r.traces(t, nil) {
		if pid, err := strconv.Atoi(filepath.Base(task)); err == nil && strings.HasPrefix(task, "/proc/") {
			must(t, unix.Kill(pid, unix.SIGSTOP))
			stopped++
		}
	}
	if stopped == 0 {
		t.Fatal("the container has no process")
	}
}

// TestSilent: a sandbox whose processes are stopped is reported and destroyed, and nothing is left of it.
func TestSilent(t *testing.T) {
	t.Parallel()
	r := newGVisorRig(t, "sleep 1000")
	r.options.Settings.Silence = 6 * time.Second
	ended := r.start(t.Context())
	<-r.worker
	r.awaitExec(t)
	r.stop(t)
	if err := <-ended; !errors.Is(err, sandbox.ErrSilent) {
		t.Errorf("the run ended with %v", err)
	}
	r.checkSilent(t)
	if left := r.traces(t, nil); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// checkSilent checks the record of a run whose guest gave no sign of life.
func (r *rig) checkSilent(t *testing.T) {
	t.Helper()
	records := r.records(t)
	var silent, destroyed int
	for i, rec := range records {
		if rec.VM != nil && rec.VM.Op == "silent" && rec.Observer == audit.Host && rec.VM.DurationNS == int64(r.options.Settings.Silence) {
			silent = i
		}
		if rec.VM != nil && rec.VM.Op == "destroy" {
			destroyed = i
		}
	}
	if silent == 0 || destroyed < silent {
		t.Errorf("record %d says that the guest is silent, %d that the VM was destroyed", silent, destroyed)
	}
	last := records[len(records)-1]
	if last.Kind != audit.KindRun || last.Lifecycle.Status != audit.StatusInterrupted || !strings.Contains(last.Lifecycle.Reason, "limits.silence") {
		t.Errorf("the last record is %+v, %+v", last, last.Lifecycle)
	}
}

// TestSilentSession: a session whose sandbox is stopped ends, and its processes have the reason. A sandbox that is paused for longer is not silent.
func TestSilentSession(t *testing.T) {
	t.Parallel()
	r := newGVisorRig(t, "")
	r.options.Steps = nil
	r.options.Settings.Silence = 6 * time.Second
	r.options.Serve = func(ctx context.Context, s *worker.Session) {
		p, err := begin(t, s, worker.Process{Name: "p"}, "read line; echo got $line; exec sleep 1000")
		must(t, err)
		must(t, s.Pause(t.Context()))
		time.Sleep(2 * r.options.Settings.Silence)
		must(t, s.Resume(t.Context()))
		if _, err := p.stdin.WriteString("it\n"); err != nil {
			t.Error(err)
		}
		r.awaitExec(t)
		r.stop(t)
		if _, out, err := p.end(); !errors.Is(err, sandbox.ErrSilent) || out != "got it\n" {
			t.Errorf("the process ended with %v, and printed %q", err, out)
		}
		<-ctx.Done()
	}
	result, err := r.run(t.Context())
	if err != nil || !errors.Is(result.Err, sandbox.ErrSilent) || result.Status != audit.StatusInterrupted {
		t.Fatalf("%+v, %v", result, err)
	}
	r.checkSilent(t)
}

// TestSilentVM: in a VM, a process that computes keeps the sandbox from being idle, one that waits does not, and a VM that is stopped is reported and
// destroyed. It is not parallel: it stops the only VM of this process.
func TestSilentVM(t *testing.T) {
	d, err := qemu.New(false)
	must(t, err)
	r := newRig(t, d, "")
	r.options.Steps = nil
	r.options.Settings.Silence = 12 * time.Second
	const rest = 5 * time.Second
	r.options.Serve = func(ctx context.Context, s *worker.Session) {
		busy, err := begin(t, s, worker.Process{Name: "busy"}, "while :; do :; done")
		must(t, err)
		for range 2 * int(rest/time.Second) {
			if quiet, err := s.Quiet(t.Context()); err != nil || quiet >= rest {
				t.Errorf("while a process computes: quiet for %v, %v", quiet, err)
			}
			time.Sleep(time.Second)
		}
		must(t, s.Signal(t.Context(), "busy", unix.SIGKILL))
		busy.end()
		waits, err := begin(t, s, worker.Process{Name: "waits"}, "exec sleep 1000")
		must(t, err)
		for began := time.Now(); ; time.Sleep(time.Second) {
			quiet, err := s.Quiet(t.Context())
			must(t, err)
			if quiet >= rest {
				break
			}
			if time.Since(began) > 2*time.Minute {
				t.Fatalf("a process that waits does something: quiet for %v", quiet)
			}
		}
		must(t, unix.Kill(r.vm(t), unix.SIGSTOP))
		if _, _, err := waits.end(); !errors.Is(err, sandbox.ErrSilent) {
			t.Errorf("the process ended with %v", err)
		}
		<-ctx.Done()
	}
	result, err := r.run(t.Context())
	if err != nil || !errors.Is(result.Err, sandbox.ErrSilent) || result.Status != audit.StatusInterrupted {
		t.Fatalf("%+v, %v", result, err)
	}
	r.checkSilent(t)
}

// vm returns the process of the only VM that this process has started.
func (r *rig) vm(t *testing.T) int {
	t.Helper()
	var found []int
	for _, list := range glob(t, fmt.Sprintf("/proc/%d/task/*/children", os.Getpid())) {
		text, _ := os.ReadFile(list)
		for _, word := range strings.Fields(string(text)) {
			args, _ := os.ReadFile("/proc/" + word + "/cmdline")
			if pid, err := strconv.Atoi(word); err == nil && strings.Contains(string(args), "microvm") {
				found = append(found, pid)
			}
		}
	}
	if len(found) != 1 {
		t.Fatalf("the VMs are %v", found)
	}
	return found[0]
}
