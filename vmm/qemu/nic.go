package qemu

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/netpolicy/link"
	"github.com/custody-project/custody/vmm/confine"
)

// Every machine has a network interface, even if it is connected to nothing: a snapshot can be restored
// only into a machine with the same devices. For the same reason all TAPs are opened with the same flags:
// QEMU offers the guest the offloads that the TAP supports.

// tapFlags are the flags of every TAP. Each frame has a virtio header, so that checksums and segmentation can be left to the receiver.
const tapFlags = unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR

const tunDevice = "/dev/net/tun"

// nicArg returns the -device argument of the network interface. It switches off what depends on the host's
// kernel (UFO) and the announcement that the guest would send after a restore.
func nicArg() string {
	mac := net.HardwareAddr(link.GuestMAC[:])
	return "virtio-net-device,netdev=net,mac=" + mac.String() + ",guest_announce=off,host_ufo=off,guest_ufo=off"
}

// newUnconnectedTap returns a TAP that is alone in a network namespace without processes. The namespace
// ends when the descriptor is closed. The TAP stays down: what the guest sends is dropped.
func newUnconnectedTap() (*os.File, error) {
	type result struct {
		tap *os.File
		err error
	}
	made := make(chan result, 1)
	confine.OffMainThread(func() {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			made <- result{err: fmt.Errorf("unshare network namespace: %w", err)}
			return
		}
		tap, err := openTap("nowhere")
		if err == nil {
			// The kernel removes a persistent TAP with its namespace, in the background. Otherwise the end
			// of QEMU would remove it and take some 13 ms longer.
			err = unix.IoctlSetInt(int(tap.Fd()), unix.TUNSETPERSIST, 1)
		}
		made <- result{tap, err}
	})
	r := <-made
	return r.tap, r.err
}

// openTap makes a TAP in the calling thread's network namespace.
func openTap(name string) (*os.File, error) {
	fd, err := unix.Open(tunDevice, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) {
		return nil, fmt.Errorf("%s: %w: a VM's network interface needs the kernel's tun driver: run modprobe tun; in a container, pass the device in", tunDevice, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", tunDevice, err)
	}
	req, err := unix.NewIfreq(name)
	if err == nil {
		req.SetUint16(tapFlags)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make a TAP: %w", err)
	}
	return os.NewFile(uintptr(fd), "tap"), nil
}

// checkTap returns an error for a TAP with which the machine's devices would differ from the snapshot's.
// It cannot check IFF_NO_PI: TUNGETIFF uses the same bit for IFF_NOFILTER.
func checkTap(tap *os.File) error {
	conn, err := tap.SyscallConn()
	if err != nil {
		return fmt.Errorf("the machine's TAP: %w", err)
	}
	var flags uint16
	ctlErr := conn.Control(func(fd uintptr) {
		var req *unix.Ifreq
		if req, err = unix.NewIfreq(""); err == nil {
			err = unix.IoctlIfreq(int(fd), unix.TUNGETIFF, req)
			flags = req.Uint16()
		}
	})
	if err := errors.Join(ctlErr, err); err != nil {
		return fmt.Errorf("the machine's TAP is not a TAP: %w", err)
	}
	if flags&unix.IFF_TAP == 0 || flags&unix.IFF_VNET_HDR == 0 {
		return fmt.Errorf("the machine's TAP was opened with flags %#x: IFF_TAP, IFF_NO_PI and IFF_VNET_HDR are needed", flags)
	}
	return nil
}
