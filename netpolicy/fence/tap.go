package fence

import (
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/netpolicy"
)

const (
	tapName = "tap0"
	linkMTU = 1500
)

// quiet are settings with which the namespace sends nothing on its own, learns nothing from the guest and forwards
// nothing. Replies of its kernel carry the mark of the packet that they answer. Sockets of killed processes keep a
// namespace alive until they time out: the timeouts are seconds, because otherwise the namespace would outlive its
// sandbox by minutes.
var quiet = sysctls{
	"ipv4/tcp_orphan_retries":                "3",
	"ipv4/tcp_fin_timeout":                   "5",
	"ipv4/ip_forward":                        "0",
	"ipv4/conf/all/rp_filter":                "1",
	"ipv4/conf/all/accept_redirects":         "0",
	"ipv4/conf/all/send_redirects":           "0",
	"ipv4/conf/default/send_redirects":       "0",
	"ipv4/conf/all/accept_source_route":      "0",
	"ipv4/conf/all/arp_ignore":               "1",
	"ipv4/fwmark_reflect":                    "1",
	"ipv6/fwmark_reflect":                    "1",
	"ipv6/conf/all/disable_ipv6":             "0",
	"ipv6/conf/default/disable_ipv6":         "0",
	"ipv6/conf/all/forwarding":               "0",
	"ipv6/conf/default/accept_ra":            "0",
	"ipv6/conf/default/autoconf":             "0",
	"ipv6/conf/default/addr_gen_mode":        "1",
	"ipv6/conf/default/accept_redirects":     "0",
	"ipv6/conf/default/router_solicitations": "0",
	"ipv6/conf/default/dad_transmits":        "0",
}

// newTap makes the guest's device in the calling thread's namespace. The device exists as long as the namespace, so
// closing its last descriptor does not wait for the kernel to remove it.
func newTap() (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun (load the module tun, or pass the device into the container): %w", err)
	}
	req, err := unix.NewIfreq(tapName)
	if err == nil {
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err == nil {
		err = unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make the guest's network device: %w", err)
	}
	return os.NewFile(uintptr(fd), tapName), nil
}

// configure brings the TAP up with the addresses that every guest uses.
func (s *space) configure() error {
	lo, err := s.links.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find the loopback device: %w", err)
	}
	tap, err := s.links.LinkByName(tapName)
	if err != nil {
		return fmt.Errorf("find the guest's network device: %w", err)
	}
	index := tap.Attrs().Index
	steps := []error{
		s.links.LinkSetUp(lo),
		s.links.LinkSetHardwareAddr(tap, netpolicy.GatewayMAC[:]),
		s.links.LinkSetMTU(tap, linkMTU),
		s.address(tap, netip.PrefixFrom(netpolicy.Gateway4, netpolicy.Link4.Bits())),
		s.address(tap, netip.PrefixFrom(netpolicy.Gateway6, netpolicy.Link6.Bits())),
		s.links.LinkSetUp(tap),
		s.neighbour(index, netpolicy.Guest4, netpolicy.GuestMAC[:]),
		s.neighbour(index, netpolicy.Guest6, netpolicy.GuestMAC[:]),
		s.anyIP(lo.Attrs().Index),
	}
	for _, err := range steps {
		if err != nil {
			return fmt.Errorf("set up the guest's link: %w", err)
		}
	}
	return nil
}

func (s *space) address(l netlink.Link, p netip.Prefix) error {
	a := &netlink.Addr{IPNet: ipNet(p)}
	if p.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	return s.links.AddrReplace(l, a)
}

func (s *space) neighbour(index int, addr netip.Addr, mac net.HardwareAddr) error {
	return s.links.NeighSet(&netlink.Neigh{
		LinkIndex: index, IP: addr.AsSlice(), HardwareAddr: mac, State: netlink.NUD_PERMANENT, Family: family(addr),
	})
}

// anyIP makes every synthetic address a local address of the namespace, so that one socket accepts connections to all.
// The route is in the main table, where the link's longer prefix has precedence.
func (s *space) anyIP(lo int) error {
	return s.links.RouteReplace(&netlink.Route{
		LinkIndex: lo, Dst: ipNet(netpolicy.Synthetic), Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_MAIN, Scope: netlink.SCOPE_HOST,
	})
}

func family(a netip.Addr) int {
	if a.Is4() {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
