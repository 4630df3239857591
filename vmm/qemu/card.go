package qemu

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/netpolicy/link"
)

// Every machine has a network card, whether or not its cable leads anywhere: a snapshot fits
// only into a machine with the devices of the one that it was taken of. For the same reason all
// TAPs are opened alike, because QEMU offers the guest the offloads that its end of the cable has.

// tapFlags are how every TAP is opened: frames behind a virtio header, with the sums and segments left to do.
const tapFlags = unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR

const tunDevice = "/dev/net/tun"

// card is the -device argument. What differs from the default is what depends on the host's
// kernel (UFO) and what would make the guest speak unasked after a restore.
func card() string {
	mac := net.HardwareAddr(link.GuestMAC[:])
	return "virtio-net-device,netdev=net,mac=" + mac.String() + ",guest_announce=off,host_ufo=off,guest_ufo=off"
}

// newLooseEnd returns a TAP in a network namespace that holds nothing else, is
// no one's and goes with the descriptor. The TAP is down and stays so: what
// the guest sends is dropped.
func newLooseEnd() (*os.File, error) {
	type result struct {
		tap *os.File
		err error
	}
	made := make(chan result, 1)
	offMainThread(func() {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			made <- result{err: fmt.Errorf("unshare network namespace: %w", err)}
			return
		}
		tap, err := openTap("nowhere")
		if err == nil {
			// It goes with its namespace, which the kernel takes down behind our back. To remove it when
			// QEMU ends would hold up that end for some 13 ms.
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
		return nil, fmt.Errorf("%s: %w: a VM's network card needs the kernel's tun driver: run modprobe tun; in a container, pass the device in", tunDevice, err)
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

// checkTap refuses what would make another machine than the snapshot's. That
// IFF_NO_PI is missing cannot be seen: TUNGETIFF says IFF_NOFILTER with the same bit.
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
		return fmt.Errorf("the machine's TAP is none: %w", err)
	}
	if flags&unix.IFF_TAP == 0 || flags&unix.IFF_VNET_HDR == 0 {
		return fmt.Errorf("the machine's TAP was opened with flags %#x: IFF_TAP, IFF_NO_PI and IFF_VNET_HDR are needed", flags)
	}
	return nil
}
