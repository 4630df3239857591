package firecracker

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// tapName is the name of every machine's TAP, in the network namespace of the machine's sandbox. A snapshot contains it.
const tapName = "tap0"

// network returns a function that moves the calling thread, and so the process that it starts, to the network namespace
// of the machine's TAP, and lets the process's uid open the TAP. A machine without a TAP gets one that is alone in a
// namespace of its own and stays down: what the guest sends is dropped.
func network(tap *os.File) func(uid int) error {
	if tap == nil {
		return unconnected
	}
	return func(uid int) error { return enterTap(tap, uid) }
}

// enterTap closes tap: a TAP has one user at a time.
func enterTap(tap *os.File, uid int) error {
	raw, err := tap.SyscallConn()
	if err != nil {
		return fmt.Errorf("the machine's TAP: %w", err)
	}
	space := -1
	ctlErr := raw.Control(func(fd uintptr) {
		if err = checkName(int(fd)); err != nil {
			return
		}
		if err = unix.IoctlSetInt(int(fd), unix.TUNSETOWNER, uid); err != nil {
			return
		}
		space, err = unix.IoctlRetInt(int(fd), unix.SIOCGSKNS)
	})
	if err := errors.Join(ctlErr, err); err != nil {
		return fmt.Errorf("the machine's TAP: %w", err)
	}
	defer unix.Close(space)
	if err := tap.Close(); err != nil {
		return fmt.Errorf("the machine's TAP: %w", err)
	}
	if err := unix.Setns(space, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network namespace of the machine's TAP: %w", err)
	}
	return nil
}

// checkName returns an error for a TAP that Firecracker could not find by the name that is in a snapshot.
func checkName(fd int) error {
	req, err := unix.NewIfreq("")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.TUNGETIFF, req); err != nil {
		return err
	}
	if req.Name() != tapName {
		return fmt.Errorf("its name is %q, expected %q", req.Name(), tapName)
	}
	return nil
}

func unconnected(uid int) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("make a network namespace: %w", err)
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/net/tun (a VM's network interface needs the kernel's tun driver: run modprobe tun): %w", err)
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq(tapName)
	if err == nil {
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err == nil {
		err = unix.IoctlSetInt(fd, unix.TUNSETOWNER, uid)
	}
	if err == nil {
		err = unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1) // until the namespace ends
	}
	if err != nil {
		return fmt.Errorf("make a TAP: %w", err)
	}
	return nil
}
