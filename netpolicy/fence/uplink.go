package fence

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	uplinkName = "up0"
	hostPrefix = "cust"
	maxUplinks = 1 << 15 // pairs in 198.19.0.0/16
)

// The ranges of the uplinks' addresses. Each uplink has a pair: the even address is the host's.
var (
	uplinks4 = netip.MustParsePrefix("198.19.0.0/16")
	uplinks6 = netip.MustParsePrefix("fdc5:7a1c:19d3::/112")

	uplinkMAC = net.HardwareAddr{0x02, 0xc0, 0xde, 1, 0, 2}
	hostMAC   = net.HardwareAddr{0x02, 0xc0, 0xde, 1, 0, 1}
)

// uplink is the veth pair of direct flows: up0 in the sandbox's namespace, cust<n> in the host's namespace, which is the
// one that Custody runs in.
type uplink struct {
	sandbox, host *space
	name          string // of the host's end
	number        int
	guard         *guard
	forwarding    *forwarding
}

// newUplink makes the veth pair. No packet passes it until its ends are up, and both packet filters are installed before
// that.
func newUplink(ctx context.Context, sandbox, host *space, g *gates, m marks, generation uint32) (u *uplink, err error) {
	u = &uplink{sandbox: sandbox, host: host}
	defer func() {
		if err != nil {
			err = errors.Join(err, u.close(m))
			u = nil
		}
	}()
	if err := u.makeVeth(ctx); err != nil {
		return u, err
	}
	index, err := u.configure(sandbox, uplinkName, 1)
	if err != nil {
		return u, err
	}
	if err := sandbox.in(func() error { return g.attachTo(index, fromUplink) }); err != nil {
		return u, err
	}
	if u.guard, err = newGuard(host, u); err != nil {
		return u, err
	}
	if err := sandbox.writeTable(m, generation); err != nil {
		return u, err
	}
	if _, err := u.configure(host, u.name, 0); err != nil {
		return u, err
	}
	if err := u.route(sandbox); err != nil {
		return u, err
	}
	if u.forwarding, err = forward(ctx, host, u.name); err != nil {
		return u, err
	}
	if err := u.guard.write(nil, u.forwarding.opened()); err != nil {
		return u, err
	}
	return u, sandbox.in(func() error { return sysctls{"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1"}.set() })
}

// makeVeth makes the veth pair with the first free number.
func (u *uplink) makeVeth(ctx context.Context) error {
	mtu := u.host.mtu()
	for u.number = range maxUplinks {
		if err := ctx.Err(); err != nil {
			return err
		}
		u.name = hostPrefix + strconv.Itoa(u.number)
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU, attrs.HardwareAddr = u.name, mtu, hostMAC
		err := u.host.links.LinkAdd(&netlink.Veth{
			LinkAttrs: attrs, PeerName: uplinkName, PeerMTU: uint32(mtu), PeerHardwareAddr: uplinkMAC,
			PeerNamespace: netlink.NsFd(u.sandbox.handle),
		})
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err != nil {
			u.name = ""
			return fmt.Errorf("make the veth pair for direct flows: %w", err)
		}
		return nil
	}
	u.name = ""
	return fmt.Errorf("make the veth pair for direct flows: the limit of %d sandboxes is reached", maxUplinks)
}

// configure sets the addresses and the neighbours of one end (side 0 is the host's), and brings it up.
func (u *uplink) configure(s *space, name string, side int) (index int, err error) {
	l, err := s.links.LinkByName(name)
	if err != nil {
		return 0, fmt.Errorf("find the end %s of the uplink: %w", name, err)
	}
	index = l.Attrs().Index
	mac := []net.HardwareAddr{uplinkMAC, hostMAC}[side]
	err = s.in(func() error {
		return sysctls{"ipv6/conf/" + name + "/accept_ra": "0", "ipv6/conf/" + name + "/autoconf": "0",
			"ipv6/conf/" + name + "/addr_gen_mode": "1", "ipv6/conf/" + name + "/disable_ipv6": "0"}.set()
	})
	steps := []error{
		err,
		s.address(l, netip.PrefixFrom(u.addr(uplinks4, side), 31)),
		s.address(l, netip.PrefixFrom(u.addr(uplinks6, side), 127)),
		s.links.LinkSetUp(l),
		s.neighbour(index, u.addr(uplinks4, 1-side), mac),
		s.neighbour(index, u.addr(uplinks6, 1-side), mac),
	}
	for _, err := range steps {
		if err != nil {
			return 0, fmt.Errorf("set up the end %s of the uplink: %w", name, err)
		}
	}
	return index, nil
}

// addr returns the address of a side, in a range whose last 16 bits are its number.
func (u *uplink) addr(in netip.Prefix, side int) netip.Addr {
	b := in.Addr().AsSlice()
	n := u.number*2 + side
	b[len(b)-2], b[len(b)-1] = byte(n>>8), byte(n)
	a, _ := netip.AddrFromSlice(b)
	return a
}

// route sets the sandbox's default routes to the host.
func (u *uplink) route(s *space) error {
	l, err := s.links.LinkByName(uplinkName)
	if err != nil {
		return fmt.Errorf("find the uplink: %w", err)
	}
	for _, in := range []netip.Prefix{uplinks4, uplinks6} {
		via := u.addr(in, 0)
		all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if via.Is6() {
			all = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		err := s.links.RouteReplace(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: ipNet(all), Gw: via.AsSlice(), Flags: int(netlink.FLAG_ONLINK)})
		if err != nil {
			return fmt.Errorf("route direct flows to the host: %w", err)
		}
	}
	return nil
}

// mtu returns the smallest MTU of the devices with default routes, so that the first hop reports it to the sandbox.
func (s *space) mtu() int {
	mtu := linkMTU
	routes, err := s.links.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return mtu
	}
	for _, r := range routes {
		if ones, _ := r.Dst.Mask.Size(); r.Dst != nil && ones > 0 {
			continue
		}
		if l, err := s.links.LinkByIndex(r.LinkIndex); err == nil && l.Attrs().MTU >= 1280 {
			mtu = min(mtu, l.Attrs().MTU)
		}
	}
	return mtu
}

// close removes the veth pair, its tables and settings.
func (u *uplink) close(m marks) error {
	var errs []error
	errs = append(errs, u.sandbox.in(func() error { return sysctls{"ipv4/ip_forward": "0", "ipv6/conf/all/forwarding": "0"}.set() }))
	if u.name != "" {
		if l, err := u.host.links.LinkByName(u.name); err == nil {
			errs = append(errs, u.host.links.LinkDel(l))
		}
	}
	errs = append(errs, u.sandbox.writeTable(m, 0))
	if u.forwarding != nil {
		errs = append(errs, u.forwarding.restore(context.Background()))
	}
	if u.guard != nil {
		errs = append(errs, u.guard.close())
	}
	return errors.Join(errs...)
}
