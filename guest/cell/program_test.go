package cell

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/internal/seccomp"
)

// These tests run programs on this machine, as root, without a VM; what a
// whole cell withstands is tested inside one, with testdata/probes.sh.

func execute1(p *program, argv ...string) {
	p.add(execute, candidate, unix.SYS_EXECVE, []any{argv[0], argv, []string{"A=b"}})
}

func exitCode(t *testing.T, p process) int {
	t.Helper()
	ws := p.wait()
	if !ws.Exited() {
		t.Fatalf("wait status %#x", ws)
	}
	return ws.ExitStatus()
}

func TestProgramRuns(t *testing.T) {
	dir := t.TempDir()
	p := &program{}
	p.try("no such call", 100000)
	p.call("enter", unix.SYS_CHDIR, dir)
	execute1(p, "/no/such/file")
	execute1(p, "/bin/sh", "-c", `[ "$A" = b ] && pwd > out && exit 7`)
	proc, err := p.start(0, -1)
	if err != nil {
		t.Fatal(err)
	}
	if code := exitCode(t, proc); code != 7 {
		t.Fatalf("exit code %d", code)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "out")); strings.TrimSpace(string(b)) != dir {
		t.Fatalf("ran in %q", b)
	}
}

func TestProgramFails(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		paths []string
		dir   string
		step  string
		errno error
	}{
		"no directory":      {[]string{"/bin/true"}, "/no/such", "enter", unix.ENOENT},
		"not found":         {[]string{"/no/a", "/bin/true/b", "/no/c"}, "/", execute, unix.ENOENT},
		"not executable":    {[]string{"/no/a", plain, "/no/c"}, "/", execute, unix.EACCES},
		"only not found":    {[]string{"/no/a"}, "/", execute, unix.ENOENT},
		"a directory":       {[]string{"/tmp"}, "/", execute, unix.EACCES},
		"file as directory": {[]string{"/bin/true"}, plain, "enter", unix.ENOTDIR},
	} {
		p := &program{}
		p.call("enter", unix.SYS_CHDIR, tt.dir)
		for _, path := range tt.paths {
			execute1(p, path)
		}
		_, err := p.start(0, -1)
		var failed *callError
		if !errors.As(err, &failed) || failed.name != tt.step || failed.errno != tt.errno {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// first starts the process that holds a pid namespace.
func first(t *testing.T) process {
	t.Helper()
	fd, err := reaperFile()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte("x")); err != unix.EPERM {
		t.Errorf("the sealed executable could be written: %v", err)
	}
	b := &Block{reaper: fd}
	p := &program{}
	b.holdNamespace(p)
	proc, err := p.start(unix.CLONE_NEWPID|unix.CLONE_NEWNS, -1)
	if err != nil {
		t.Fatal(err)
	}
	return proc
}

func TestReaperReaps(t *testing.T) {
	f := first(t)
	pipes, err := openPipes()
	if err != nil {
		t.Fatal(err)
	}
	defer pipes.closeOurs()
	p := &program{}
	p.call("enter", unix.SYS_SETNS, f.pidfd, unix.CLONE_NEWNS)
	main, err := p.startSleeper(-1, f.pidfd, pipes.theirs, false)
	pipes.closeTheirs()
	if err != nil {
		t.Fatal(err)
	}
	p = &program{}
	p.call("unblock signals", unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, unsafe.Pointer(new(uint64)), 0, 8)
	// An orphan that ends immediately; then, as the only child left, one that is killed with the namespace.
	execute1(p, "/bin/sh", "-c", "(sleep 0.05 & sleep 1000 & echo $$); exit 3")
	if err := main.run(p); err != nil {
		t.Fatal(err)
	}
	if code := exitCode(t, main.process); code != 3 {
		t.Fatalf("exit code %d", code)
	}
	waitFor(t, func() bool { return strings.Count(children(f.pid), " ") == 1 })
	if err := unix.Kill(f.pid, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
	if _, err := os.Stat(fmt.Sprintf("/proc/%d/stat", f.pid)); err != nil || strings.Contains(status(f.pid), "Z (zombie)") {
		t.Fatal("the first process can be ended by a signal other than KILL")
	}
	orphan := strings.Fields(children(f.pid))[0]
	unix.Kill(f.pid, unix.SIGKILL)
	f.wait()
	if _, err := os.Stat("/proc/" + orphan); err == nil {
		t.Fatal("a process outlived its namespace")
	}
}

func children(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	return string(b)
}

func status(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return string(b)
}

func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	for range 6000 {
		if done() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("waited in vain")
}

// Children that sleep must neither keep pipes of others open nor be hurt by a busy garbage collector.
func TestSleepers(t *testing.T) {
	f := first(t)
	defer f.wait()
	defer unix.Kill(f.pid, unix.SIGKILL)
	var wg sync.WaitGroup
	for i := range 20 {
		pipes, err := openPipes()
		if err != nil {
			t.Fatal(err)
		}
		main, err := (&program{}).startSleeper(-1, f.pidfd, pipes.theirs, false)
		pipes.closeTheirs()
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer pipes.closeOurs()
			var waste [][]byte
			for range 200 {
				waste = append(waste, make([]byte, 10000))
			}
			p := &program{}
			execute1(p, "/bin/sh", "-c", fmt.Sprintf("ls /proc/self/fd | wc -l; exit %d", i+len(waste)-200))
			if err := main.run(p); err != nil {
				t.Error(err)
				return
			}
			out := make([]byte, 100)
			n, _ := pipes.stdout.Read(out)
			if code := exitCode(t, main.process); code != i || strings.TrimSpace(string(out[:n])) != "4" {
				t.Errorf("child %d: exit code %d, descriptors %q", i, code, out[:n])
			}
		})
	}
	wg.Wait()
}

func TestSleeperKilled(t *testing.T) {
	f := first(t)
	defer f.wait()
	defer unix.Kill(f.pid, unix.SIGKILL)
	pipes, err := openPipes()
	if err != nil {
		t.Fatal(err)
	}
	defer pipes.closeOurs()
	main, err := (&program{}).startSleeper(-1, f.pidfd, pipes.theirs, false)
	pipes.closeTheirs()
	if err != nil {
		t.Fatal(err)
	}
	unix.Kill(main.pid, unix.SIGKILL)
	p := &program{}
	execute1(p, "/bin/true")
	// Either the pipe reports that it is closed, or the command was killed immediately.
	if err := main.run(p); err == nil {
		if ws := main.wait(); !ws.Signaled() || ws.Signal() != unix.SIGKILL {
			t.Fatalf("a killed process was woken: wait status %#x", ws)
		}
	}
}

func TestCandidates(t *testing.T) {
	for _, tt := range []struct {
		argv0, path string
		want        string
	}{
		{"/bin/x", "/a:/b", "/bin/x"},
		{"./x", "/a", "./x"},
		{"x", "PATH=/a:/b", "/a/x /b/x"},
		{"x", "PATH=", "x"},
		{"x", "HOME=/", strings.ReplaceAll(DefaultPath, ":", "/x ") + "/x"},
	} {
		got := candidates(channel.Command{Argv: []string{tt.argv0}, Env: []string{tt.path}})
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%q in %q: %q", tt.argv0, tt.path, got)
		}
	}
}

// The filter against a slow oracle: the lists that it is made of, evaluated for every number and the relevant arguments.
func TestFilter(t *testing.T) {
	raw, err := filter()
	if err != nil {
		t.Fatal(err)
	}
	decoded, all := bpf.Disassemble(raw)
	if !all {
		t.Fatal("filter does not disassemble")
	}
	vm, err := bpf.NewVM(decoded)
	if err != nil {
		t.Fatal(err)
	}
	for nr := uint32(0); nr < lastCall+100; nr++ {
		for _, args := range [][3]uint32{{}, {unix.AF_INET, 1, 0}, {unix.AF_NETLINK, 3, 0}, {unix.AF_NETLINK, 3, 9}, {unix.AF_VSOCK}, {unix.AF_PACKET}, {unix.CLONE_NEWUSER}, {unix.CLONE_NEWNS | 17}, {unix.CLONE_FILES},
			{3, unix.F_SETFL, unix.O_DIRECT}, {3, unix.F_SETFL, unix.O_APPEND}, {3, unix.F_GETFL, unix.O_DIRECT}, {3, unix.O_DIRECT | unix.O_RDWR, 0}, {3, 0, unix.O_DIRECT}} {
			if got, want := runFilter(t, vm, seccomp.Arch, nr, args), oracle(nr, args); got != want {
				t.Fatalf("call %d %v: got %#x, want %#x", nr, args, got, want)
			}
		}
	}
	if got := runFilter(t, vm, unix.AUDIT_ARCH_I386, 20, [3]uint32{}); got != seccomp.Kill {
		t.Errorf("32-bit call: %#x", got)
	}
	for _, nr := range []uint32{seccomp.X32Bit, seccomp.X32Bit + 39, 0xffffffff} {
		if got := runFilter(t, vm, seccomp.Arch, nr, [3]uint32{}); got != seccomp.Perm {
			t.Errorf("call %#x: %#x", nr, got)
		}
	}
}

func oracle(nr uint32, args [3]uint32) uint32 {
	for _, d := range seccomp.Administrative() {
		if nr == d {
			return seccomp.Perm
		}
	}
	switch {
	case nr > lastCall, nr == unix.SYS_CLONE3, nr == unix.SYS_OPENAT2:
		return seccomp.NoSys
	case nr == unix.SYS_OPENAT && args[2]&unix.O_DIRECT != 0,
		runtime.GOARCH == "amd64" && nr == 2 && args[1]&unix.O_DIRECT != 0, // open(2)
		nr == unix.SYS_FCNTL && args[1] == unix.F_SETFL && args[2]&unix.O_DIRECT != 0:
		return verdictInval
	case nr == unix.SYS_CLONE || nr == unix.SYS_UNSHARE:
		if args[0]&seccomp.NewNamespaces != 0 {
			return seccomp.Perm
		}
	case nr == unix.SYS_SOCKET:
		if d := args[0]; d != unix.AF_UNIX && d != unix.AF_INET && d != unix.AF_INET6 && !(d == unix.AF_NETLINK && args[2] == unix.NETLINK_ROUTE) {
			return verdictNoAF
		}
	}
	return seccomp.Allow
}

// runFilter gives the filter a struct seccomp_data. The bpf package reads big-endian words, the kernel native ones.
func runFilter(t *testing.T, vm *bpf.VM, arch, nr uint32, args [3]uint32) uint32 {
	t.Helper()
	data := make([]byte, 64)
	put := func(off int, v uint32) {
		data[off], data[off+1], data[off+2], data[off+3] = byte(v>>24), byte(v>>16), byte(v>>8), byte(v)
	}
	put(seccomp.OffsetNr, nr)
	put(seccomp.OffsetArch, arch)
	for i, a := range args {
		put(seccomp.OffsetArgs+8*i, a)
	}
	n, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(n)
}

func BenchmarkProgram(b *testing.B) {
	for b.Loop() {
		p := &program{}
		execute1(p, "/bin/true")
		proc, err := p.start(0, -1)
		if err != nil {
			b.Fatal(err)
		}
		proc.wait()
	}
}
