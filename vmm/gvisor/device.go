package gvisor

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/netpolicy/link"
)

const (
	deviceName = "eth0"
	linkMTU    = 1500
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
	if err == nil { // until the namespace ends: the kernel removes it in the background then, which takes some 20 ms
		err = unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1)
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

// openTap duplicates tap, which stays the caller's.
func openTap(tap *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(tap.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate the TAP: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "tap"), nil
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
