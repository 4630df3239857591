package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	groupsAt = "/sys/fs/cgroup"
	// groupsTried is set in the environment after the first attempt, so that the program is not started again endlessly.
	groupsTried = "CUSTODY_CGROUPS_TRIED"
)

// ErrNotRoot means that this process does not run as root.
var ErrNotRoot = errors.New("this needs root")

// RequireRoot returns ErrNotRoot unless this process runs as root.
func RequireRoot() error {
	if os.Geteuid() != 0 {
		return ErrNotRoot
	}
	return nil
}

// RequireHost returns an error unless this process can start VMs. Call it before anything else: if the host's control
// groups are hidden, it starts the program again where they are visible.
func RequireHost() error {
	if err := RequireRoot(); err != nil {
		return err
	}
	return needGroups()
}

// needGroups makes the host's control groups visible to this process if they are hidden, for example
// by `ip netns exec`, which mounts a new /sys over them. It mounts them in a new
// mount namespace and executes the program again. It returns only if they are visible, or with an error.
func needGroups() error {
	var st unix.Statfs_t
	if err := unix.Statfs(groupsAt, &st); err == nil && st.Type != unix.SYSFS_MAGIC || os.Getenv(groupsTried) != "" {
		return nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	runtime.LockOSThread() // never unlocked: the thread has another mount namespace
	if err := errors.Join(mountGroups(), os.Chdir(dir)); err != nil {
		return fmt.Errorf("the host's control groups are not at %s, and cannot be mounted: %w", groupsAt, err)
	}
	return syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), groupsTried+"=1"))
}

// mountGroups mounts the kernel's control groups at groupsAt, for the calling thread
// only: the hierarchy of version 2, or those of version 1 that a VM's control group needs.
func mountGroups() error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	list, err := os.ReadFile("/proc/cgroups")
	if err != nil {
		return err
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	together := hierarchies(string(list))
	if len(together) == 0 {
		return unix.Mount("cgroup", groupsAt, "cgroup2", flags, "")
	}
	if err := unix.Mount("cgroups", groupsAt, "tmpfs", flags, "size=64k,mode=755"); err != nil {
		return err
	}
	for _, name := range []string{"memory", "cpu", "pids"} {
		at := filepath.Join(groupsAt, name)
		if err := os.Mkdir(at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount("cgroup", at, "cgroup", flags, together[name]); err != nil {
			return fmt.Errorf("mount %s: %w", at, err)
		}
	}
	return nil
}

// hierarchies parses /proc/cgroups (cgroups(7)). It returns for each controller of version 1
// the mount options: all controllers of its hierarchy.
func hierarchies(list string) map[string]string {
	members, of := map[string][]string{}, map[string]string{}
	for line := range strings.Lines(list) {
		f := strings.Fields(line)
		if len(f) == 4 && f[0][0] != '#' && f[1] != "0" {
			members[f[1]] = append(members[f[1]], f[0])
			of[f[0]] = f[1]
		}
	}
	together := map[string]string{}
	for name, id := range of {
		together[name] = strings.Join(members[id], ",")
	}
	return together
}
