package guest

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// boot boots a machine from a kernel and an initramfs that has this
// program as /init and the modules in /modules, in the order of /modules/order.
func boot() error {
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"load modules", loadModules},
		{"move to a root of its own", moveRoot},
		{"mount", mountSystem},
		{"open the console", openConsole},
		{"close the process to others", func() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }},
		{"set the kernel's switches", setSwitches},
		{"make control groups", makeGroups},
		{"make the cells' devices", makeDevices},
		{"bring the network up", raiseNetwork},
		{"raise limits", raiseLimits},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}

func loadModules() error {
	order, err := os.Open("/modules/order")
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a kernel with all that it needs built in
	}
	if err != nil {
		return err
	}
	defer order.Close()
	for lines := bufio.NewScanner(order); lines.Scan(); {
		name := lines.Text()
		if name == "" {
			continue
		}
		if err := loadModule("/modules/" + name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return os.RemoveAll("/modules")
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && err != unix.EEXIST {
		return err
	}
	return nil
}

// moveRoot leaves the initramfs for a tmpfs, because pivot_root, with which
// each cell changes to its own root, cannot leave an initramfs.
func moveRoot() error {
	os.Remove("/init") // frees its memory
	if err := os.Mkdir("/root.new", 0o700); err != nil {
		return err
	}
	if err := unix.Mount("root", "/root.new", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=4m,mode=700"); err != nil {
		return err
	}
	if err := unix.Chdir("/root.new"); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return err
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	for _, dir := range []string{"/proc", "/sys", "/dev", lowerDir, scratchDir, cellDir, deviceDir, identityDir} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	return unix.Chdir("/")
}

func mountSystem() error {
	const quiet = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
		data                 string
	}{
		{"proc", "/proc", "proc", quiet, ""},
		{"sysfs", "/sys", "sysfs", quiet, ""},
		{"devtmpfs", "/dev", "devtmpfs", unix.MS_NOSUID | unix.MS_NOEXEC, ""},
		{"cgroup", groupDir, "cgroup2", quiet, ""},
		{"identity", identityDir, "tmpfs", quiet, "size=64k,mode=755"},
		{"/dev/vda", lowerDir, "erofs", unix.MS_RDONLY | unix.MS_NODEV, ""},
	} {
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("%s on %s: %w", m.kind, m.target, err)
		}
	}
	return nil
}

// openConsole sends init's output to the console, if there is one.
func openConsole() error {
	fd, err := unix.Open("/dev/console", unix.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		fd, err = unix.Open("/dev/null", unix.O_RDWR, 0)
	}
	if err != nil {
		return err
	}
	for i := range 3 {
		if err := unix.Dup3(fd, i, 0); err != nil && fd != i {
			return err
		}
	}
	if fd > 2 {
		unix.Close(fd)
	}
	return nil
}

// setSwitches hardens settings that the distribution's kernel leaves permissive. A kernel may
// lack some of them.
func setSwitches() error {
	for name, value := range map[string]string{
		"kernel/dmesg_restrict":            "1",
		"kernel/kptr_restrict":             "2",
		"kernel/unprivileged_bpf_disabled": "1",
		"kernel/panic_on_oops":             "1", // a kernel oops ends the VM
		"kernel/sysrq":                     "0",
		"kernel/core_pattern":              "core",
		"kernel/modules_disabled":          "1",
		"kernel/kexec_load_disabled":       "1",
		"kernel/io_uring_disabled":         "2",
		"user/max_user_namespaces":         "0",
		"fs/protected_hardlinks":           "1",
		"fs/protected_symlinks":            "1",
		"debug/exception-trace":            "0", // crashing steps do not fill the console
	} {
		if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			log.Printf("%s: %v", name, err)
		}
	}
	return nil
}

// makeGroups puts init into a separate control group, with protected memory and a large CPU weight.
func makeGroups() error {
	for _, dir := range []string{"init", "cells"} {
		if err := os.Mkdir(filepath.Join(groupDir, dir), 0o755); err != nil {
			return err
		}
	}
	for _, f := range [][2]string{
		{"init/cgroup.procs", "1"},
		{"cgroup.subtree_control", "+memory +pids +cpu"},
		{"cells/cgroup.subtree_control", "+memory"}, // so that each step's kills for memory are counted apart
		{"init/memory.min", fmt.Sprint(initReserve)},
		{"init/cpu.weight", "10000"},
	} {
		if err := os.WriteFile(filepath.Join(groupDir, f[0]), []byte(f[1]), 0); err != nil {
			return err
		}
	}
	return nil
}

// makeDevices makes the /dev that all cells share. The cells get it read-only, which does not prevent
// writes to a device.
func makeDevices() error {
	if err := unix.Mount("dev", deviceDir, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "size=64k,mode=755"); err != nil {
		return err
	}
	for name, minor := range map[string]uint32{"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9} {
		if err := makeDevice(name, unix.Mkdev(1, minor)); err != nil {
			return err
		}
	}
	if err := makeDevice("tty", unix.Mkdev(5, 0)); err != nil {
		return err
	}
	for name, target := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx",
	} {
		if err := os.Symlink(target, filepath.Join(deviceDir, name)); err != nil {
			return err
		}
	}
	for _, name := range []string{"pts", "shm"} {
		if err := os.Mkdir(filepath.Join(deviceDir, name), 0o755); err != nil {
			return err
		}
	}
	return nil
}

func makeDevice(name string, number uint64) error {
	path := filepath.Join(deviceDir, name)
	if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(number)); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return os.Chmod(path, 0o666)
}

// raiseLimits raises the limits of init and, until they execute a program, its children.
func raiseLimits() error {
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0); err != nil {
		return err
	}
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 65536, Max: 65536})
}
