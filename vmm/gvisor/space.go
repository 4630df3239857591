package gvisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/confine"
)

// Where things are in the mount namespace of a sandbox; a tmpfs hides hostDir there.
const (
	hostDir   = "/run/custody"
	boxDir    = runDir + "/box"
	lowerDir  = boxDir + "/lower"  // the template's root
	diskDir   = boxDir + "/disk"   // the scratch disk
	lowerOwn  = boxDir + "/own"    // the same with the owners that it has for the sandbox
	cellDir   = boxDir + "/cell"   // the overlay of both: what the workload sees
	rootDir   = boxDir + "/root"   // the container's root: init and mount points
	stateDir  = boxDir + "/state"  // runsc's own state
	bundleDir = boxDir + "/bundle" // config.json
	traceSock = boxDir + "/trace.sock"
	initFile  = boxDir + "/init.json"
	upperDir  = diskDir + "/upper"
	netFile   = boxDir + "/net" // the network namespace
)

// enterSpace gives the calling thread mount, network and IPC namespaces of its own. The thread must
// be locked, and must end with its goroutine.
func enterSpace() error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC); err != nil {
		return fmt.Errorf("make namespaces: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	return nil
}

// furnish mounts the sandbox's file systems. Nothing of them is visible outside the namespace, and
// the kernel removes them with its last process. limit is called with each block device.
func furnish(m vmm.Machine, ids *confine.Lease, limit func(disk *os.File) error) error {
	// The sandbox's users cannot pass the directories of the host that are here.
	if err := unix.Mount("custody", hostDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=32m,mode=711"); err != nil {
		return fmt.Errorf("mount %s: %w", hostDir, err)
	}
	for _, dir := range []string{runDir, boxDir, lowerDir, diskDir, lowerOwn, cellDir, rootDir, stateDir, bundleDir, rootDir + "/proc", rootDir + "/cell", rootDir + "/dev", rootDir + "/sys"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := bindFile(m.Image.Guest, filepath.Join(rootDir, "init")); err != nil {
		return fmt.Errorf("custody-guest: %w", err)
	}
	if err := os.WriteFile(netFile, nil, 0o600); err != nil {
		return err
	}
	if err := unix.Mount("/proc/thread-self/ns/net", netFile, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("name the network namespace: %w", err)
	}
	root, err := attachLoop(m.Image.Root, true)
	if err != nil {
		return fmt.Errorf("template's root: %w", err)
	}
	defer root.Close()
	if err := limit(root); err != nil {
		return err
	}
	if err := unix.Mount(root.Name(), lowerDir, "erofs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return fmt.Errorf("mount the template's root (does this kernel have erofs?): %w", err)
	}
	if m.Scratch != nil {
		disk, err := attachLoop(m.Scratch, false)
		if err != nil {
			return fmt.Errorf("scratch disk: %w", err)
		}
		defer disk.Close()
		if err := limit(disk); err != nil {
			return err
		}
		if err := unix.Mount(disk.Name(), diskDir, "ext4", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOATIME, "barrier=0,noinit_itable"); err != nil {
			return fmt.Errorf("mount the scratch disk: %w", err)
		}
	}
	for _, dir := range []string{upperDir, diskDir + "/work"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := mapOwners(lowerDir, lowerOwn, ids); err != nil {
		return err
	}
	first, _ := ids.Range()
	if err := os.Chown(upperDir, first, first); err != nil {
		return err
	}
	layers := "lowerdir=" + lowerOwn + ",upperdir=" + upperDir + ",workdir=" + diskDir + "/work,volatile,redirect_dir=off,metacopy=off"
	if err := unix.Mount("overlay", cellDir, "overlay", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOATIME, layers); err != nil {
		return fmt.Errorf("mount the overlay: %w", err)
	}
	return nil
}

// bindFile shows a file, read-only, under another name.
func bindFile(from, to string) error {
	if err := os.WriteFile(to, nil, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", from, err)
	}
	return unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
}

// attachLoop makes a block device of a file. The kernel detaches it when the last user, descriptor or mount, has gone.
func attachLoop(f *os.File, readOnly bool) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("%w (load the module loop)", err)
	}
	defer control.Close()
	mode, flags := os.O_RDWR, uint32(unix.LO_FLAGS_AUTOCLEAR)
	if readOnly {
		mode, flags = os.O_RDONLY, flags|unix.LO_FLAGS_READ_ONLY
	}
	for {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a loop device: %w", err)
		}
		path := fmt.Sprintf("/dev/loop%d", n)
		if err := makeLoopNode(path, n); err != nil {
			return nil, err
		}
		dev, err := os.OpenFile(path, mode, 0)
		if err != nil {
			return nil, err
		}
		config := unix.LoopConfig{Fd: uint32(f.Fd()), Size: 4096, Info: unix.LoopInfo64{Flags: flags}}
		err = unix.IoctlLoopConfigure(int(dev.Fd()), &config)
		if err == nil {
			return dev, nil
		}
		dev.Close()
		if !errors.Is(err, unix.EBUSY) { // busy: another process was faster
			return nil, fmt.Errorf("attach %s: %w", path, err)
		}
	}
}

// makeLoopNode makes the device's node where neither udev nor devtmpfs does, as in containers.
func makeLoopNode(path string, n int) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	const loopMajor = 7
	if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(loopMajor, uint32(n)))); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make %s: %w", path, err)
	}
	return nil
}

// safeID is a container's name: run ids consist of such characters already.
func safeID(id string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, strings.ToLower(id))
}
