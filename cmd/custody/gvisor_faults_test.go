package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// descendant returns the process below custody whose arguments contain the text; 0 if there is none.
func descendant(custody int, text string) int {
	for _, c := range below(custody) {
		if strings.Contains(c.args, text) {
			return c.pid
		}
	}
	return 0
}

// child is a process that a run started.
type child struct {
	pid    int
	args   string
	groups []string // directories of its control groups of Custody
}

// below returns the processes below pid, parents first.
func below(pid int) []child {
	var all []child
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		b, _ := os.ReadFile(task)
		for _, word := range strings.Fields(string(b)) {
			n, err := strconv.Atoi(word)
			if err != nil {
				continue
			}
			c := child{pid: n}
			args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", n))
			c.args = string(bytes.ReplaceAll(args, []byte{0}, []byte{' '}))
			groups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", n))
			for line := range strings.Lines(string(groups)) {
				if part := strings.SplitN(strings.TrimSpace(line), ":", 3); len(part) == 3 && strings.Contains(part[2], "/custody/gvisor-") {
					c.groups = append(c.groups, filepath.Join("/sys/fs/cgroup", part[1], part[2]))
				}
			}
			all = append(append(all, c), below(n)...)
		}
	}
	return all
}

// victims are what is killed while a run is under way; find returns the process, 0 while there is none.
// The texts do not occur in custody's own arguments, which a child has until it executes its program.
var victims = []struct {
	name string
	find func(custody int) int
}{
	{"runsc", func(custody int) int { return descendant(custody, " run --pass-fd=") }},
	{"the sentry", func(custody int) int { return descendant(custody, "runsc-sandbox") }},
	{"the gofer", func(custody int) int { return descendant(custody, "runsc-gofer") }},
	{"custody", func(custody int) int { return custody }},
}

// TestGVisorKilled kills each process of a run at many moments: the run does not end as if nothing had been, and nothing of it is left.
func TestGVisorKilled(t *testing.T) {
	t.Parallel()
	d := newGVisorDoor(t)
	d.must(0, "run", "--", "true") // the template is ready
	const moments = 5              // for each victim
	left := map[int]child{}
	for i := range moments * len(victims) {
		victim := victims[i%len(victims)]
		after := time.Duration(i/len(victims)) * 60 * time.Millisecond
		cmd := d.command("run", "--", "sh", "-c", "while :; do /bin/true; done")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		earlier := d.logNames()
		d.start(cmd)
		pid := 0
		for end := time.Now().Add(20 * time.Second); pid == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
			if !slices.ContainsFunc(d.logNames(), func(name string) bool { return !slices.Contains(earlier, name) }) {
				continue // a sandbox that exists is that of a probe
			}
			if pid = victim.find(cmd.Process.Pid); pid == cmd.Process.Pid && descendant(pid, "runsc") == 0 {
				pid = 0 // custody has not started the sandbox
			}
		}
		if pid == 0 {
			cmd.Process.Kill()
			cmd.Wait()
			t.Fatalf("%s did not appear: %s", victim.name, stderr.String())
		}
		time.Sleep(after)
		for _, c := range below(cmd.Process.Pid) {
			left[c.pid] = c
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Errorf("%s: %v", victim.name, err)
		}
		timer := time.AfterFunc(20*time.Second, func() {
			t.Errorf("%s was killed after %s, and the run goes on", victim.name, after)
			cmd.Process.Kill()
		})
		cmd.Wait()
		timer.Stop()
		if code := cmd.ProcessState.ExitCode(); code == 0 {
			t.Errorf("%s was killed after %s, and the run exits 0: %s", victim.name, after, stderr.String())
		}
	}
	d.must(0, "run", "--", "true") // and cleans up
	interrupted := 0
	for _, r := range d.runs() {
		switch r.Status {
		case store.Running:
			t.Errorf("the run %s is under way", r.ID)
		case store.Interrupted:
			interrupted++
		}
	}
	// Of a run whose custody was killed before its first record was durable, there is no log.
	if interrupted < moments-1 || interrupted > moments*len(victims) {
		t.Errorf("%d runs are interrupted, want at least %d of the %d whose custody was killed, and not the 2 that were not", interrupted, moments-1, moments)
	}
	d.nothingLeft(left)
}

// nothingLeft fails the test if a process, a control group or a lease of a run is left.
func (d *door) nothingLeft(all map[int]child) {
	d.Helper()
	for _, c := range all {
		now, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", c.pid))
		if err == nil && len(now) > 0 && c.args == string(bytes.ReplaceAll(now, []byte{0}, []byte{' '})) {
			d.Errorf("the process %d is left: %s", c.pid, c.args)
		}
		for _, dir := range c.groups {
			if _, err := os.Stat(dir); err == nil {
				d.Errorf("the control group %s is left", dir)
			}
			lease := "/run/custody/gvisor/" + strings.TrimPrefix(filepath.Base(dir), "gvisor-") + ".lock"
			if _, err := os.Stat(lease); err == nil {
				d.Errorf("the lease %s is left", lease)
			}
		}
	}
	if len(all) == 0 {
		d.Error("no process was seen")
	}
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, name := range files {
		if file, _ := os.ReadFile(name); strings.HasPrefix(string(file), d.home+"/") {
			d.Errorf("the loop device of %s is left: %s", file, name)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), " /run/custody/gvisor/box") {
		d.Errorf("mounts are left, %v: %s", err, mounts)
	}
}

// TestGVisorPrograms: a program that is no working runsc is an error soon, with its reason, and never a run without a sandbox.
func TestGVisorPrograms(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		script string // empty: there is no file
		says   string
	}{
		"missing":              {"", "runsc (gVisor) is not installed"},
		"it fails":             {"#!/bin/sh\necho no platform here >&2; exit 3\n", "no platform here"},
		"it ends":              {"#!/bin/sh\nexit 0\n", "runsc"},
		"it prints garbage":    {"#!/bin/sh\nhead -c 100000 /dev/urandom; head -c 100000 /dev/urandom >&2; exit 1\n", "runsc"},
		"it is no program":     {"\x7fELF garbage", "runsc"},
		"it is a broken shell": {"#!/does/not/exist\n", "runsc"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDoor(t)
			program := filepath.Join(d.dir, "runsc")
			if tc.script != "" {
				d.write(program, tc.script)
				if err := os.Chmod(program, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			d.write(filepath.Join(d.home, "host.yaml"), "version: 1\nisolation: {require: gvisor, runsc: "+program+"}\n")
			began := time.Now()
			s := d.custody("run", "--", "true")
			if s.code == 0 || !strings.Contains(s.stderr, tc.says) {
				t.Errorf("exit code %d: %.2000q", s.code, s.stderr)
			}
			if tc.script == "" && !strings.Contains(s.stderr, "hint: install it: Debian's package runsc") {
				t.Errorf("the remedy is missing: %.2000q", s.stderr)
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("the error took %s", took)
			}
			if strings.Contains(s.stderr, "panic") || strings.IndexByte(s.stderr, 0x1b) >= 0 {
				t.Errorf("stderr: %.2000q", s.stderr)
			}
		})
	}
}

// sinkEnv names the socket to which silentSink connects.
const sinkEnv = "CUSTODY_TEST_TRACE_SINK"

// silentSink connects to the trace sink like the sentry, and reports nothing.
func silentSink(path string) {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err == nil {
		_, err = conn.Write([]byte{8, 1}) // version 1
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "silent sink:", err)
		os.Exit(1)
	}
	time.Sleep(time.Minute) // it is killed with the sandbox
	os.Exit(0)
}

// unreported starts runsc without its trace session, and a silent sink.
const unreported = `#!/bin/sh
` + sinkEnv + `=/run/custody/gvisor/box/trace.sock %s &
for a; do
	shift
	case $a in
	--pod-init-config=*) ;;
	*) set -- "$@" "$a" ;;
	esac
done
exec %s "$@"
`

// TestGVisorUnreported: a sentry that reports nothing is a gap of each step, not a record without events.
func TestGVisorUnreported(t *testing.T) {
	t.Parallel()
	d := newGVisorDoor(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(d.dir, "runsc")
	d.write(program, fmt.Sprintf(unreported, self, os.Getenv(runscEnv)))
	if err := os.Chmod(program, 0o755); err != nil {
		t.Fatal(err)
	}
	d.write(filepath.Join(d.home, "host.yaml"), "version: 1\nisolation: {require: gvisor, runsc: "+program+"}\n")
	d.must(0, "run", "--", "true")
	gaps := 0
	for _, r := range d.records("last") {
		if r.Exec != nil {
			t.Errorf("seq %d: an exec is recorded, so runsc reports: %+v", r.Seq, r.Exec)
		}
		if r.Gap != nil && r.Gap.Stage == audit.StageGuest && strings.Contains(r.Gap.Cause, "trace sink") {
			gaps++
		}
	}
	if gaps != 1 {
		t.Errorf("%d gaps of the trace sink, want 1", gaps)
	}
}

// flood makes events as fast as it can and prints how many: processes, execs and connections.
const flood = `
import os, socket, subprocess
execs = connects = 0
for i in range(300):
    pids = []
    for j in range(4):
        p = os.fork()
        if p == 0:
            os.execv("/bin/true", ["flood", str(i * 4 + j)])
        pids.append(p); execs += 1
    for p in pids: os.waitpid(p, 0)
for i in range(2000):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.connect(("192.0.2.7", 1 + i)); connects += 1
    s.close()
print(execs, connects)
`

// TestGVisorFlood: of a flood each event is in the record, or declared as lost.
func TestGVisorFlood(t *testing.T) {
	t.Parallel()
	d := newGVisorDoor(t)
	in := filepath.Join(d.dir, "in")
	if err := os.Mkdir(in, 0o755); err != nil {
		t.Fatal(err)
	}
	d.write(filepath.Join(in, "flood.py"), flood)
	s := d.must(0, "run", "--workdir", in, "--", "/usr/bin/python3", "flood.py")
	var execs, connects, lost int
	if _, err := fmt.Sscan(s.stdout, &execs, &connects); err != nil || execs == 0 || connects == 0 {
		t.Fatalf("%q: %v", s.stdout, err)
	}
	args := map[string]bool{}
	exits := 0
	ports := map[int]bool{}
	for _, r := range d.records("last") {
		switch {
		case r.Gap != nil && r.Gap.Stage == audit.StageTrace:
			lost += int(r.Gap.Count)
		case r.Exec != nil && len(r.Exec.Argv) == 2 && r.Exec.Argv[0] == "flood":
			args[string(r.Exec.Argv[1])] = true
		case r.Exit != nil:
			exits++
		case r.Flow != nil && r.Flow.State == audit.FlowAttempt && r.Flow.DstIP == "192.0.2.7":
			ports[r.Flow.DstPort] = true
		}
	}
	missing := execs - len(args) + connects - len(ports) + max(0, execs+1-exits)
	if missing > lost {
		t.Errorf("of %d execs %d, of %d exits %d and of %d connections %d are in the record, and %d events are declared as lost",
			execs, len(args), execs+1, exits, connects, len(ports), lost)
	}
	d.verified("last")
}
