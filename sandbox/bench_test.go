package sandbox_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/scratch"
	"github.com/custody-project/custody/vmm/template"
	"github.com/custody-project/custody/vmm/vmtest"
)

// The benchmarks start real VMs from the templates in CUSTODY_TEST_TEMPLATES
// (see hack/bench), with the driver of vmtest.

var shape = template.Shape{CPUs: 1, Memory: 512 << 20, Disk: 2 << 30}

// machine is a restored VM with a connected guest.
type machine struct {
	vm     vmm.VM
	guest  *channel.Client
	events int
}

func restore(b *testing.B, sensor bool) *machine {
	b.Helper()
	dir := os.Getenv("CUSTODY_TEST_TEMPLATES")
	if dir == "" {
		b.Fatal("CUSTODY_TEST_TEMPLATES is not set: run `make bench`")
	}
	ctx := b.Context()
	d := vmtest.Driver(b)
	t, err := template.Store{Dir: dir, Guest: filepath.Join("..", "bin", "custody-guest"), Log: io.Discard}.Open(ctx, "base")
	check(b, err)
	img, err := t.Image(ctx, d, shape)
	check(b, err)
	disk, err := scratch.Clone(b.TempDir(), img.Disk)
	check(b, err)
	m := &machine{}
	m.vm, err = d.Start(ctx, vmm.Machine{ID: "bench", Image: img, CPUs: shape.CPUs, Memory: shape.Memory, Scratch: disk})
	check(b, err)
	b.Cleanup(func() {
		m.vm.Destroy(context.Background())
		disk.Close()
		img.Close()
	})
	check(b, m.vm.Thaw(ctx))
	m.guest, err = channel.Connect(ctx, m.vm.Channel(), vmtest.Wake(), func(context.Context, *audit.Event) error { m.events++; return nil })
	check(b, err)
	check(b, m.guest.Identify(ctx, channel.Identity{
		Run: "r-bench", Time: time.Now(), Entropy: make([]byte, 64), MachineID: strings.Repeat("0", 32), Hostname: "bench",
		Limits: channel.Limits{PIDs: 256, Memory: shape.Memory},
		Files:  channel.FileSettings{ReadOver: 8 << 20}, Sensor: sensor,
	}))
	return m
}

func (m *machine) run(b *testing.B, argv ...string) {
	b.Helper()
	p, err := m.guest.Start(b.Context(), channel.Command{
		Step: "main", Argv: argv, Env: []string{"PATH=/usr/bin:/bin", "HOME=/root"}, Dir: "/workspace",
	})
	check(b, err)
	p.Stdin.Close()
	done := make(chan string)
	go func() { said, _ := io.ReadAll(p.Stderr); done <- string(said) }()
	io.Copy(io.Discard, p.Stdout)
	said := <-done
	exit, err := p.Wait(b.Context())
	check(b, err)
	if exit.Code != 0 {
		b.Fatalf("%q: exit code %d: %s%s", argv, exit.Code, exit.Error, said)
	}
}

// BenchmarkExec is one exec round trip in a running sandbox: from the host's
// call to the exit code, with all events received.
func BenchmarkExec(b *testing.B) {
	m := restore(b, true)
	for range 5 {
		m.run(b, "true") // code is translated at its first use
	}
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		m.run(b, "true")
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}

// cpuTime is the processor time of the VMs that this process has started. On a machine
// with other load it is more accurate than wall time.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	const tick = 10 * time.Millisecond // of proc(5), on every architecture that Go runs on
	var total time.Duration
	lists, err := filepath.Glob("/proc/self/task/*/children")
	check(b, err)
	for _, list := range lists {
		children, err := os.ReadFile(list)
		check(b, err)
		for _, pid := range strings.Fields(string(children)) {
			stat, err := os.ReadFile("/proc/" + pid + "/stat")
			check(b, err)
			_, rest, _ := strings.Cut(string(stat), ") ")
			for _, field := range strings.Fields(rest)[11:13] { // utime, stime
				n, err := strconv.Atoi(field)
				check(b, err)
				total += time.Duration(n) * tick
			}
		}
	}
	return total
}

// BenchmarkGit makes a repository of 1,000 files, with and without the sensor.
func BenchmarkGit(b *testing.B) {
	const work = `set -e; d=/workspace/$(date +%s%N); mkdir $d; cd $d; git init -q .
i=0; while [ $i -lt 1000 ]; do echo "file $i" > f$i; i=$((i+1)); done
git add .; git -c user.name=b -c user.email=b@example.invalid commit -q -m files`
	for _, sensor := range []bool{true, false} {
		b.Run(fmt.Sprintf("sensor=%v", sensor), func(b *testing.B) {
			m := restore(b, sensor)
			m.run(b, "sh", "-c", work)
			m.events = 0
			began := cpuTime(b)
			for b.Loop() {
				m.run(b, "sh", "-c", work)
			}
			b.ReportMetric((cpuTime(b)-began).Seconds()/float64(b.N), "vm-cpu-s/op")
			b.ReportMetric(float64(m.events)/float64(b.N), "events/op")
		})
	}
}

// BenchmarkMemory restores VMs and reports what the last one costs the host
// while idle, as the guest woke and after a first command. Clean pages are
// those of the template's file, which all VMs of a host share.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		m := restore(b, true)
		report(b, "awake")
		m.run(b, "true")
		report(b, "used")
		check(b, m.vm.Destroy(b.Context()))
	}
}

func report(b *testing.B, when string) {
	pss, clean, dirty := memoryOf(b)
	b.ReportMetric(pss, when+"-PSS-MB")
	b.ReportMetric(clean, when+"-clean-MB")
	b.ReportMetric(dirty, when+"-dirty-MB")
}

// memoryOf sums the memory of the processes below this one, in MB.
func memoryOf(b *testing.B) (pss, clean, dirty float64) {
	for _, pid := range below(b, os.Getpid()) {
		f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		check(b, err)
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			var name string
			var kb float64
			if n, _ := fmt.Sscan(lines.Text(), &name, &kb); n != 2 {
				continue
			}
			switch name {
			case "Pss:":
				pss += kb / 1000
			case "Private_Clean:":
				clean += kb / 1000
			case "Private_Dirty:":
				dirty += kb / 1000
			}
		}
	}
	return pss, clean, dirty
}

// below returns the processes below pid: QEMU, or Firecracker and the shell that it ends with.
func below(b *testing.B, pid int) []int {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	check(b, err)
	var all []int
	for _, file := range tasks {
		list, _ := os.ReadFile(file)
		for _, word := range strings.Fields(string(list)) {
			child, err := strconv.Atoi(word)
			check(b, err)
			all = append(append(all, child), below(b, child)...)
		}
	}
	return all
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
