package gvisor

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/vmm/confine"
)

// users returns a user namespace with the ids of a lease: user 0 in it is not root of the host. The caller closes it.
func users(l *confine.Lease) (space *os.File, err error) {
	first, size := l.Range()
	ids := []syscall.SysProcIDMap{{HostID: first, Size: size}}
	wait, end, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer wait.Close()
	runtime.LockOSThread() // Pdeathsig counts from the thread, which another goroutine could end
	defer runtime.UnlockOSThread()
	holder, err := os.StartProcess("/bin/sh", []string{"sh", "-c", "read -r _"}, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{wait},
		Sys: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, Pdeathsig: syscall.SIGKILL},
	})
	if err == nil {
		space, err = os.Open(fmt.Sprintf("/proc/%d/ns/user", holder.Pid))
	}
	end.Close()
	if holder != nil {
		_, failed := holder.Wait()
		err = errors.Join(err, failed)
	}
	if err != nil {
		return space, fmt.Errorf("make a user namespace: %w", err)
	}
	return space, nil
}

// mapOwners mounts a directory at to, where the files of each user belong to the sandbox's user of that number.
func mapOwners(from, to string, ids *confine.Lease) error {
	space, err := users(ids)
	if err != nil {
		return err
	}
	defer space.Close()
	tree, err := unix.OpenTree(unix.AT_FDCWD, from, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err == nil {
		defer unix.Close(tree)
		err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(space.Fd())})
	}
	if err == nil {
		err = unix.MoveMount(tree, "", unix.AT_FDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH)
	}
	if err != nil {
		return fmt.Errorf("give the files of the template to the sandbox's users (needs Linux 5.19): %w", err)
	}
	return nil
}
