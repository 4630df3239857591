package firecracker_test

import (
	"strings"
	"testing"

	"github.com/custody-project/custody/vmm/vmtest"
)

// TestRestored: a program runs in a machine that was restored from a snapshot.
func TestRestored(t *testing.T) {
	vmtest.Firecracker(t)
	m := vmtest.Restore(t, vmtest.Options{})
	if out := m.Bash("echo $((6*7)); uname -r"); !strings.HasPrefix(out, "42\n") {
		t.Errorf("output %q", out)
	}
}
