package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/hostd"
	"github.com/custody-project/custody/internal/takeover"
	"github.com/custody-project/custody/outside"
	"github.com/custody-project/custody/store/clickhouse/clickhousetest"
	"github.com/custody-project/custody/vmm"
)

// refusals are the errors of an attempt that was made as intended, and refused.
var refusals = []error{
	unix.EPERM, unix.EACCES, unix.ENOENT, unix.ENOTDIR, unix.ESRCH, unix.ENOSYS, unix.EROFS, unix.ECONNREFUSED, unix.ENETUNREACH, unix.ENODEV, takeover.ErrKilled,
}

// rights are what /proc/PID/status has of each process.
var rights = map[string][]string{
	"worker":   {"CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"},
	"outside":  {"CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"},
	"serve":    {"CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"},
	"qemu":     {"CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"},
	"sentry":   {"CapBnd:\t000000000008001f", "NoNewPrivs:\t1", "Seccomp:\t2"},
	"gofer":    {"CapBnd:\t000000000004001f", "NoNewPrivs:\t1", "Seccomp:\t2"},
	"client":   {"CapEff:\t0000000000000000", "CapPrm:\t0000000000000000"},
	"stranger": {"CapEff:\t0000000000000000", "CapPrm:\t0000000000000000"},
}

// attack makes all attempts in a process. It fails the test for each that succeeds and is not one of those that the process may make, and for
// each that was not made as intended.
func attack(t *testing.T, process string, pid int, g targets) {
	t.Helper()
	g.group = groupOf(t, pid)
	for _, line := range rights[process] {
		if status := statusOf(t, pid); !strings.Contains(status, line) {
			t.Errorf("%s has no %q:\n%s", process, line, status)
		}
	}
	if own := uidOf(t, pid); own == 0 || own == uidOf(t, g.pid) {
		t.Errorf("%s has the uid %d, like its victim or root", process, own)
	}
	for _, a := range attempts {
		var got error
		if err := takeover.Do(pid, func(th *takeover.Thread) error {
			got = a.try(th, g)
			return nil
		}); err != nil {
			t.Fatalf("%s: %v", process, err)
		}
		switch {
		case a.can(process):
			if got != nil {
				t.Logf("%s could: %s; here: %v", process, a.what, got)
			}
		case got == nil:
			t.Errorf("%s can: %s", process, a.what)
		case !isRefusal(got):
			t.Errorf("%s: the attempt to %s fails with %v, which is no refusal", process, a.what, got)
		}
	}
}

func isRefusal(err error) bool {
	for _, r := range refusals {
		if errors.Is(err, r) {
			return true
		}
	}
	return false
}

// groupOf returns the control group of a process, in the hierarchy that limits the number of its processes.
func groupOf(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) == 3 && (part[1] == "pids" || part[1] == "" && !strings.Contains(string(b), ":pids:")) {
			return filepath.Join("/sys/fs/cgroup", part[1], part[2])
		}
	}
	t.Fatalf("the process %d has no control group: %s", pid, b)
	return ""
}

// reach returns the targets on the host with this state, and proves that root reaches all of them: a refusal means something only then.
func reach(t *testing.T, home, runs string, pid int) targets {
	t.Helper()
	g := targets{
		key: filepath.Join(home, "keys", "host.key"), settings: filepath.Join(home, "host.yaml"), projects: filepath.Join(home, "projects"),
		runs: runs, log: one(t, filepath.Join(runs, "*", "*.seg")), template: one(t, filepath.Join(home, "templates", "sha256-*", "root.erofs")),
		pid: pid, hostSocket: socketOfAll(t), abstract: fmt.Sprintf("custody-escape-%d-%s", os.Getpid(), t.Name()), mount: t.TempDir(),
	}
	var err error
	if g.hostname, err = os.Hostname(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(g.projects, 0o755); err != nil {
		t.Fatal(err)
	}
	unnamed, err := net.Listen("unix", "@"+g.abstract)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unnamed.Close() })
	port, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { port.Close() })
	g.port, g.clientSocket = port.Addr().(*net.TCPAddr).Port, g.hostSocket
	g.address = ownAddress(t)
	return g
}

// ownAddress returns an IPv4 address of this host, that of a network if it has any.
func ownAddress(t *testing.T) net.IP {
	t.Helper()
	list, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	own := net.IPv4(127, 0, 0, 1)
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			own = n.IP
		}
	}
	return own
}

// socketOfAll returns a unix socket that every user can connect to.
func socketOfAll(t *testing.T) string {
	t.Helper()
	path := filepath.Join(publicDir(t), "socket")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err == nil {
		err = os.Chmod(path, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return path
}

// one returns the first path that matches.
func one(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) == 0 {
		t.Fatalf("there is no %s: %v", pattern, err)
	}
	return found[0]
}

// control makes the attempts as root, which must succeed.
func control(t *testing.T, g targets, worker int) {
	t.Helper()
	root := exec.Command("cat") // in namespaces of its own, which the attempts may change
	root.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUTS | unix.CLONE_NEWNS}
	pipe, err := root.StdinPipe()
	if err == nil {
		err = root.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		pipe.Close()
		root.Wait()
	}()
	g.group = groupOf(t, worker)
	for _, a := range attempts {
		var got error
		if err := takeover.Do(root.Process.Pid, func(th *takeover.Thread) error {
			got = a.try(th, g)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if got != nil {
			t.Errorf("control: root cannot %s: %v", a.what, got)
		}
	}
}

// TestEscape: an attacker who has taken over a process of the service, with all its rights and descriptors, reaches nothing that
// docs/threat-model.md does not grant to that process.
func TestEscape(t *testing.T) {
	t.Parallel()
	s := newSeparated(t)
	own, other := s.live(t), s.live(t)
	g := reach(t, s.root.home, filepath.Join(s.admin.home, "runs"), s.host.Process.Pid)
	g.hostSocket, g.clientSocket = strings.TrimPrefix(s.admin.env[0], "CUSTODY_HOST="), s.socket()
	workers := programsBelow(s.host.Process.Pid, "custody-worker")
	if len(workers) != 2 {
		t.Fatalf("custody host has the workers %v", workers)
	}
	control(t, g, workers[0])
	live, err := filepath.Glob(filepath.Join(g.runs, "r-*"))
	if err != nil || len(live) != 2 {
		t.Fatalf("the runs are %v, %v", live, err)
	}
	for _, run := range live { // custody serve could ask for it
		if left, err := hostd.NewClient(g.hostSocket).Reopen(t.Context(), filepath.Base(run)); err == nil {
			t.Errorf("the record of a live run was opened by another connection: %v", left.Close())
		}
	}
	makers := 0
	for _, c := range below(s.host.Process.Pid) {
		if nameOf(c.args) != "runsc" {
			continue
		}
		makers++
		if status := statusOf(t, c.pid); !strings.Contains(status, "CapPrm:\t00000000882830fb\n") || !strings.Contains(status, "NoNewPrivs:\t1") {
			t.Errorf("runsc has more rights than docs/threat-model.md states:\n%s", status)
		}
	}
	if makers != 2 {
		t.Errorf("%d processes of runsc were examined", makers)
	}
	sandboxes, gofers := programsBelow(s.host.Process.Pid, "runsc-sandbox"), programsBelow(s.host.Process.Pid, "runsc-gofer")
	for _, c := range []struct {
		process string
		pid     int
		victims []int
	}{
		{"worker", workers[0], []int{s.host.Process.Pid, s.serve.Process.Pid, workers[1]}},
		{"serve", s.serve.Process.Pid, []int{s.host.Process.Pid, workers[0], own}},
		{"sentry", sandboxes[0], []int{s.host.Process.Pid, workers[0], sandboxes[1]}},
		{"gofer", gofers[0], []int{s.host.Process.Pid, workers[0], gofers[1]}},
		{"client", other, []int{s.host.Process.Pid, s.serve.Process.Pid, workers[0]}},
		{"stranger", stranger(t), []int{s.host.Process.Pid}}, // its thread ends in namespaces of its own
		{"stranger", stranger(t), []int{s.serve.Process.Pid}},
		{"stranger", stranger(t), []int{own}},
	} {
		for _, victim := range c.victims {
			g.pid = victim
			attack(t, c.process, c.pid, g)
		}
	}
}

// stranger starts a process of a user who is in no group of Custody.
func stranger(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := as(5, 5)(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd.Process.Pid
}

// TestEscapeQEMU is TestEscape for QEMU and the worker that controls it, without the service.
func TestEscapeQEMU(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.inTier(vmm.QEMUTCG)
	cmd := d.command("run", "-q", "--", "sh", "-c", "echo ready; sleep 1000")
	var out screen
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	d.start(cmd)
	out.await(t, "ready")
	g := reach(t, d.home, filepath.Join(d.home, "runs"), cmd.Process.Pid)
	worker, machine := workerOf(t, cmd.Process.Pid), programsBelow(cmd.Process.Pid, "qemu-system")
	for _, victim := range []int{cmd.Process.Pid, worker} {
		g.pid = victim
		attack(t, "qemu", machine[0], g)
	}
	g.pid = machine[0]
	attack(t, "worker", worker, g)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	late := time.AfterFunc(3*time.Minute, func() {
		t.Error("the run does not end: the processes print their goroutines")
		for _, pid := range []int{worker, cmd.Process.Pid} {
			unix.Kill(pid, unix.SIGQUIT)
		}
	})
	defer late.Stop()
	cmd.Wait()
}

// TestEscapeOutside is TestEscape for the processes that speak to Vault and to the store for a run without the service.
func TestEscapeOutside(t *testing.T) {
	t.Parallel()
	d := newGVisorDoor(t)
	v := newVault(t)
	v.put(t, "agents/git", "token", "git-value-0123456789")
	d.useVault(v)
	d.write(filepath.Join(d.home, "host.yaml"), "version: 1\nstore: "+clickhousetest.Start(t).Fresh()+"\n")
	d.project(stepWithVault)
	cmd := d.command("run", "-q")
	var out screen
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	d.start(cmd)
	out.await(t, "ready")
	g := reach(t, d.home, filepath.Join(d.home, "runs"), cmd.Process.Pid)
	worker, speakers := workerOf(t, cmd.Process.Pid), programsBelow(cmd.Process.Pid, outside.Arg)
	if len(speakers) != 2 {
		t.Fatalf("the processes that speak to Vault and to the store are %v", speakers)
	}
	control(t, g, worker)
	for _, victim := range []int{cmd.Process.Pid, worker} {
		for _, speaker := range speakers {
			g.pid = victim
			attack(t, "outside", speaker, g)
		}
	}
	for i, speaker := range speakers {
		g.pid = speaker
		attack(t, "worker", worker, g)
		attack(t, "outside", speakers[1-i], g)
	}
	cmd.Process.Signal(os.Interrupt)
	cmd.Wait()
}

// live starts a run of the user, and returns its client.
func (s *separated) live(t *testing.T) int {
	t.Helper()
	cmd := s.user.command("run", "-q", "--", "sh", "-c", "echo ready; sleep 1000")
	var out screen
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	s.user.start(cmd)
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
	})
	out.await(t, "ready")
	return cmd.Process.Pid
}

// programsBelow returns the processes below pid whose command line has a word.
func programsBelow(pid int, word string) (all []int) {
	for _, c := range below(pid) {
		if name, _, _ := strings.Cut(c.args, " "); strings.Contains(c.args, word) && !strings.Contains(name, "/runsc") {
			all = append(all, c.pid)
		}
	}
	return all
}
