package fence

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// forwarding is what was changed in the site so that it forwards for sandboxes.
// A device's alias tells the processes of other sandboxes which devices forward only
// because of us; the last to end puts them back. After a kill -9 of the last they
// stay as they are, until somebody sets them.
type forwarding struct {
	site   *space
	name   string   // of the own uplink
	opened []string // devices that forwarded nothing before
}

const aliasPrefix = "custody forwards: "

// forward has the site forward between the uplink and the devices that lead out.
// IPv6 needs Linux 6.17's force_forwarding; before that it is switched on for all
// devices, and those that take router advertisements are told to go on doing so.
func forward(site *space, name string) (*forwarding, error) {
	f := &forwarding{site: site, name: name}
	others, err := f.others()
	if err != nil {
		return f, err
	}
	for _, l := range others {
		for d := range strings.FieldsSeq(strings.TrimPrefix(l.Attrs().Alias, aliasPrefix)) {
			f.opened = append(f.opened, d)
		}
	}
	ways, err := f.waysOut()
	if err != nil {
		return f, err
	}
	return f, site.in(func() error {
		for _, d := range ways {
			if forwards("ipv4", d) == "0" {
				f.opened = append(f.opened, d)
			}
		}
		slices.Sort(f.opened)
		f.opened = slices.Compact(f.opened)
		if err := f.announce(); err != nil {
			return err
		}
		for _, d := range append(ways, name) {
			if err := open4and6(d); err != nil {
				return err
			}
		}
		return nil
	})
}

func (f *forwarding) announce() error {
	l, err := f.site.links.LinkByName(f.name)
	if err == nil {
		err = f.site.links.LinkSetAlias(l, aliasPrefix+strings.Join(f.opened, " "))
	}
	if err != nil {
		return fmt.Errorf("note which devices forward: %w", err)
	}
	return nil
}

func conf(family, device, key string) string {
	return path.Join("/proc/sys/net", family, "conf", device, key)
}

func forwards(family, device string) string {
	b, _ := os.ReadFile(conf(family, device, "forwarding"))
	return strings.TrimSpace(string(b))
}

func open4and6(device string) error {
	if err := write("ipv4", device, "forwarding", "1"); err != nil {
		return err
	}
	err := write("ipv6", device, "force_forwarding", "1")
	if !errors.Is(err, os.ErrNotExist) || forwards("ipv6", "all") != "0" {
		return ignoreMissing(err)
	}
	devices, err := os.ReadDir("/proc/sys/net/ipv6/conf")
	if err != nil {
		return ignoreMissing(err) // a site without IPv6
	}
	for _, d := range devices {
		if ra, _ := os.ReadFile(conf("ipv6", d.Name(), "accept_ra")); strings.TrimSpace(string(ra)) == "1" {
			if err := write("ipv6", d.Name(), "accept_ra", "2"); err != nil {
				return err
			}
		}
	}
	return write("ipv6", "all", "forwarding", "1")
}

func write(family, device, key, value string) error {
	if err := os.WriteFile(conf(family, device, key), []byte(value), 0); err != nil {
		return fmt.Errorf("have %s forward for direct flows: %w", device, err)
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// others are the uplinks of other sandboxes.
func (f *forwarding) others() ([]netlink.Link, error) {
	all, err := f.site.links.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list the site's devices: %w", err)
	}
	return slices.DeleteFunc(all, func(l netlink.Link) bool {
		return !strings.HasPrefix(l.Attrs().Alias, strings.TrimSpace(aliasPrefix)) || l.Attrs().Name == f.name
	}), nil
}

// waysOut are the devices that routes of the site lead to.
func (f *forwarding) waysOut() ([]string, error) {
	routes, err := f.site.links.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("list the site's routes: %w", err)
	}
	var names []string
	for _, r := range routes {
		l, err := f.site.links.LinkByIndex(r.LinkIndex)
		if err != nil || l.Attrs().Flags&unix.IFF_LOOPBACK != 0 || strings.HasPrefix(l.Attrs().Name, sitePrefix) {
			continue
		}
		names = append(names, l.Attrs().Name)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// restore puts back what was changed, if no other sandbox needs it. IPv6's general
// switch stays: whoever set it, others may rely on it by now.
func (f *forwarding) restore() error {
	others, err := f.others()
	if err != nil || len(others) > 0 {
		return err
	}
	return f.site.in(func() error {
		var errs []error
		for _, d := range f.opened {
			errs = append(errs, ignoreMissing(write("ipv4", d, "forwarding", "0")), ignoreMissing(write("ipv6", d, "force_forwarding", "0")))
		}
		return errors.Join(errs...)
	})
}
