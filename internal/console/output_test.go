package console

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWriteJSONLines: one line for each element, until writing fails.
func TestWriteJSONLines(t *testing.T) {
	var out strings.Builder
	list := []map[string]string{{"a": "1\n2"}, {"b": "3"}}
	if err := WriteJSONLines(&out, list); err != nil || out.String() != `{"a":"1\n2"}`+"\n"+`{"b":"3"}`+"\n" {
		t.Errorf("%v: %q", err, out.String())
	}
	out.Reset()
	unsupported := new(json.UnsupportedTypeError)
	if err := WriteJSONLines(&out, []any{1, func() {}, 2}); !errors.As(err, &unsupported) || out.String() != "1\n" {
		t.Errorf("%v: %q", err, out.String())
	}
}

// TestForbidCores: neither the process nor one that it starts leaves a core file.
func TestForbidCores(t *testing.T) {
	const child = "CUSTODY_TEST_FORBID_CORES"
	if os.Getenv(child) == "" { // in a process of its own, since it cannot be undone
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestForbidCores$", "-test.count=1")
		c.Env = append(os.Environ(), child+"=1")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return
	}
	if err := ForbidCores(); err != nil {
		t.Fatal(err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &limit); err != nil || limit != (unix.Rlimit{}) {
		t.Errorf("the limit is %+v: %v", limit, err)
	}
	if dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || dumpable != 0 {
		t.Errorf("dumpable is %d: %v", dumpable, err)
	}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", "ulimit -c; ulimit -Hc").Output()
	if err != nil || string(out) != "0\n0\n" {
		t.Errorf("a process that it started has the limits %q: %v", out, err)
	}
}
