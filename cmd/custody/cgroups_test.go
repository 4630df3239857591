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
