package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/vmm"
)

// TestProcesses: while a run is live, what parses bytes of the guest and of the network has no privileges, and custody itself, which has
// them, has no socket with a guest or a network.
func TestProcesses(t *testing.T) {
	for _, tier := range []string{vmm.GVisor, vmm.QEMUTCG} {
		t.Run(tier, func(t *testing.T) {
			t.Parallel()
			d := newDoor(t)
			d.inTier(tier)
			d.project("version: 1\nresolvers: ['udp://192.0.2.1']\negress: [{allow: shop.example}]\n")
			cmd := d.command("run", "-q", "--", "sh", "-c", "getent hosts shop.example >/dev/null; echo ready; read line")
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			var out, errs screen
			cmd.Stdout, cmd.Stderr = &out, &errs
			d.start(cmd)
			out.await(t, "ready")
			worker := workerOf(t, cmd.Process.Pid)
			for _, want := range []string{"CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "CapBnd:\t", "NoNewPrivs:\t1", "Seccomp:\t2"} {
				if status := statusOf(t, worker); !strings.Contains(status, want) {
					t.Errorf("the worker's status has no %q:\n%s", want, status)
				}
			}
			if uid := uidOf(t, worker); uid < 1<<20 {
				t.Errorf("the worker's uid is %d", uid)
			}
			for _, file := range filesOf(worker) {
				if strings.HasPrefix(file, d.home) && !strings.HasPrefix(file, filepath.Join(d.home, "runs")+"/") {
					t.Errorf("the worker has %s open", file)
				}
			}
			if others := networkSockets(t, cmd.Process.Pid); len(others) > 0 {
				t.Errorf("custody has sockets that are neither of the kind unix nor netlink: %v", others)
			}
			for _, c := range below(cmd.Process.Pid) {
				if uidOf(t, c.pid) == 0 && nameOf(c.args) != "runsc" { // which has started the sentry, and waits for it
					t.Errorf("a process below custody is root's: %s", c.args)
				}
			}
			in.Close()
			if err := cmd.Wait(); err != nil && cmd.ProcessState.ExitCode() != 1 { // read fails at the end of the input
				t.Errorf("%v: %s", err, errs.String())
			}
		})
	}
}

// workerOf returns the worker of a run.
func workerOf(t *testing.T, custody int) int {
	t.Helper()
	var found []int
	for _, c := range below(custody) {
		if strings.Contains(c.args, "custody-worker") {
			found = append(found, c.pid)
		}
	}
	if len(found) != 1 {
		t.Fatalf("custody has the workers %v", found)
	}
	return found[0]
}

func statusOf(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// uidOf returns the effective uid of a process.
func uidOf(t *testing.T, pid int) int {
	t.Helper()
	_, rest, _ := strings.Cut(statusOf(t, pid), "\nUid:\t")
	uid, err := strconv.Atoi(strings.Fields(rest)[1])
	if err != nil {
		t.Fatal(err)
	}
	return uid
}

// filesOf returns what a process has open.
func filesOf(pid int) (all []string) {
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, link := range links {
		to, _ := os.Readlink(link)
		all = append(all, to)
	}
	return all
}

// networkSockets returns the sockets of a process that are neither unix nor netlink sockets.
func networkSockets(t *testing.T, pid int) (others []string) {
	t.Helper()
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(process)
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, link := range links {
		n, _ := strconv.Atoi(filepath.Base(link))
		file, _ := os.Readlink(link)
		if !strings.HasPrefix(file, "socket:") {
			continue
		}
		fd, err := unix.PidfdGetfd(process, n, 0)
		if err != nil {
			continue // closed meanwhile
		}
		domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
		unix.Close(fd)
		if err != nil || domain != unix.AF_UNIX && domain != unix.AF_NETLINK {
			others = append(others, fmt.Sprintf("%s of domain %d", file, domain))
		}
	}
	return others
}
