package gvisor

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/netpolicy/link"
)

// runsc takes no TAP: it opens AF_PACKET sockets on the devices of its network namespace. So the
// namespace has a TAP of its own, and the relay carries each frame between it and that of the fence:
//
//	sentry ── AF_PACKET ── eth0 (TAP) ── relay ── TAP of the fence ── TCX programs, gateway
//
// The relay drops nothing, so that the fence sees and counts each frame; it translates one answer of the fence
// (frames.go). Frames carry the header of virtio-net, so that segments of up to 64 KiB pass whole.
const (
	deviceName = "eth0"
	linkMTU    = 1500
	maxFrame   = 65536 + 128
	offloads   = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6
	vnetHeader = 12
)

// newDevice makes the container's network device in the namespace of the calling thread, with the
// guest's addresses of package link, which runsc takes over.
func newDevice() (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun (load the module tun, or pass the device into the container): %w", err)
	}
	req, err := unix.NewIfreq(deviceName)
	if err == nil {
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make the sandbox's network device: %w", err)
	}
	f := os.NewFile(uintptr(fd), deviceName)
	if err := address(); err != nil {
		return nil, errors.Join(fmt.Errorf("set up the sandbox's network device: %w", err), f.Close())
	}
	return f, nil
}

func address() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	dev, err := netlink.LinkByName(deviceName)
	if err != nil {
		return err
	}
	// The host's stack sends nothing of its own on the device before runsc takes its addresses away. On a
	// device without ARP it joins no group for an address either, and so reports none (MLD).
	for name, value := range map[string]string{"disable_ipv6": "0", "accept_ra": "0", "autoconf": "0", "addr_gen_mode": "1", "router_solicitations": "0", "dad_transmits": "0"} {
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+deviceName+"/"+name, []byte(value), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := errors.Join(netlink.LinkSetUp(lo), netlink.LinkSetHardwareAddr(dev, link.GuestMAC[:]), netlink.LinkSetMTU(dev, linkMTU), netlink.LinkSetARPOff(dev)); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(dev); err != nil {
		return err
	}
	for _, end := range []struct {
		guest, gateway netip.Addr
		net            netip.Prefix
	}{{link.Guest4, link.Gateway4, link.Net4}, {link.Guest6, link.Gateway6, link.Net6}} {
		bits := net.CIDRMask(end.net.Bits(), end.guest.BitLen())
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: end.guest.AsSlice(), Mask: bits}}
		family := netlink.FAMILY_V4
		if end.guest.Is6() {
			addr.Flags, family = unix.IFA_F_NODAD, netlink.FAMILY_V6
		}
		if err := netlink.AddrAdd(dev, addr); err != nil {
			return fmt.Errorf("address %s: %w", end.guest, err)
		}
		if err := netlink.NeighSet(&netlink.Neigh{
			LinkIndex: dev.Attrs().Index, IP: end.gateway.AsSlice(), HardwareAddr: link.GatewayMAC[:], State: netlink.NUD_PERMANENT, Family: family,
		}); err != nil {
			return fmt.Errorf("neighbour %s: %w", end.gateway, err)
		}
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: dev.Attrs().Index, Gw: end.gateway.AsSlice()}); err != nil {
			return fmt.Errorf("route through %s: %w", end.gateway, err)
		}
	}
	return nil
}

// relay carries frames between the container's device and the fence's TAP until it is closed.
type relay struct {
	device, tap *os.File
	work        sync.WaitGroup
}

// newRelay takes over device, and duplicates tap, which stays the caller's.
func newRelay(device, tap *os.File) (*relay, error) {
	fd, err := unix.FcntlInt(tap.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate the TAP: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, err
	}
	r := &relay{device: device, tap: os.NewFile(uintptr(fd), "tap")}
	for _, f := range []*os.File{r.device, r.tap} {
		if err := offload(f); err != nil {
			return nil, errors.Join(err, r.tap.Close())
		}
	}
	r.work.Go(func() { carry(r.tap, r.device, func([]byte) {}) })
	r.work.Go(func() { carry(r.device, r.tap, explain) })
	return r, nil
}

// offload has the kernel pass segments to the reader of a TAP without cutting them.
func offload(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	if err := conn.Control(func(fd uintptr) {
		set = errors.Join(unix.IoctlSetPointerInt(int(fd), unix.TUNSETVNETHDRSZ, vnetHeader), unix.IoctlSetInt(int(fd), unix.TUNSETOFFLOAD, offloads))
	}); err != nil {
		return err
	}
	return set
}

// carry copies frames, changed by edit, until one end is closed. A frame that the other end does not take is lost, as on any link.
func carry(to, from *os.File, edit func(frame []byte)) {
	buf := make([]byte, maxFrame)
	for {
		n, err := from.Read(buf)
		if err != nil && n <= 0 {
			return
		}
		edit(buf[:n])
		if _, err := to.Write(buf[:n]); errors.Is(err, os.ErrClosed) {
			return
		}
	}
}

func (r *relay) close() error {
	err := errors.Join(r.device.Close(), r.tap.Close())
	r.work.Wait()
	return err
}
