// Package kerneltest runs a package's tests on kernels that the test's host does
// not run: in a VM under software emulation, with the test binary as its init.
//
//	go test (host): Run --> go test -c, static --> initramfs: /init is the test binary, /modules
//	                                                          |
//	console of the VM  <---- results ---- the same tests, run by pid 1 (Main)
package kerneltest

import (
	"bytes"
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

	"github.com/cavaliergopher/cpio"
)

// Kernel is one to run tests on.
type Kernel struct {
	Name    string
	Image   string // path of the bzImage
	Modules []byte // an initramfs that holds /modules, with the order to load them in /modules/order
}

// OfTemplate is the kernel of the base template in CUSTODY_TEST_TEMPLATES.
func OfTemplate(t testing.TB) Kernel {
	t.Helper()
	store := os.Getenv("CUSTODY_TEST_TEMPLATES")
	if store == "" {
		t.Fatal("CUSTODY_TEST_TEMPLATES is not set: run `make test`, which makes a template")
	}
	dir := filepath.Join(store, "names", "base")
	initrd, err := os.ReadFile(filepath.Join(dir, "initrd"))
	if err != nil {
		t.Fatalf("no base template: %v", err)
	}
	return Kernel{"template", filepath.Join(dir, "kernel"), initrd}
}

// OfHosts are the kernels in CUSTODY_TEST_KERNELS, a list of directories as
// hack/hostvm/kernels prints them, joined by colons.
func OfHosts(t testing.TB) []Kernel {
	t.Helper()
	list := os.Getenv("CUSTODY_TEST_KERNELS")
	if list == "" {
		t.Fatal("CUSTODY_TEST_KERNELS is not set: run `make test`, or set it to what hack/hostvm/kernels prints, joined by colons")
	}
	var kernels []Kernel
	for dir := range strings.SplitSeq(list, ":") {
		release, err := os.ReadFile(filepath.Join(dir, "release"))
		if err != nil {
			t.Fatal(err)
		}
		modules, err := packModules(filepath.Join(dir, "modules"))
		if err != nil {
			t.Fatal(err)
		}
		kernels = append(kernels, Kernel{strings.TrimSpace(string(release)), filepath.Join(dir, "vmlinuz"), modules})
	}
	return kernels
}

// packModules makes an initramfs of a directory of modules, which are loaded in the order of their names.
func packModules(dir string) ([]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	w := cpio.NewWriter(&archive)
	errs := []error{w.WriteHeader(&cpio.Header{Name: "modules", Mode: cpio.TypeDir | 0o755})}
	var order strings.Builder
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		errs = append(errs, err, add(w, "modules/"+e.Name(), 0o444, b))
		fmt.Fprintln(&order, e.Name())
	}
	errs = append(errs, add(w, "modules/order", 0o444, []byte(order.String())), w.Close())
	return archive.Bytes(), errors.Join(errs...)
}

func add(w *cpio.Writer, name string, mode cpio.FileMode, data []byte) error {
	err := w.WriteHeader(&cpio.Header{Name: name, Mode: cpio.TypeReg | mode, Size: int64(len(data))})
	if err == nil {
		_, err = w.Write(data)
	}
	return err
}

// Run builds the test binary of the package that is being tested and runs it as a
// kernel's init with flags, such as -test.run=TestName. The package's TestMain calls Main.
// It fails the test when the tests in the VM do not pass, and returns what they printed.
func Run(t testing.TB, k Kernel, flags ...string) string {
	t.Helper()
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Fatalf("%v: run `make test`, which installs it", err)
	}
	dir := t.TempDir()
	binary := filepath.Join(dir, "init")
	build := exec.Command("go", "test", "-c", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the test binary: %v\n%s", err, out)
	}
	initrd := filepath.Join(dir, "initrd")
	if err := writeInitrd(initrd, binary, k.Modules); err != nil {
		t.Fatal(err)
	}
	out := boot(t, k.Image, initrd, flags)
	if !strings.Contains(out, passed) {
		t.Fatalf("tests on kernel %s failed:\n%s", k.Name, out)
	}
	return out
}

// writeInitrd puts the test binary over whatever /init the archive with the modules has.
func writeInitrd(to, binary string, modules []byte) error {
	b := bytes.NewBuffer(bytes.Clone(modules))
	b.Write(make([]byte, -b.Len()&3)) // each archive of an initramfs begins at a multiple of four bytes
	data, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	w := cpio.NewWriter(b)
	var errs []error
	for _, dir := range []string{"dev", "proc", "sys", "tmp"} {
		errs = append(errs, w.WriteHeader(&cpio.Header{Name: dir, Mode: cpio.TypeDir | 0o755}))
	}
	if err := errors.Join(append(errs, add(w, "init", 0o755, data), w.Close())...); err != nil {
		return err
	}
	return os.WriteFile(to, b.Bytes(), 0o600)
}

// patience bounds a VM's life, on a host that does much else.
const patience = 10 * time.Minute

func boot(t testing.TB, image, initrd string, flags []string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	args := []string{
		"-M", "microvm,memory-backend=ram", "-object", "memory-backend-ram,id=ram,size=1G", "-m", "1G",
		// Time counts instructions: on a busy host the kernel cannot calibrate its clock otherwise, and
		// hangs. It also makes no test fail for being slow.
		"-accel", "tcg,tb-size=64", "-icount", "shift=1,sleep=off", "-cpu", "max,cx16=off",
		"-kernel", image, "-initrd", initrd, "-nographic", "-nodefaults", "-serial", "stdio", "-no-reboot",
		"-append", "console=ttyS0 quiet panic=-1 reboot=t -- " + strings.Join(flags, " "),
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
