package simnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// spaces are the network's namespaces. See the package's diagram.
type spaces struct{ site, world, rest *space }

// make makes the namespaces.
func (n *spaces) make() (err error) {
	for name, s := range map[string]**space{"site": &n.site, "world": &n.world, "rest": &n.rest} {
		if *s, err = newSpace(name); err != nil {
			return err
		}
		// All forward packets, as hosts with containers do. Reverse path filters and router discovery are off.
		values := map[string]string{
			"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1",
			"ipv4/conf/all/rp_filter": "0", "ipv4/conf/default/rp_filter": "0",
			"ipv6/conf/default/accept_ra": "0", "ipv6/conf/default/router_solicitations": "0",
		}
		if name != "site" {
			values["ipv6/ip_nonlocal_bind"] = "1" // servers respond from addresses that only a route makes local
		}
		err = (*s).sysctl(values)
		if err != nil {
			return fmt.Errorf("namespace %s: %w", name, err)
		}
	}
	return nil
}

// close removes the namespaces.
func (n *spaces) close() error {
	var errs []error
	for _, s := range []*space{n.site, n.world, n.rest} {
		if s != nil {
			errs = append(errs, s.close())
		}
	}
	return errors.Join(errs...)
}

// link makes the links and the routes.
func (n *spaces) link() error {
	err := errors.Join(
		wire(n.site, "site0", n.world, "up0"),
		wire(n.world, "out0", n.rest, "rest0"),
	)
	if err != nil {
		return err
	}
	return errors.Join(
		n.site.addresses("site0", "93.184.1.2/24", "10.66.0.2/24", "2600:dead:1::2/64", "fd66::2/64"),
		n.site.via("site0", "93.184.1.1", "2600:dead:1::1"),

		n.world.addresses("up0", "93.184.1.1/24", "10.66.0.1/24", "2600:dead:1::1/64", "fd66::1/64"),
		n.world.addresses("lo", Resolver4.Addr().String()+"/32", Resolver6.Addr().String()+"/128", Direct6.String()+"/128", Quiet6.String()+"/128"),
		n.world.local(hosts4, hosts6, many4),
		n.world.addresses("out0", "93.184.66.1/24", "2600:dead:66::1/64"),
		n.world.via("out0", "93.184.66.66", "2600:dead:66::66"),

		n.rest.addresses("rest0", "93.184.66.66/24", "2600:dead:66::66/64"),
		n.rest.via("rest0", "93.184.66.1", "2600:dead:66::1"),
		n.rest.everything("rest0"),

		know(n.site, "site0", n.world, "up0"),
		know(n.world, "out0", n.rest, "rest0"),
	)
}

// know sets the two ends of a link as neighbours of each other, so that no first packet is lost to neighbour discovery.
func know(a *space, nameA string, b *space, nameB string) error {
	return errors.Join(a.meet(nameA, b, nameB), b.meet(nameB, a, nameA))
}

// meet waits until the space's end of a link is up, and sets the other end's addresses as its neighbours.
func (s *space) meet(name string, other *space, otherName string) error {
	there, err := other.link.LinkByName(otherName)
	if err != nil {
		return fmt.Errorf("%s: %w", otherName, err)
	}
	known, err := other.link.AddrList(there, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("%s: %w", otherName, err)
	}
	return s.with(name, func(l netlink.Link) (err error) {
		for end := time.Now().Add(5 * time.Second); l.Attrs().OperState != netlink.OperUp; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				return errors.New("the link does not come up")
			}
			if l, err = s.link.LinkByName(name); err != nil {
				return err
			}
		}
		for _, a := range known {
			n := &netlink.Neigh{LinkIndex: l.Attrs().Index, IP: a.IP, HardwareAddr: there.Attrs().HardwareAddr, State: netlink.NUD_PERMANENT}
			if err := s.link.NeighSet(n); err != nil {
				return fmt.Errorf("neighbour %s: %w", a.IP, err)
			}
		}
		return nil
	})
}

// wire makes a veth pair, one interface in each space, and brings them up.
func wire(a *space, nameA string, b *space, nameB string) error {
	pair := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: nameA, Namespace: netlink.NsFd(a.file.Fd())},
		PeerName:  nameB, PeerNamespace: netlink.NsFd(b.file.Fd()),
	}
	if err := a.link.LinkAdd(pair); err != nil {
		return fmt.Errorf("wire %s to %s: %w", nameA, nameB, err)
	}
	return errors.Join(a.up(nameA), b.up(nameB))
}

func (s *space) up(name string) error {
	return s.with(name, s.link.LinkSetUp)
}

func (s *space) with(name string, f func(netlink.Link) error) error {
	l, err := s.link.LinkByName(name)
	if err == nil {
		err = f(l)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (s *space) addresses(name string, list ...string) error {
	return s.with(name, func(l netlink.Link) error {
		for _, text := range list {
			a, err := netlink.ParseAddr(text)
			if err != nil {
				return err
			}
			if a.IP.To4() == nil {
				a.Flags = unix.IFA_F_NODAD
			}
			if err := s.link.AddrAdd(l, a); err != nil {
				return fmt.Errorf("address %s: %w", text, err)
			}
		}
		return nil
	})
}

// via adds default routes.
func (s *space) via(name string, gateways ...string) error {
	return s.with(name, func(l netlink.Link) error {
		for _, g := range gateways {
			if err := s.link.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Gw: net.ParseIP(g)}); err != nil {
				return fmt.Errorf("default route via %s: %w", g, err)
			}
		}
		return nil
	})
}

// local makes all addresses of ranges local to the space (AnyIP).
func (s *space) local(ranges ...netip.Prefix) error {
	return s.with("lo", func(l netlink.Link) error {
		for _, p := range ranges {
			dst := &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
			r := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: dst, Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST}
			if err := s.link.RouteAdd(r); err != nil {
				return fmt.Errorf("local range %s: %w", p, err)
			}
		}
		return nil
	})
}

// everything makes every address local to the space for packets that arrive on an interface. The table of local
// addresses then has all addresses, so routing uses it only for those packets.
func (s *space) everything(name string) error {
	err := s.local(netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0"))
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		in, out, first := netlink.NewRule(), netlink.NewRule(), netlink.NewRule()
		in.Family, in.Priority, in.Table, in.IifName = family, 10, unix.RT_TABLE_LOCAL, name
		out.Family, out.Priority, out.Table = family, 20, unix.RT_TABLE_MAIN
		first.Family, first.Priority, first.Table = family, 0, unix.RT_TABLE_LOCAL
		err = errors.Join(err, s.link.RuleAdd(in), s.link.RuleAdd(out), s.link.RuleDel(first))
	}
	return err
}
