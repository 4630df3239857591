package fence

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// forwarding is what was changed in the site so that it forwards for sandboxes.
// A file names the devices that forward only because of us, for all sandboxes of the
// site: the last to end puts them back, and after a kill -9 of that one Sweep does.
type forwarding struct {
	site   *space
	name   string   // of the own uplink
	opened []string // devices that forwarded nothing before
	notes  *os.File // while alone runs
}

// uplinkAlias tells our uplinks from devices that only have such a name.
const uplinkAlias = "custody uplink"

// forward has the site forward between the uplink and the devices that lead out.
// IPv6 needs Linux 6.17's force_forwarding; before that it is switched on for all
// devices, and those that take router advertisements are told to go on doing so.
func forward(site *space, name string) (*forwarding, error) {
	f := &forwarding{site: site, name: name}
	return f, f.alone(f.begin)
}

func (f *forwarding) begin() error {
	l, err := f.site.links.LinkByName(f.name)
	if err == nil {
		err = f.site.links.LinkSetAlias(l, uplinkAlias)
	}
	if err != nil {
		return fmt.Errorf("name the uplink: %w", err)
	}
	if f.opened, err = f.noted(); err != nil {
		return err
	}
	ways, err := f.waysOut()
	if err != nil {
		return err
	}
	return f.site.in(func() error {
		for _, d := range ways {
			if forwards("ipv4", d) == "0" {
				f.opened = append(f.opened, d)
			}
		}
		slices.Sort(f.opened)
		f.opened = slices.Compact(f.opened)
		if err := f.note(); err != nil {
			return err
		}
		for _, d := range append(ways, f.name) {
			if err := open4and6(d); err != nil {
				return err
			}
		}
		return nil
	})
}

// notesDir has a file for each site, which begins with a line for each device.
const notesDir = "/run/custody/forwarding"

// alone runs do while no other process changes the forwarding of this site.
func (f *forwarding) alone(do func() error) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.site.handle), &st); err != nil {
		return fmt.Errorf("look at the site's namespace: %w", err)
	}
	if err := os.MkdirAll(notesDir, 0o700); err != nil {
		return err
	}
	for {
		ours, err := f.lock(path.Join(notesDir, strconv.FormatUint(st.Ino, 10)))
		if err != nil {
			return fmt.Errorf("note which devices forward: %w", err)
		}
		if ours {
			break
		}
		f.notes.Close()
	}
	defer f.notes.Close()
	return do()
}

// lock opens and locks the notes. It says false when they were removed meanwhile.
func (f *forwarding) lock(name string) (ours bool, err error) {
	if f.notes, err = os.OpenFile(name, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600); err != nil {
		return false, err
	}
	if err := unix.Flock(int(f.notes.Fd()), unix.LOCK_EX); err != nil {
		f.notes.Close()
		return false, err
	}
	there, err := os.Stat(name)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	here, err2 := f.notes.Stat()
	return err == nil && err2 == nil && os.SameFile(there, here), errors.Join(err, err2)
}

func (f *forwarding) noted() ([]string, error) {
	b, err := os.ReadFile(f.notes.Name())
	if err != nil {
		return nil, fmt.Errorf("read which devices forward: %w", err)
	}
	return strings.Fields(string(b)), nil
}

// note writes the devices down before they are changed. A line that is cut short names
// no device, or one that was not changed.
func (f *forwarding) note() error {
	_, err := f.notes.WriteString(strings.Join(f.opened, "\n") + "\n")
	if err != nil {
		return fmt.Errorf("note which devices forward: %w", err)
	}
	return nil
}

// Sweep puts back what processes that were killed have changed in the namespace of
// the calling thread, unless a sandbox there still needs it.
func Sweep() error {
	site, err := currentSpace()
	if err != nil {
		return err
	}
	f := &forwarding{site: site}
	return errors.Join(f.restore(), site.close())
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

// others says whether there are uplinks of other sandboxes.
func (f *forwarding) others() (bool, error) {
	all, err := f.site.links.LinkList()
	if err != nil {
		return false, fmt.Errorf("list the site's devices: %w", err)
	}
	return slices.ContainsFunc(all, func(l netlink.Link) bool {
		return l.Attrs().Alias == uplinkAlias && l.Attrs().Name != f.name
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
	return f.alone(func() error {
		if others, err := f.others(); err != nil || others {
			return err
		}
		opened, err := f.noted()
		if err != nil {
			return err
		}
		err = f.site.in(func() error {
			var errs []error
			for _, d := range opened {
				errs = append(errs, ignoreMissing(write("ipv4", d, "forwarding", "0")), ignoreMissing(write("ipv6", d, "force_forwarding", "0")))
			}
			return errors.Join(errs...)
		})
		if err != nil {
			return err
		}
		return os.Remove(f.notes.Name())
	})
}
