package fence

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/internal/flock"
	"github.com/custody-project/custody/internal/regular"
)

// forwarding is what was changed in the site so that it forwards for sandboxes.
// A file notes each setting with its value before and after, for all sandboxes of the
// site: the last to end puts them back, and after a kill -9 of that one Sweep does.
type forwarding struct {
	site    *space
	name    string // of the own uplink
	changed []change
	notes   *os.File // while alone runs
}

// change is a setting, by its path below /proc/sys/net, and what became of it.
type change struct{ setting, before, after string }

// forwarder is what forwards only because of us: a device, or with IPv6 every device.
type forwarder struct {
	family int    // netlink.FAMILY_V4 or FAMILY_V6
	device string // empty: every device
}

// uplinkAlias marks our uplinks: other devices can have such a name.
const uplinkAlias = "custody uplink"

// forward has the site forward between the uplink and the devices that lead out.
// IPv6 needs Linux 6.17's force_forwarding; before that it is switched on for all
// devices, and those that take router advertisements are set to go on doing so.
func forward(ctx context.Context, site *space, name string) (*forwarding, error) {
	f := &forwarding{site: site, name: name}
	return f, f.alone(ctx, f.begin)
}

func (f *forwarding) begin() error {
	l, err := f.site.links.LinkByName(f.name)
	if err == nil {
		err = f.site.links.LinkSetAlias(l, uplinkAlias)
	}
	if err != nil {
		return fmt.Errorf("name the uplink: %w", err)
	}
	if f.changed, err = f.noted(); err != nil {
		return err
	}
	ways, err := f.waysOut()
	if err != nil {
		return err
	}
	return f.site.in(func() error {
		for _, d := range append(ways, f.name) {
			if err := f.change(conf("ipv4", d, "forwarding"), "1"); err != nil {
				return err
			}
		}
		return f.forward6(append(ways, f.name))
	})
}

func (f *forwarding) forward6(devices []string) error {
	all := conf("ipv6", "all", "forwarding")
	switch now := read(all); {
	case read(conf("ipv6", f.name, "force_forwarding")) != "":
		for _, d := range devices {
			if err := f.change(conf("ipv6", d, "force_forwarding"), "1"); err != nil {
				return err
			}
		}
		return nil
	case now == "", now == "1": // a site without IPv6, or one that forwards anyway
		return nil
	}
	entries, err := os.ReadDir("/proc/sys/net/ipv6/conf")
	if err != nil {
		return fmt.Errorf("list the devices with IPv6: %w", err)
	}
	for _, d := range entries {
		if read(conf("ipv6", d.Name(), "accept_ra")) == "1" {
			if err := f.change(conf("ipv6", d.Name(), "accept_ra"), "2"); err != nil {
				return err
			}
		}
		// The general switch, put back, switches all devices off: this one is to be on again after it.
		if s := conf("ipv6", d.Name(), "forwarding"); s != all && read(s) == "1" {
			if err := f.note(change{s, "1", "0"}); err != nil {
				return err
			}
		}
	}
	return f.change(all, "1")
}

// change notes a setting and changes it, if it is another. The own uplink's goes with it.
func (f *forwarding) change(setting, value string) error {
	before := read(setting)
	if before == value || before == "" {
		return nil
	}
	if path.Base(path.Dir(setting)) != f.name {
		if err := f.note(change{setting, before, value}); err != nil {
			return err
		}
	}
	return write(setting, value)
}

// opened is what forwards only because of us.
func (f *forwarding) opened() []forwarder {
	var all []forwarder
	for _, c := range f.changed {
		family, device := netlink.FAMILY_V4, path.Base(path.Dir(c.setting))
		if strings.HasPrefix(c.setting, "ipv6/") {
			family = netlink.FAMILY_V6
		}
		if c.after != "1" {
			continue
		}
		switch {
		case device == "all":
			all = append(all, forwarder{family, ""})
		case path.Base(c.setting) == "forwarding" || path.Base(c.setting) == "force_forwarding":
			all = append(all, forwarder{family, device})
		}
	}
	return all
}

// notesDir has a file for each site, with a line for each change.
const notesDir = "/run/custody/forwarding"

func notesOf(namespace *unix.Stat_t) string {
	return path.Join(notesDir, strconv.FormatUint(namespace.Ino, 10))
}

// alone runs do while no other process changes the forwarding of this site.
func (f *forwarding) alone(ctx context.Context, do func() error) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.site.handle), &st); err != nil {
		return fmt.Errorf("look at the site's namespace: %w", err)
	}
	if err := os.MkdirAll(notesDir, 0o700); err != nil {
		return err
	}
	for {
		ours, err := f.lock(ctx, notesOf(&st))
		if err != nil {
			return fmt.Errorf("note which settings are changed: %w", err)
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
func (f *forwarding) lock(ctx context.Context, name string) (ours bool, err error) {
	if f.notes, err = regular.OpenFile(name, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600); err != nil {
		return false, err
	}
	if err := flock.Lock(ctx, f.notes, unix.LOCK_EX); err != nil {
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

func (f *forwarding) noted() ([]change, error) {
	b, err := os.ReadFile(f.notes.Name())
	if err != nil {
		return nil, fmt.Errorf("read which settings were changed: %w", err)
	}
	var all []change
	for line := range strings.Lines(string(b)) {
		// A line that was cut short is of a change that was not made.
		if words := strings.Fields(line); len(words) == 3 && strings.HasSuffix(line, "\n") {
			all = append(all, change{words[0], words[1], words[2]})
		}
	}
	return all, nil
}

// note writes a change down before it is made.
func (f *forwarding) note(c change) error {
	// It begins a line of its own, whatever a process that was killed left at the end.
	if _, err := fmt.Fprintf(f.notes, "\n%s %s %s\n", c.setting, c.before, c.after); err != nil {
		return fmt.Errorf("note which settings are changed: %w", err)
	}
	f.changed = append(f.changed, c)
	return nil
}

// Sweep removes the uplinks that killed processes have left in the namespace of the calling thread, and restores the
// settings that they changed there, unless a live sandbox still needs them. It is cheap if there is nothing to do. ctx
// bounds the wait for other processes, which is 30 s at most.
func Sweep(ctx context.Context) error {
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		return fmt.Errorf("look at the own network namespace: %w", err)
	}
	if _, err := os.Stat(notesOf(&st)); err != nil {
		return ignoreMissing(err) // no sandbox has changed anything here
	}
	site, err := currentSpace()
	if err != nil {
		return err
	}
	f := &forwarding{site: site}
	return errors.Join(f.restore(ctx), site.close())
}

// bury removes the uplinks of processes that were killed. Their namespaces can outlive them for
// minutes, while the kernel ends connections for which no one is there; their guards cannot.
func (f *forwarding) bury() error {
	links, err := f.uplinks()
	if err != nil || len(links) == 0 {
		return err
	}
	c, err := nftables.New(nftables.WithNetNSFd(int(f.site.handle)))
	if err != nil {
		return fmt.Errorf("list the site's tables of nft: %w", err)
	}
	tables, err := c.ListTables()
	if err != nil {
		return fmt.Errorf("list the site's tables of nft: %w", err)
	}
	var errs []error
	for _, l := range links {
		if slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == guardName(l.Attrs().Name) }) {
			continue
		}
		if err := f.site.links.LinkDel(l); err != nil && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("remove the uplink %s, whose owner was killed: %w", l.Attrs().Name, err))
		}
	}
	return errors.Join(errs...)
}

func conf(family, device, key string) string { return path.Join(family, "conf", device, key) }

// read returns a setting of the calling thread's namespace, "" where there is none.
func read(setting string) string {
	b, _ := os.ReadFile(path.Join("/proc/sys/net", setting))
	return strings.TrimSpace(string(b))
}

func write(setting, value string) error {
	if err := os.WriteFile(path.Join("/proc/sys/net", setting), []byte(value), 0); err != nil {
		return fmt.Errorf("forward direct flows: %w", err)
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// uplinks are those of other sandboxes.
func (f *forwarding) uplinks() ([]netlink.Link, error) {
	all, err := f.site.links.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list the site's devices: %w", err)
	}
	return slices.DeleteFunc(all, func(l netlink.Link) bool {
		return l.Attrs().Alias != uplinkAlias || l.Attrs().Name == f.name
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

// restore puts back what was changed, if no other sandbox needs it. What has another
// value by now was changed by another program, and stays.
func (f *forwarding) restore(ctx context.Context) error {
	return f.alone(ctx, func() error {
		if err := f.bury(); err != nil {
			return err
		}
		if others, err := f.uplinks(); err != nil || len(others) > 0 {
			return err
		}
		changed, err := f.noted()
		if err != nil {
			return err
		}
		err = f.site.in(func() error {
			var errs []error
			for _, c := range slices.Backward(changed) {
				if read(c.setting) == c.after {
					errs = append(errs, ignoreMissing(write(c.setting, c.before)))
				}
			}
			return errors.Join(errs...)
		})
		if err != nil {
			return err
		}
		return os.Remove(f.notes.Name())
	})
}
