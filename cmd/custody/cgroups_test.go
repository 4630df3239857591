package main

import (
	"os/exec"
	"testing"
)

// TestHiddenGroups: a run starts where /sys was mounted again over the host's
// control groups, as `ip netns exec` does it.
func TestHiddenGroups(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	cmd := d.command("run", "--", "sh", "-c", "echo hi; exit 3")
	hidden := exec.Command("unshare", append([]string{"--mount", "sh", "-ec", `umount -l /sys; mount -t sysfs sys /sys; exec "$@"`, "sh"}, cmd.Args...)...)
	hidden.Env, hidden.Dir = cmd.Env, cmd.Dir
	if s := d.exited(3, d.finish(hidden)); s.stdout != "hi\n" {
		t.Errorf("the command said %q", s.stdout)
	}
}

func TestHierarchies(t *testing.T) {
	got := hierarchies("#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpuset\t0\t1\t1\ncpu\t3\t4\t1\ncpuacct\t3\t4\t1\nmemory\t5\t4\t1\n")
	if len(got) != 3 || got["cpu"] != "cpu,cpuacct" || got["cpuacct"] != "cpu,cpuacct" || got["memory"] != "memory" {
		t.Errorf("together: %v", got)
	}
}
