package worker_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/vmm/vmtest"
	"github.com/custody-project/custody/worker"
)

// newGVisorRig returns a run in a container that is named after the test.
func newGVisorRig(t *testing.T, script string) *rig {
	t.Helper()
	r := newRig(t, vmtest.GVisor(t), script)
	r.parts.Machine.ID = strings.ToLower(t.Name())
	return r
}

// TestGVisorRun: the privileged process finds and hashes files, whatever their names are, and the worker parses what the sentry reports.
func TestGVisorRun(t *testing.T) {
	t.Parallel()
	const files = 2000
	r := newGVisorRig(t, fmt.Sprintf(`
cd /workspace
for i in $(seq %d); do echo $i >many-$i; done
printf a >$'\xff\n"end":true'
long=$(printf 'x%%.0s' {1..255})
for i in {1..14}; do mkdir $long; cd $long; done
cd /workspace; rm /etc/issue; (: </dev/tcp/shop.example/443); /bin/false; exit 7`, files))
	result, err := r.run(t.Context())
	if err != nil || result.ExitCode != 7 {
		t.Fatalf("%+v, %v", result, err)
	}
	hashes, ops, flows, exits := map[string]string{}, map[audit.FileOp]int{}, 0, map[int]bool{}
	for _, rec := range r.records(t) {
		switch {
		case rec.File != nil && rec.Observer == audit.Host:
			hashes[string(rec.File.Path)] = rec.File.SHA256
			ops[rec.File.Op]++
		case rec.Flow != nil && rec.Flow.State == audit.FlowAttempt && rec.Flow.DstPort == 443 && rec.Flow.Proc != "":
			flows++
		case rec.Exit != nil:
			exits[rec.Exit.Code] = true
		case rec.Gap != nil && strings.Contains(rec.Gap.Cause, "did not report everything"):
			t.Errorf("a gap: %+v", rec.Gap)
		}
	}
	for path, content := range map[string]string{"/workspace/many-1": "1\n", fmt.Sprintf("/workspace/many-%d", files): fmt.Sprintf("%d\n", files), "/workspace/\xff\n\"end\":true": "a"} {
		if sum := sha256.Sum256([]byte(content)); hashes[path] != hex.EncodeToString(sum[:]) {
			t.Errorf("the hash of %q is %q", path, hashes[path])
		}
	}
	if _, ok := hashes["/workspace"+strings.Repeat("/"+strings.Repeat("x", 255), 14)]; !ok || ops[audit.FileWrite] < files+1 || ops[audit.FileDelete] != 1 {
		t.Errorf("files: %v, the longest path: %v", ops, ok)
	}
	if flows != 1 || !exits[1] || !exits[7] {
		t.Errorf("%d connections, exits %v", flows, exits)
	}
}

// TestGVisorKilled: nothing is left of the container of a worker that was killed.
func TestGVisorKilled(t *testing.T) {
	t.Parallel()
	r := newGVisorRig(t, "sleep 60")
	ended := r.start(t.Context())
	p := <-r.worker
	r.awaitExec(t)
	before := r.traces(t, nil)
	spaces := map[string]bool{}
	for _, name := range before {
		if strings.Contains(name, ":[") {
			spaces[name] = true
		}
	}
	if len(spaces) < 3 || len(before) < len(spaces)+4 {
		t.Fatalf("the traces of a container are %q: the test looks at wrong places", before)
	}
	kill(t, p)
	r.checkInterrupted(t, <-ended, worker.ErrDied.Error(), p)
	var left []string
	for range 3000 { // the kernel detaches disks a moment after their last user has ended
		if left = r.traces(t, spaces); len(left) == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("left: %q", left)
}

// traces are the lease, the control groups, the disks, the processes and the namespaces of the run's container; spaces are namespaces to look for in
// all processes.
func (r *rig) traces(t *testing.T, spaces map[string]bool) (all []string) {
	t.Helper()
	id := r.parts.Machine.ID
	for _, pattern := range []string{"/run/custody/gvisor/" + id + "-*", "/sys/fs/cgroup/*/custody/gvisor-" + id + "-*", "/sys/fs/cgroup/custody/gvisor-" + id + "-*"} {
		all = append(all, glob(t, pattern)...)
	}
	for _, path := range glob(t, "/sys/block/loop*/loop/backing_file") {
		if b, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(b), filepath.Dir(r.parts.Machine.Scratch.Name())+"/") {
			all = append(all, path)
		}
	}
	for _, task := range glob(t, "/proc/[0-9]*/task/[0-9]*") {
		args, _ := os.ReadFile(task + "/cmdline")
		ours := strings.Contains(string(args), "runsc") && strings.Contains(string(args), "\x00"+id+"\x00")
		if ours {
			all = append(all, task)
		}
		for _, kind := range []string{"mnt", "net", "ipc"} {
			space, err := os.Readlink(task + "/ns/" + kind)
			host, _ := os.Readlink("/proc/1/ns/" + kind)
			if err == nil && space != host && (ours && spaces == nil || spaces[space]) {
				all = append(all, space)
			}
		}
	}
	return all
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	must(t, err)
	return found
}
