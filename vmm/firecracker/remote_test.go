package firecracker

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/confine"
	"github.com/custody-project/custody/vmm/remote/remotetest"
)

func work() error {
	return remotetest.Work(func(c *privsep.Conn) vmm.Driver { return NewRemote(c) })
}

// bothEnds runs a test with a machine that its own process controls, and with one that a worker does.
func bothEnds(t *testing.T, fault string, test func(t *testing.T, c remotetest.Control, m vmm.Machine)) {
	t.Run("in one process", func(t *testing.T) {
		d, m := player(t, fault)
		test(t, &remotetest.Local{Driver: d, Machine: m}, m)
	})
	t.Run("in a worker", func(t *testing.T) {
		d, m := player(t, fault)
		test(t, remotetest.Start(t, d.NewServer(m)), m)
	})
}

// TestRemoteEnds: a machine ends with its server, the worker gets the reason, and nothing is left.
func TestRemoteEnds(t *testing.T) {
	d, m := player(t, "none")
	ok(t, confine.Sweep())
	s := d.NewServer(m)
	w := remotetest.Start(t, s)
	before := traces(t, m)
	ok(t, w.Start(t.Context(), time.Minute))
	ok(t, s.Close())
	if err := w.Do(t.Context(), "died"); err == nil || !strings.Contains(err.Error(), "firecracker ended by itself: signal: killed") {
		t.Error(err)
	}
	checkLeft(t, m, before)
}

// TestHostileWorker: a worker that was taken over reaches its own machine's sockets and memory, and nothing else.
func TestHostileWorker(t *testing.T) {
	d, m := player(t, "none")
	w := remotetest.Start(t, d.NewServer(m))
	fails := func(name, body, want string) {
		t.Helper()
		files, err := w.Raw(t.Context(), name, body)
		if err == nil || !strings.Contains(err.Error(), want) || len(files) > 0 {
			t.Errorf("%s %s: %v, %d files, want %q", name, body, err, len(files), want)
		}
	}
	for _, name := range []string{"vm-dial", "vm-memory", "vm-saved", "vm-kill", "vm-remove", "vm-quote", "vm-wait"} {
		body := `{}`
		if name == "vm-dial" {
			body = `{"Socket":"/api.sock"}`
		}
		fails(name, body, "has not been started")
	}
	ok(t, w.Start(t.Context(), time.Minute))
	fails("vm-start", `{}`, "started or removed already")
	for _, path := range []string{"", "/", "api.sock", "/scratch", "/../api.sock", "//api.sock", "/api.sock/", "/proc/1/environ", "/run/dbus/system_bus_socket", "\\u0000", strings.Repeat("a", 10000)} {
		fails("vm-dial", `{"Socket":"`+path+`"}`, "firecracker has no socket")
	}
	fails("vm-dial", `{"Socket":"/api.sock","Uid":0}`, "unknown field")
	fails("vm-dial", `["/api.sock"]`, "cannot unmarshal")
	fails("vm-saved", `{}`, errNotSaved.Error())
	files, err := w.Raw(t.Context(), "vm-memory", `{}`)
	ok(t, err)
	if maps, err := io.ReadAll(files[0]); err != nil || !bytes.Contains(maps, []byte(filepath.Base(os.Args[0]))) {
		t.Errorf("the mappings are not the player's: %q, %v", maps, err)
	}
	for _, f := range files {
		if mode, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0); err != nil || mode&unix.O_ACCMODE != unix.O_RDONLY {
			t.Errorf("%s can be written: %#x, %v", f.Name(), mode, err)
		}
		f.Close()
	}
	ok(t, w.Do(t.Context(), "destroy"))
	fails("vm-dial", `{"Socket":"/api.sock"}`, "was removed")
	fails("vm-start", `{}`, "started or removed already")
}

// TestRunsAs: the line of a process's uids is found whatever its name is.
func TestRunsAs(t *testing.T) {
	for status, want := range map[string]bool{
		"Name:\tx\nUid:\t7\t7\t7\t7\n":                         true,
		"Name:\tUid:\t7\nUid:\t7\t7\t7\t0\n":                   false,
		"Name:\tUid:\\n\nUid:\t0\t0\t0\t0\nUid:\t7\t7\t7\t7\n": false,
		"Uid:\t77\t77\t77\t77\n":                               false,
		"":                                                     false,
	} {
		if got := runsAs(status, 7); got != want {
			t.Errorf("%q: %v", status, got)
		}
	}
}
