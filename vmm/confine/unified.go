package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/containerd/cgroups/v3"
	"golang.org/x/sys/unix"
)

// Unified returns the directory of the group in the hierarchy of version 2, to which eBPF programs can be attached. On a host with
// version 1 it is made, next to the group that has the limits. It is called before Add, and open until Remove.
func (c *Group) Unified() (_ *os.File, err error) {
	if c.unified != nil {
		return c.unified, nil
	}
	if c.v2 != nil {
		c.unified, err = os.Open(filepath.Join("/sys/fs/cgroup", c.path))
		return c.unified, err
	}
	err = inUnified(func(root string) error {
		path := filepath.Join(root, c.path)
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
		c.unified, err = os.Open(path)
		return err
	})
	return c.unified, err
}

func (c *Group) closeUnified() error {
	if c.unified == nil {
		return nil
	}
	return c.unified.Close()
}

// join moves a process to a group.
func join(group *os.File, pid int) error {
	fd, err := unix.Openat(int(group.Fd()), "cgroup.procs", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("open cgroup.procs", err)
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(strconv.Itoa(pid)))
	return os.NewSyscallError("join a control group", err)
}

// removeUnified removes a group of version 2 on a host with version 1, if it exists.
func removeUnified(path string) error {
	return inUnified(func(root string) error {
		if err := os.Remove(filepath.Join(root, path)); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

// inUnified calls do with the root of the hierarchy of version 2. A host with version 1 need not have mounted it.
func inUnified(do func(root string) error) error {
	if cgroups.Mode() == cgroups.Unified {
		return do("/sys/fs/cgroup")
	}
	mount, err := mountUnified()
	if err != nil {
		return fmt.Errorf("open the hierarchy of control groups of version 2: %w", err)
	}
	defer unix.Close(mount)
	return do(fmt.Sprintf("/proc/self/fd/%d", mount))
}

// mountUnified returns a mount of the hierarchy that is in no directory.
func mountUnified() (int, error) {
	fs, err := unix.Fsopen("cgroup2", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
}
