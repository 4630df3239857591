package sandbox_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/sandbox"
	"github.com/custody-project/custody/vmm/vmtest"
)

// facts are what a process of a sandbox sees of its machine.
type facts struct {
	random, device, hostname, machineID, boot string
	clock                                     int64
	generated                                 string // by a generator in the process
}

// printFacts prints facts repeatedly.
const printFacts = `
import os, random, socket, time
random.seed(1)
while True:
    print(os.getrandom(16).hex(), open("/dev/urandom", "rb").read(16).hex(), socket.gethostname(), open("/etc/machine-id").read().strip(),
          open("/proc/sys/kernel/random/boot_id").read().strip(), int(time.time()), random.random(), flush=True)
    time.sleep(0.2)
`

// lines returns the facts that a step has printed, without the first line, which can have begun before.
func (f *follower) lines(r *record) (list []facts) {
	f.Helper()
	await(f.T, "it prints facts", func() bool { return strings.Count(f.said(r), "\n") > 5 })
	for _, line := range strings.Split(f.said(r), "\n")[1:5] {
		var x facts
		if _, err := fmt.Sscan(line, &x.random, &x.device, &x.hostname, &x.machineID, &x.boot, &x.clock, &x.generated); err != nil {
			f.Fatalf("%q: %v", line, err)
		}
		list = append(list, x)
	}
	return list
}

// TestFork: two sandboxes that start from one state are different machines, with other random numbers, names and machine IDs than each
// other and the one that was saved. What a process has generated for itself exists twice, as docs/threat-model.md says.
func TestFork(t *testing.T) {
	m := vmtest.Describe(t, vmtest.Driver(t), vmtest.Options{})
	s, r := begin(t, m, "r-parent", nil)
	first := follower{T: t, step: sandbox.Step{
		Name: "facts", Argv: []string{"python3", "-c", printFacts}, Env: []string{"PATH=/usr/bin:/bin"}, Session: true, Live: true,
	}}
	first.start(s)
	parent := first.lines(r)
	first.suspend(s, r)
	saved := keep(t, s, m)

	seen := map[string]string{} // which sandbox has a fact that only one may have
	unique := func(of string, facts ...string) {
		t.Helper()
		for _, f := range facts {
			if other, ok := seen[f]; ok && other != of {
				t.Errorf("%s and %s have both %s", other, of, f)
			}
			seen[f] = of
		}
	}
	for _, x := range parent {
		unique("r-parent", x.random, x.device, x.hostname, x.machineID)
	}
	generated := map[string]string{}
	for _, run := range []string{"r-child-one", "r-child-two", "r-same"} {
		before := time.Now().Unix()
		resumed := saved.resumed
		if run != "r-same" {
			resumed.MachineID, resumed.Hostname = "", ""
		}
		child, r := begin(t, saved.another(t), run, &resumed)
		f := first
		f.attach(child, r)
		for i, x := range f.lines(r) {
			unique(run, x.random, x.device)
			if x.clock < before-1 || x.clock > time.Now().Unix()+1 {
				t.Errorf("%s: the clock is %s at %s", run, time.Unix(x.clock, 0), time.Now())
			}
			if x.boot != parent[0].boot {
				t.Errorf("%s: boot_id is %s, was %s", run, x.boot, parent[0].boot)
			}
			key := fmt.Sprint(i, " ", x.generated)
			generated[key] += run + " "
			if run == "r-same" {
				if x.hostname != "r-parent" || x.machineID != parent[0].machineID {
					t.Errorf("not forked: %+v, was %+v", x, parent[0])
				}
				continue
			}
			unique(run, x.hostname, x.machineID)
			if x.hostname != run {
				t.Errorf("%s has the name %s", run, x.hostname)
			}
		}
		if again := suspension(child).Identity(); again.Hostname != f.lines(r)[0].hostname || again.MachineID != f.lines(r)[0].machineID {
			t.Errorf("%s: its identity is %+v", run, again)
		}
		must(t, child.Close(t.Context()))
		<-f.ended
	}
	twice := 0
	for _, runs := range generated {
		if strings.Contains(runs, "r-child-one r-child-two") {
			twice++
		}
	}
	if twice == 0 {
		t.Errorf("the generator of the process has other states: %q", generated)
	}
}
