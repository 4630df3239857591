package sensor

import (
	"bytes"
	"cmp"
	"context"
	"errors"
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
// what they see is tested inside a VM:
//
//	go test (host): TestSensor --> go test -c, static --> initramfs: /init is the test binary
//	                                                          |
//	console of the VM  <---- results ---- TestSensor again, run by pid 1
//
// The kernel is that of the base template in CUSTODY_TEST_TEMPLATES, as for all
// tests that start VMs (hack/test).

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
	order, err := os.ReadFile("/modules/order")
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(string(order)) {
		if err := loadModule("/modules/" + name); err != nil {
			return fmt.Errorf("load %s: %w", name, err)
		}
	}
	return loopback()
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.FinitModule(int(f.Fd()), "", 0)
}

// inVM runs the tests of this package's pid 1 in a VM, and reports how they ended.
func inVM(t *testing.T) {
	kernel, err := findKernel()
	if err == nil {
		_, err = exec.LookPath("qemu-system-x86_64")
	}
	if err != nil {
		t.Fatalf("the sensor's programs are tested in a VM: %v; run `make test`, which makes what they need", err)
	}
	dir := t.TempDir()
	binary := filepath.Join(dir, "init")
	build := exec.Command("go", "test", "-c", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the test binary: %v\n%s", err, out)
	}
	initrd := filepath.Join(dir, "initrd")
	must(t, writeInitrd(initrd, binary, kernel))
	if out := boot(t, kernel.image, initrd); !strings.Contains(out, passed) {
		t.Fatalf("tests inside the VM failed:\n%s", out)
	}
}

func boot(t *testing.T, vmlinuz, initrd string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	flags := cmp.Or(os.Getenv("SENSOR_VM_FLAGS"), "-test.v -test.run=TestSensor")
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

// kernelFiles are a kernel's image and an initramfs that holds its modules and their order.
type kernelFiles struct {
	image   string
	modules []byte
}

func findKernel() (kernelFiles, error) {
	store := os.Getenv("CUSTODY_TEST_TEMPLATES")
	if store == "" {
		return kernelFiles{}, errors.New("CUSTODY_TEST_TEMPLATES is not set")
	}
	dir := filepath.Join(store, "names", "base")
	initrd, err := os.ReadFile(filepath.Join(dir, "initrd"))
	if err != nil {
		return kernelFiles{}, fmt.Errorf("no base template: %w", err)
	}
	return kernelFiles{filepath.Join(dir, "kernel"), initrd}, nil
}

// writeInitrd puts the test binary over whatever /init the kernel's files have.
func writeInitrd(to, binary string, kernel kernelFiles) error {
	b := bytes.NewBuffer(bytes.Clone(kernel.modules))
	b.Write(make([]byte, -b.Len()&3))
	for _, dir := range []string{"dev", "proc", "sys", "tmp"} {
		cpio(b, dir, unix.S_IFDIR|0o755, nil)
	}
	data, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	cpio(b, "init", unix.S_IFREG|0o755, data)
	cpio(b, "TRAILER!!!", 0, nil)
	return os.WriteFile(to, b.Bytes(), 0o600)
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
