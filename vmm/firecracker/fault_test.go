package firecracker

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/privsep/privseptest"
	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/confine"
	"github.com/custody-project/custody/vmm/remote/remotetest"
)

// playEnv makes the test program play a jailer with Firecracker behind it, with this fault.
const playEnv = "CUSTODY_TEST_PLAY"

func TestMain(m *testing.M) {
	if fault := os.Getenv(playEnv); fault != "" {
		if err := play(fault, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "player:", err)
		}
		os.Exit(3)
	}
	privseptest.Main(m, work)
}

// play does what a jailer does with these arguments, as far as a driver notices, and then answers the API.
func play(fault string, args []string) error {
	value := func(flag string) string { return args[slices.Index(args, flag)+1] }
	root := filepath.Join(value("--chroot-base-dir"), filepath.Base(value("--exec-file")), value("--id"), "root")
	uid, err := strconv.Atoi(value("--uid"))
	if err != nil {
		return err
	}
	switch fault {
	case "exits":
		return errors.New("no such luck")
	case "killed":
		return unix.Kill(os.Getpid(), unix.SIGKILL)
	case "silent":
		time.Sleep(time.Minute)
	}
	if err := errors.Join(os.Chown(root, uid, uid), os.Chdir(root)); err != nil {
		return err
	}
	if fault != "another user" {
		if err := errors.Join(syscall.Setgid(uid), syscall.Setuid(uid)); err != nil {
			return err
		}
	}
	if target, ok := strings.CutPrefix(fault, "link to "); ok {
		if err := os.Symlink(target, "api.sock"); err != nil {
			return err
		}
		time.Sleep(time.Minute)
	}
	l, err := net.Listen("unix", "api.sock")
	if err != nil {
		return err
	}
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(fault, w, r) }))
}

func answer(fault string, w http.ResponseWriter, r *http.Request) {
	switch {
	case fault == "hangs":
		time.Sleep(time.Minute)
	case fault == "garbage":
		fmt.Fprint(w, "\x00\xff")
	case r.Method == http.MethodGet:
		fmt.Fprint(w, `{"firecracker_version":"1.17.0"}`)
	case fault == "refuses":
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"fault_message":"not today"}`)
	case fault == "dies in between":
		os.Exit(9)
	default:
		w.WriteHeader(http.StatusNoContent)
		if fault == "dies later" && r.Method == http.MethodPatch {
			time.AfterFunc(100*time.Millisecond, func() { unix.Kill(os.Getpid(), unix.SIGKILL) })
		}
	}
}

// player returns a driver whose jailer is this test program, and a machine to restore.
func player(t *testing.T, fault string) (*Driver, vmm.Machine) {
	t.Helper()
	dir := t.TempDir()
	ok(t, os.Chmod(dir, 0o755))
	self, err := os.Executable()
	ok(t, err)
	jailer := program(t, "jailer", fmt.Sprintf("exec env %s='%s' GOCOVERDIR=/ %s \"$@\"\n", playEnv, fault, self))
	d := &Driver{paths: Paths{Firecracker: program(t, "firecracker", ""), Jailer: jailer}, version: unpacked}
	open := func(name string) *os.File {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR, 0o644)
		ok(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
	scratch, err := os.OpenFile(dir, unix.O_TMPFILE|os.O_RDWR, 0o600)
	ok(t, err)
	t.Cleanup(func() { scratch.Close() })
	img := vmm.Image{Root: open("root"), Memory: open("memory"), State: open("state")}
	return d, vmm.Machine{ID: "test", Image: img, CPUs: 1, Memory: 64 << 20, Scratch: scratch}
}

// traces are what machines leave on the host: leases, control groups, directories of jails, names of scratch disks.
func traces(t *testing.T, m vmm.Machine) []string {
	t.Helper()
	dir := filepath.Dir(m.Image.Root.Name())
	var all []string
	for _, pattern := range []string{"/run/custody/uid/*", "/sys/fs/cgroup/*/custody/[0-9]*", "/sys/fs/cgroup/custody/[0-9]*", jailBase + "/*", dir + "/.custody-*"} {
		found, err := filepath.Glob(pattern)
		ok(t, err)
		all = append(all, found...)
	}
	return all
}

// checkLeft fails the test if something is left of a machine that was not there before it. Machines of other tests on this host come and go.
func checkLeft(t *testing.T, m vmm.Machine, before []string) {
	t.Helper()
	left := traces(t, m)
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		now := traces(t, m)
		left = slices.DeleteFunc(left, func(path string) bool { return slices.Contains(before, path) || !slices.Contains(now, path) })
		if len(left) == 0 {
			return
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("left: %q", left)
		}
	}
}

// TestFaults: whatever a Firecracker does instead of starting, the error gives the reason, and nothing is left.
func TestFaults(t *testing.T) {
	for fault, want := range map[string]string{
		"exits":           "no such luck",
		"killed":          "signal: killed",
		"silent":          "did not open its API's socket",
		"hangs":           "GET /version: context deadline exceeded",
		"garbage":         "unreadable answer",
		"refuses":         `PUT /snapshot/load: status 400: "not today"`,
		"dies in between": "exit status 9",
		"another user":    "belongs to a process of uid 0",
	} {
		t.Run(fault, func(t *testing.T) {
			bothEnds(t, fault, func(t *testing.T, c remotetest.Control, m vmm.Machine) {
				ok(t, confine.Sweep())
				before := traces(t, m)
				began := time.Now()
				err := c.Start(t.Context(), 3*time.Second)
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %q", err, want)
				}
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("after %v", took)
				}
				checkLeft(t, m, before)
			})
		})
	}
}

// TestSocketIsLink: Custody does not follow a link in the place of Firecracker's socket.
func TestSocketIsLink(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	ok(t, err)
	defer l.Close()
	bothEnds(t, "link to "+path, func(t *testing.T, c remotetest.Control, _ vmm.Machine) {
		if err := c.Start(t.Context(), 3*time.Second); err == nil || !strings.Contains(err.Error(), "did not open its API's socket") {
			t.Errorf("%v", err)
		}
	})
	l.(*net.UnixListener).SetDeadline(time.Now())
	if conn, err := l.Accept(); err == nil {
		conn.Close()
		t.Error("the socket of another process was connected")
	}
}

// TestDiesLater: the end of a running machine is noticed, with its reason.
func TestDiesLater(t *testing.T) {
	bothEnds(t, "dies later", func(t *testing.T, c remotetest.Control, _ vmm.Machine) {
		ok(t, c.Start(t.Context(), time.Minute))
		ok(t, c.Do(t.Context(), "thaw"))
		if err := c.Do(t.Context(), "died"); err == nil || !strings.Contains(err.Error(), "signal: killed") {
			t.Errorf("%v", err)
		}
		if err := c.Do(t.Context(), "read"); err == nil {
			t.Error("its channel can be read")
		}
		ok(t, c.Do(t.Context(), "destroy"))
	})
}

// TestLeftoverJail: what an earlier machine, or another user, has put at the paths of a jail on the host is not used.
func TestLeftoverJail(t *testing.T) {
	d, m := player(t, "none")
	l, err := confine.LeaseUID()
	ok(t, err)
	next := l.UID() // the uid that the machine gets
	l.Release()
	stale := filepath.Join(jailBase, "firecracker", strconv.Itoa(next), "root")
	ok(t, os.MkdirAll(stale, 0o777))
	t.Cleanup(func() { os.RemoveAll(filepath.Join(jailBase, "firecracker")) })
	for _, name := range []string{apiSocket, vsockSocket} {
		s, err := net.Listen("unix", filepath.Join(stale, name))
		ok(t, err)
		defer s.Close()
	}
	v, err := d.Start(t.Context(), m)
	ok(t, err)
	ok(t, v.Thaw(t.Context()))
	ok(t, v.Freeze(t.Context()))
	ok(t, v.Destroy(t.Context()))
}

// TestKilledWhileNamed: if Custody is killed while the scratch disk has a name, Sweep removes the name.
func TestKilledWhileNamed(t *testing.T) {
	dir := t.TempDir()
	f, err := os.OpenFile(dir, unix.O_TMPFILE|os.O_RDWR, 0o600)
	ok(t, err)
	defer f.Close()
	l, err := confine.LeaseUID()
	ok(t, err)
	_, err = confine.NewGroup(l.UID(), 1, 64<<20)
	ok(t, err)
	named, err := l.Name(f)
	ok(t, err)
	named.Close()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Fatalf("the disk has no name: %v, %v", entries, err)
	}
	l.Abandon() // as the end of the process would
	ok(t, confine.Sweep())
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}
