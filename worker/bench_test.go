package worker_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/hostd"
	"github.com/custody-project/custody/vmm/qemu"
	"github.com/custody-project/custody/vmm/vmtest"
)

// BenchmarkWarm compares runs of one trivial command in sandboxes that were warmed up before with runs that start their own,
// alternately: from the beginning of the run until its record is closed. It reports how long a warm-up takes, and the private memory of
// an idle warm sandbox beside another one: that of its worker, and that of its machine.
func BenchmarkWarm(b *testing.B) {
	emulated, err := qemu.New(false)
	must(b, err)
	for _, d := range []driver{emulated, vmtest.GVisor(b)} {
		b.Run(d.Tier(), func(b *testing.B) {
			other := newRig(b, d, "true") // with which the sandbox shares pages of files, as in a pool
			other.parts.Machine.ID = "other-" + d.Tier()
			other.warmed(b)
			var up, warm, cold []time.Duration
			var worker, machine float64
			for b.Loop() {
				r := newRig(b, d, "true")
				r.parts.Machine.ID = "bench-" + d.Tier()
				before := below(b, os.Getpid())
				began := time.Now()
				s := r.warmed(b)
				up = append(up, time.Since(began))
				worker, machine = memory(b, (<-r.worker).UID(), before)
				began = time.Now()
				_, err := r.runIn(b.Context(), s)
				warm = append(warm, time.Since(began))
				must(b, err)

				r = newRig(b, d, "true")
				r.parts.Machine.ID = "bench-" + d.Tier()
				began = time.Now()
				s, err = hostd.NewSandbox(b.Context(), r.parts)
				must(b, err)
				_, err = r.runIn(b.Context(), s)
				cold = append(cold, time.Since(began))
				must(b, err)
			}
			b.ReportMetric(median(up), "warm-up-ms")
			b.ReportMetric(median(warm), "warm-run-ms")
			b.ReportMetric(median(cold), "cold-run-ms")
			b.ReportMetric(worker, "worker-private-MB")
			b.ReportMetric(machine, "machine-private-MB")
		})
	}
}

func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2].Microseconds()) / 1000
}

// memory returns the private memory, in MB, of the processes with the worker's uid, and of those others below this one that are not in before.
func memory(b *testing.B, uid int, before []string) (worker, machine float64) {
	out, err := exec.Command("pgrep", "-U", strconv.Itoa(uid)).Output()
	must(b, err)
	workers := strings.Fields(string(out))
	for _, pid := range below(b, os.Getpid()) {
		switch {
		case slices.Contains(workers, pid):
			worker += private(b, pid)
		case !slices.Contains(before, pid):
			machine += private(b, pid)
		}
	}
	return worker, machine
}

// private returns the private memory of a process, in MB.
func private(b *testing.B, pid string) (mb float64) {
	f, err := os.Open("/proc/" + pid + "/smaps_rollup")
	must(b, err)
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var name string
		var kb float64
		if n, _ := fmt.Sscan(lines.Text(), &name, &kb); n == 2 && (name == "Private_Clean:" || name == "Private_Dirty:") {
			mb += kb / 1000
		}
	}
	if dir := os.Getenv("CUSTODY_BENCH_SMAPS"); dir != "" {
		smaps, err := os.ReadFile("/proc/" + pid + "/smaps")
		must(b, err)
		must(b, os.WriteFile(filepath.Join(dir, pid), smaps, 0o600))
	}
	return mb
}

// below returns the processes below pid.
func below(b *testing.B, pid int) (all []string) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	must(b, err)
	for _, file := range tasks {
		list, _ := os.ReadFile(file)
		for _, word := range strings.Fields(string(list)) {
			child, err := strconv.Atoi(word)
			must(b, err)
			all = append(append(all, word), below(b, child)...)
		}
	}
	return all
}
