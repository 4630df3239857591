package kerneltest

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// passed is what the VM's console says at the end when all tests passed.
const passed = "kerneltest: passed"

// InVM reports whether this process is the init of a VM that Run started.
func InVM() bool { return os.Getpid() == 1 }

// Main runs the tests and ends the program. As the init of a VM it first does what an
// init has to, and ends the VM afterwards.
func Main(m *testing.M) {
	if !InVM() {
		os.Exit(m.Run())
	}
	if err := initialise(); err != nil {
		fmt.Println("init:", err)
	} else if m.Run() == 0 {
		fmt.Println(passed)
	}
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
}

// leaveInitramfs moves the program and the modules to a tmpfs, because a process cannot change its root from an initramfs
// (pivot_root(2)), as workers do.
func leaveInitramfs() error {
	const dir = "/root"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount a root directory: %w", err)
	}
	if err := os.CopyFS(dir+"/modules", os.DirFS("/modules")); err != nil {
		return err
	}
	program, err := os.ReadFile("/init")
	if err == nil {
		err = os.WriteFile(dir+"/init", program, 0o755)
	}
	if err != nil {
		return err
	}
	return errors.Join(unix.Chdir(dir), unix.Mount(".", "/", "", unix.MS_MOVE, ""), unix.Chroot("."), unix.Chdir("/"))
}

// initialise mounts what programs expect, loads the modules and brings the loopback device up.
func initialise() error {
	if err := leaveInitramfs(); err != nil {
		return fmt.Errorf("leave the initramfs: %w", err)
	}
	for _, m := range []struct{ kind, dir string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"cgroup2", "/sys/fs/cgroup"}, {"tmpfs", "/tmp"},
	} {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return err
		}
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

func loopback() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, req)
}
