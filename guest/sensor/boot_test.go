package sensor

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The sensor's programs need a kernel that the test's host may not have, so
// the tests of what they see run inside a VM:
//
//	go test (host) -- TestInVM --> go test -c, static --> initramfs: /init is the test binary
//	                                                          |
//	console of the VM  <---- results ---- tests of vm_test.go, run by pid 1
//
// The kernel is Debian's linux-image-cloud-amd64, unpacked: $CUSTODY_KERNEL is
// the directory that holds its boot/ and lib/.

const passed = "custody-sensor-tests: passed"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "workload" {
		os.Exit(workload(os.Args[2:]))
	}
	if os.Getpid() != 1 {
		os.Exit(m.Run())
	}
	defer unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	if err := initialise(); err != nil {
		fmt.Println("init:", err)
		return
	}
	if m.Run() == 0 {
		fmt.Println(passed)
	}
}

// initialise does what the guest's init does before it loads the sensor.
func initialise() error {
	for _, m := range []struct{ kind, dir string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"},
		{"cgroup2", "/sys/fs/cgroup"}, {"tmpfs", "/tmp"},
	} {
		os.MkdirAll(m.dir, 0o755)
		if err := unix.Mount(m.kind, m.dir, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.dir, err)
		}
	}
	os.Setenv("PATH", "/usr/bin:/bin:/usr/sbin")
	list, err := os.ReadFile("/modules/list")
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(string(list)) {
		f, err := os.Open("/modules/" + name)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil {
			return fmt.Errorf("load %s: %w", name, err)
		}
	}
	return loopback()
}

// inVM skips on the host: TestInVM runs these.
func inVM(t testing.TB) {
	if os.Getpid() != 1 {
		t.Skip("runs inside the VM that TestInVM boots")
	}
}

var modules = []string{"virtio_ring", "virtio", "virtio_mmio", "virtio_blk", "libcrc32c", "erofs", "overlay"}

func TestInVM(t *testing.T) {
	if os.Getpid() == 1 {
		t.Skip("already inside")
	}
	kernel, err := findKernel()
	if err == nil {
		_, err = exec.LookPath("qemu-system-x86_64")
	}
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("the sensor cannot be tested: %v", err)
		}
		t.Skipf("the sensor cannot be tested: %v", err)
	}
	dir := t.TempDir()
	binary := filepath.Join(dir, "init")
	build := exec.Command("go", "test", "-c", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the test binary: %v\n%s", err, out)
	}
	initrd := filepath.Join(dir, "initrd")
	if err := writeInitrd(initrd, binary, kernel); err != nil {
		t.Fatal(err)
	}
	vmlinuz, _ := filepath.Glob(filepath.Join(kernel, "boot", "vmlinuz-*"))
	out := boot(t, vmlinuz[0], initrd)
	if !strings.Contains(out, passed) {
		t.Fatalf("tests inside the VM failed:\n%s", out)
	}
}

func boot(t *testing.T, vmlinuz, initrd string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	flags := "-test.v"
	if run := os.Getenv("SENSOR_VM_FLAGS"); run != "" {
		flags = run
	}
	args := []string{"-M", "microvm,memory-backend=ram", "-object", "memory-backend-ram,id=ram,size=512M",
		// Time counts instructions: on a busy host the kernel cannot calibrate its clock otherwise, and hangs.
		"-accel", "tcg,tb-size=64", "-icount", "shift=1,sleep=off", "-cpu", "max", "-kernel", vmlinuz, "-initrd", initrd, "-nographic", "-no-reboot",
		"-append", "console=ttyS0 quiet panic=-1 reboot=t " + os.Getenv("SENSOR_VM_ENV") + " -- " + flags}
	if disk := os.Getenv("SENSOR_VM_ROOT"); disk != "" {
		args = append(args, "-drive", "id=root,file="+disk+",format=raw,if=none,readonly=on", "-device", "virtio-blk-device,drive=root")
	}
	runtime.LockOSThread() // Pdeathsig counts from the thread that started QEMU
	defer runtime.UnlockOSThread()
	var out bytes.Buffer
	qemu := exec.CommandContext(ctx, "qemu-system-x86_64", args...)
	qemu.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	qemu.Stdout = &out
	if testing.Verbose() {
		qemu.Stdout = io.MultiWriter(&out, os.Stdout)
	}
	qemu.Stderr = qemu.Stdout
	if err := qemu.Run(); err != nil {
		t.Fatalf("run the VM: %v\n%s", err, out.Bytes())
	}
	return strings.ReplaceAll(out.String(), "\r", "")
}

// findKernel is the directory of an unpacked kernel package.
func findKernel() (string, error) {
	dir := os.Getenv("CUSTODY_KERNEL")
	if dir == "" {
		return "", fmt.Errorf("CUSTODY_KERNEL does not name an unpacked linux-image-cloud-amd64 package")
	}
	found, _ := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
	if len(found) == 0 {
		return "", fmt.Errorf("%s holds no boot/vmlinuz-*", dir)
	}
	return dir, nil
}

func writeInitrd(to, binary, kernel string) error {
	var b bytes.Buffer
	for _, dir := range []string{"dev", "proc", "sys", "tmp", "modules"} {
		cpio(&b, dir, unix.S_IFDIR|0o755, nil)
	}
	var names []string
	for _, m := range modules {
		data, err := module(kernel, m)
		if err != nil {
			return err
		}
		if data == nil {
			continue // built in
		}
		cpio(&b, "modules/"+m, unix.S_IFREG|0o644, data)
		names = append(names, m)
	}
	cpio(&b, "modules/list", unix.S_IFREG|0o644, []byte(strings.Join(names, "\n")))
	data, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	cpio(&b, "init", unix.S_IFREG|0o755, data)
	cpio(&b, "TRAILER!!!", 0, nil)
	return os.WriteFile(to, b.Bytes(), 0o600)
}

func module(kernel, name string) ([]byte, error) {
	var found string
	err := filepath.WalkDir(filepath.Join(kernel, "lib", "modules"), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Name() == name+".ko" {
			found = path
		}
		return err
	})
	if err != nil || found == "" {
		return nil, err
	}
	return os.ReadFile(found)
}

// cpio writes one member of an archive in the newc format (Linux, buffer-format.rst).
func cpio(w io.Writer, name string, mode int, data []byte) {
	fmt.Fprintf(w, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	fmt.Fprintf(w, "%s\x00", name)
	w.Write(make([]byte, (4-(110+len(name)+1)%4)%4))
	w.Write(data)
	w.Write(make([]byte, (4-len(data)%4)%4))
}
