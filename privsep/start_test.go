package privsep_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/privsep/privseptest"
	"github.com/custody-project/custody/vmm/confine"
)

func TestMain(m *testing.M) {
	switch mode := privseptest.Mode(); mode {
	case "":
		if os.Getenv("CUSTODY_TEST_PARENT") != "" {
			parent()
		}
		os.Exit(m.Run())
	default:
		if err := work(mode); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
	}
}

// work is what a worker of these tests does.
func work(mode string) error {
	socket, err := unix.Dup(3)
	if err != nil {
		return err
	}
	c, _, err := privsep.Enter(map[string]privsep.Handler{
		"attempt": privsep.Handle(func(_ context.Context, a attempt) (any, []*os.File, error) {
			return fmt.Sprint(attempts[a.Name](a.PID, a.Path)), nil, nil
		}),
		"id": privsep.Handle(func(context.Context, struct{}) (any, []*os.File, error) { return os.Getuid(), nil, nil }),
		"write": privsep.Handle(func(_ context.Context, path string) (any, []*os.File, error) {
			return struct{}{}, nil, os.WriteFile(path, []byte("written"), 0o600)
		}),
	}, 0)
	if err == nil && mode == "garbage" {
		_, err = unix.Write(socket, []byte("garbage"))
	}
	if err != nil {
		return err
	}
	return c.Run(context.Background())
}

// abstract is a unix socket without a path, which any process in the network namespace could reach.
const abstract = "@custody-privsep-test"

type attempt struct {
	Name string
	PID  int    // of the process that started the worker
	Path string // of a file of root
}

// attempts are what a worker that was taken over could try. Each returns nil if it succeeded.
var attempts = map[string]func(pid int, path string) error{
	"execute the program":   func(int, string) error { return unix.Exec("/custody", []string{"custody"}, nil) },
	"become root":           func(int, string) error { return unix.Setuid(0) },
	"become another worker": func(int, string) error { return unix.Setuid(0x43_000fff) },
	"read a file of root":   func(_ int, path string) error { _, err := os.ReadFile(path); return err },
	"read the host's users": func(int, string) error { _, err := os.ReadFile("/etc/passwd"); return err },
	"list processes":        func(int, string) error { _, err := os.ReadDir("/proc"); return err },
	"write to the root":     func(int, string) error { return os.WriteFile("/new", nil, 0o600) },
	"write to the program":  func(int, string) error { _, err := os.OpenFile("/custody", os.O_WRONLY, 0); return err },
	"signal its parent":     func(pid int, _ string) error { return unix.Kill(pid, unix.SIGTERM) },
	"signal everyone":       func(int, string) error { return unix.Kill(-1, unix.SIGTERM) },
	"trace its parent":      func(pid int, _ string) error { return unix.PtraceAttach(pid) },
	"mount":                 func(int, string) error { return unix.Mount("x", "/", "tmpfs", 0, "") },
	"make a user namespace": func(int, string) error { return unix.Unshare(unix.CLONE_NEWUSER) },
	"make a network":        func(int, string) error { return unix.Unshare(unix.CLONE_NEWNET) },
	"enter a namespace":     func(int, string) error { return unix.Setns(0, unix.CLONE_NEWNET) },
	"a raw socket": func(int, string) error {
		_, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
		return err
	},
	"a packet socket":      func(int, string) error { _, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0); return err },
	"a socket of the host": func(int, string) error { _, err := net.Dial("unix", abstract); return err },
	"the netlink of nftables": func(int, string) error {
		_, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER)
		return err
	},
	"a vsock socket":         func(int, string) error { _, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0); return err },
	"mark a socket":          markSocket,
	"a port below 1024":      func(int, string) error { _, err := net.Listen("tcp", "127.0.0.1:999"); return err },
	"make an eBPF map":       func(int, string) error { return bpfCall(0) },
	"load an eBPF program":   func(int, string) error { return bpfCall(5) },
	"open an eBPF map by ID": func(int, string) error { return bpfCall(14) },
	"keys": func(int, string) error {
		_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, true)
		return err
	},
	"io_uring":                     func(int, string) error { _, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, 0, 0); return orNil(e) },
	"userfaultfd":                  func(int, string) error { _, _, e := unix.Syscall(unix.SYS_USERFAULTFD, 0, 0, 0); return orNil(e) },
	"the log of the kernel":        func(int, string) error { _, err := unix.Klogctl(3, make([]byte, 10)); return err },
	"the host name":                func(int, string) error { return unix.Sethostname([]byte("x")) },
	"the clock":                    func(int, string) error { return unix.Settimeofday(&unix.Timeval{}) },
	"a device node":                func(int, string) error { return unix.Mknod("/dev/mem", unix.S_IFCHR|0o600, 0x101) },
	"keep a TAP":                   setDevice(unix.TUNSETPERSIST),
	"give a TAP away":              setDevice(unix.TUNSETOWNER),
	"a TAP's network namespace":    setDevice(unix.TUNGETDEVNETNS),
	"a socket's network namespace": setDevice(unix.SIOCGSKNS),
	"change a device's address":    setDevice(unix.SIOCSIFHWADDR),
	"change the root":              func(int, string) error { return unix.Chroot("/dev") },
}

// setDevice makes an ioctl whose result without the filter would be that the descriptor is no device.
func setDevice(command uintptr) func(int, string) error {
	return func(int, string) error {
		_, _, e := unix.Syscall(unix.SYS_IOCTL, 3, command, 0)
		if e == unix.EPERM {
			return e
		}
		return nil
	}
}

func orNil(e syscall.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

func bpfCall(command uintptr) error {
	var attr [128]byte
	attr[0], attr[4], attr[8], attr[12] = 2, 4, 4, 1 // an array of one value of 4 bytes
	_, _, e := unix.Syscall(unix.SYS_BPF, command, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	return orNil(e)
}

func markSocket(int, string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil // the test needs one
	}
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, 1)
}

// TestAttempts: a worker can do none of what a process that was taken over would do next.
func TestAttempts(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", abstract)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := privseptest.Start(t, privseptest.Worker("work"), nil)
	for name := range attempts {
		var got string
		if _, err := p.Call(t.Context(), "attempt", attempt{name, os.Getpid(), secret}, &got); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got == "<nil>" {
			t.Errorf("a worker can: %s", name)
		}
	}
	var uid int
	if _, err := p.Call(t.Context(), "id", struct{}{}, &uid); err != nil || uid != p.UID() || uid < 1<<20 {
		t.Errorf("it runs as uid %d, %v", uid, err)
	}
}

// TestBinds: a worker can write where it is allowed to, and only there.
func TestBinds(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	w := privseptest.Worker("work")
	w.Binds = append(w.Binds, confine.Bind{Path: dir, Name: "/run", Flags: unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC})
	w.Prepare = func(uid int) error { return os.Chown(dir, uid, uid) }
	p := privseptest.Start(t, w, nil)
	if _, err := p.Call(t.Context(), "write", "/run/file", nil); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(b) != "written" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := p.Call(t.Context(), "write", filepath.Join(other, "file"), nil); err == nil {
		t.Error("it wrote to another directory")
	}
	w.Binds = []confine.Bind{{Path: filepath.Join(dir, "missing")}}
	if _, err := w.Start(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "missing into the jail") {
		t.Errorf("a path that is missing: %v", err)
	}
}

// TestGarbage: a worker that violates the protocol is reported.
func TestGarbage(t *testing.T) {
	p, err := privseptest.Worker("garbage").Start(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Call(t.Context(), "id", struct{}{}, nil); !errors.Is(err, privsep.ErrClosed) {
		t.Error(err)
	}
	if err := p.Close(); err == nil || !strings.Contains(err.Error(), "message of the other process") {
		t.Error(err)
	}
}

// TestNothingIsLeft: a worker that ends, or is killed, leaves neither its uid nor its control group.
func TestNothingIsLeft(t *testing.T) {
	for name, end := range map[string]func(*privsep.Process) error{
		"closed": func(p *privsep.Process) error { return nil },
		"killed": func(p *privsep.Process) error {
			pids, err := exec.Command("pgrep", "-U", strconv.Itoa(p.UID())).Output()
			if err != nil {
				return err
			}
			pid, err := strconv.Atoi(strings.TrimSpace(string(pids)))
			if err != nil {
				return err
			}
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				return err
			}
			<-p.Done()
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := privseptest.Worker("work").Start(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			uid := p.UID()
			if err := errors.Join(end(p), p.Close()); err != nil {
				t.Error(err)
			}
			if _, err := p.Call(t.Context(), "id", struct{}{}, nil); !errors.Is(err, privsep.ErrClosed) {
				t.Error(err)
			}
			checkGone(t, uid)
		})
	}
}

// checkGone waits until nothing is left of a worker's uid: concurrent tests of other packages can lease it meanwhile.
func checkGone(t *testing.T, uid int) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		left := leftOf(uid)
		if left == "" {
			return
		}
		if time.Since(began) > 2*time.Minute {
			t.Errorf("of uid %d is left: %s", uid, left)
			return
		}
	}
}

// leftOf names what there is of a uid.
func leftOf(uid int) string {
	if out, err := exec.Command("pgrep", "-U", strconv.Itoa(uid)).Output(); err == nil {
		return "processes " + string(out)
	}
	if confine.HasGroup(uid) {
		return "its control group"
	}
	if _, err := os.Stat("/run/custody/uid/" + strconv.Itoa(uid)); err == nil {
		return "its lease"
	}
	return ""
}

// parent starts a worker, prints its uid and waits to be killed.
func parent() {
	os.Unsetenv("CUSTODY_TEST_PARENT")
	p, err := privseptest.Worker("work").Start(context.Background(), nil)
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	fmt.Println(p.UID())
	time.Sleep(time.Minute)
	os.Exit(1)
}

// TestParentKilled: a worker ends with the process that started it, and the next start cleans up.
func TestParentKilled(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "CUSTODY_TEST_PARENT=1")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	line, err := bufio.NewReader(out).ReadString('\n')
	uid, convErr := strconv.Atoi(strings.TrimSpace(line))
	if err := errors.Join(err, convErr); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	for exec.Command("pgrep", "-U", strconv.Itoa(uid)).Run() == nil {
		time.Sleep(10 * time.Millisecond) // the test's own time limit ends this
	}
	if err := confine.Sweep(); err != nil {
		t.Error(err)
	}
	checkGone(t, uid)
}

// TestEnterNeedsStart: a process that Worker.Start did not start, which may have privileges, parses nothing.
func TestEnterNeedsStart(t *testing.T) {
	if _, _, err := privsep.Enter(nil, 0); err == nil || !strings.Contains(err.Error(), "the worker") {
		t.Error(err)
	}
}
