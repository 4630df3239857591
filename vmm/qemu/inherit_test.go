package qemu

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/confine"
)

// inheritEnv is set for the process that TestKeyring starts: this test program again, with a session keyring.
const inheritEnv = "CUSTODY_TEST_KEYRING"

// TestKeyring: a process in a jail does not have the keys of the session that Custody was started in.
func TestKeyring(t *testing.T) {
	if os.Getenv(inheritEnv) != "" {
		checkKeyringInJail(t)
		return
	}
	made := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the keyring ends with the thread
		made <- func() error {
			if _, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0); err != nil {
				return fmt.Errorf("make a session: %w", err)
			}
			if _, err := unix.AddKey("user", "custody-test", []byte("a ticket"), unix.KEY_SPEC_SESSION_KEYRING); err != nil {
				return fmt.Errorf("add a key: %w", err)
			}
			cmd := exec.Command(os.Args[0], "-test.run=^TestKeyring$", "-test.v")
			cmd.Env = append(os.Environ(), inheritEnv+"=1")
			out, err := cmd.CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w\n%s", err, out)
			}
			return nil
		}()
	}()
	ok(t, <-made)
}

// checkKeyringInJail runs in a session that has a key.
func checkKeyringInJail(t *testing.T) {
	if _, err := unix.KeyctlSearch(unix.KEY_SPEC_SESSION_KEYRING, "user", "custody-test", 0); err != nil {
		t.Fatalf("the session does not have the key that it should have: %v", err)
	}
	script := fmt.Sprintf(`my ($type, $key) = ("user", "custody-test"); print syscall(%d, %d, %d, $type, $key, 0) < 0 ? "none" : "HAS IT", "\n"`,
		unix.SYS_KEYCTL, unix.KEYCTL_SEARCH, unix.KEY_SPEC_SESSION_KEYRING)
	if output := runInJail(t, "/usr/bin/perl", "-e", script); !strings.HasSuffix(output, "none\n") {
		t.Errorf("the key in the session: %s", output)
	}
	if _, err := unix.KeyctlSearch(unix.KEY_SPEC_SESSION_KEYRING, "user", "custody-test", 0); err != nil {
		t.Errorf("this process has lost its session: %v", err)
	}
}

// runInJail runs a program in a jail and returns its output.
func runInJail(t *testing.T, binary string, args ...string) string {
	t.Helper()
	l, err := confine.LeaseUID()
	ok(t, err)
	defer l.Release()
	r, w, err := os.Pipe()
	ok(t, err)
	defer r.Close()
	p, err := jail{uid: l.UID(), binary: binary, args: args, stdout: w, stderr: w}.start()
	w.Close()
	ok(t, err)
	output, err := io.ReadAll(r)
	ok(t, err)
	<-p.waited
	return string(output)
}

// TestMaxFileSize: a process in a jail cannot write files beyond its size limit, and writes no core file.
func TestMaxFileSize(t *testing.T) {
	l, err := confine.LeaseUID()
	ok(t, err)
	defer l.Release()
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "disk"), os.O_CREATE|os.O_RDWR, 0o600)
	ok(t, err)
	defer f.Close()
	begin, let, err := os.Pipe()
	ok(t, err)
	defer let.Close()
	defer begin.Close()
	r, w, err := os.Pipe()
	ok(t, err)
	defer r.Close()
	const most = 1 << 20
	script := `read <&4; echo core $(ulimit -Hc); printf '%0*d' 4000000 0 >&3 && echo written`
	p, err := jail{uid: l.UID(), binary: "/usr/bin/bash", args: []string{"-c", script}, files: []*os.File{f, begin}, stdout: w, stderr: w, maxFile: most}.start()
	w.Close()
	ok(t, err)
	fmt.Fprintln(let)
	output, err := io.ReadAll(r)
	ok(t, err)
	<-p.waited
	if info, err := f.Stat(); err != nil || info.Size() > most {
		t.Errorf("it wrote %d bytes, at most %d, %v", info.Size(), most, err)
	}
	if !strings.Contains(string(output), "core 0") || strings.Contains(string(output), "written") {
		t.Errorf("output %q", output)
	}
}

func TestMaxFileSizeOfMachine(t *testing.T) {
	disk, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	ok(t, err)
	defer disk.Close()
	ok(t, disk.Truncate(4<<30))
	for _, tt := range []struct {
		m    vmm.Machine
		want int64
	}{
		{vmm.Machine{Memory: 16 << 20}, maxState},
		{vmm.Machine{Memory: 512 << 20}, 512 << 20},
		{vmm.Machine{Memory: 512 << 20, Scratch: disk}, 4 << 30},
		{vmm.Machine{Memory: 8 << 30, Scratch: disk}, 8 << 30},
	} {
		if got, err := maxFileSize(tt.m); err != nil || got != tt.want {
			t.Errorf("%d MiB of memory: %d, %v, want %d", tt.m.Memory>>20, got, err, tt.want)
		}
	}
}
