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

// forwarding manages the host's settings for the forwarding of direct flows. A file on the host notes each changed
// setting with its value before and after. The last sandbox to end restores them; if it was killed, Sweep does.
type forwarding struct {
	host    *space
	name    string // of this sandbox's uplink
	changed []change
	notes   *os.File // set while alone runs
}

// change is a changed setting, by its path below /proc/sys/net.
type change struct{ setting, before, after string }

// forwarder is a device, or with IPv6 every device, that forwards only because Custody has enabled it.
type forwarder struct {
	family int    // netlink.FAMILY_V4 or FAMILY_V6
	device string // empty: every device
}

// uplinkAlias marks Custody's uplinks, since other devices can have similar names.
const uplinkAlias = "custody uplink"

// forward enables forwarding between the uplink and the devices with routes to other networks. For IPv6 this needs the
// force_forwarding of Linux 6.17; on older kernels it is enabled for all devices, and those that accept router
// advertisements are set to continue to do so.
func forward(ctx context.Context, host *space, name string) (*forwarding, error) {
	f := &forwarding{host: host, name: name}
	return f, f.alone(ctx, f.begin)
}

func (f *forwarding) begin() error {
	l, err := f.host.links.LinkByName(f.name)
	if err == nil {
		err = f.host.links.LinkSetAlias(l, uplinkAlias)
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
	return f.host.in(func() error {
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
	case now == "", now == "1": // a host without IPv6, or one that already forwards
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
		// Restoring the global setting disables forwarding on all devices, so this device's setting must be restored
		// after it.
		if s := conf("ipv6", d.Name(), "forwarding"); s != all && read(s) == "1" {
			if err := f.note(change{s, "1", "0"}); err != nil {
				return err
			}
		}
	}
	return f.change(all, "1")
}

// change notes a setting and changes it, if it differs. The uplink's own settings are not noted.
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

// opened returns the devices that forward only because Custody has enabled it.
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

// notesDir has a file for each network namespace, with a line for each change.
const notesDir = "/run/custody/forwarding"

func notesOf(namespace *unix.Stat_t) string {
	return path.Join(notesDir, strconv.FormatUint(namespace.Ino, 10))
}

// alone runs do while no other process changes the forwarding of this namespace.
func (f *forwarding) alone(ctx context.Context, do func() error) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.host.handle), &st); err != nil {
		return fmt.Errorf("identify the host's network namespace: %w", err)
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

// lock opens and locks the notes. It returns false if another process has removed them meanwhile.
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
		// An incomplete line belongs to a change that was not made.
		if words := strings.Fields(line); len(words) == 3 && strings.HasSuffix(line, "\n") {
			all = append(all, change{words[0], words[1], words[2]})
		}
	}
	return all, nil
}

// note writes a change to the notes before it is made.
func (f *forwarding) note(c change) error {
	// It begins a new line, because a killed process may have left an incomplete one.
	if _, err := fmt.Fprintf(f.notes, "\n%s %s %s\n", c.setting, c.before, c.after); err != nil {
		return fmt.Errorf("note which settings are changed: %w", err)
	}
	f.changed = append(f.changed, c)
	return nil
}

// Sweep removes the uplinks that killed processes have left in the calling thread's namespace, and restores the settings
// that they changed there, unless a live sandbox still needs them. It is cheap if there is nothing to do. ctx bounds the
// wait for other processes, which is at most 30 s.
func Sweep(ctx context.Context) error {
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		return fmt.Errorf("identify the current network namespace: %w", err)
	}
	if _, err := os.Stat(notesOf(&st)); err != nil {
		return ignoreMissing(err) // no sandbox has changed settings here
	}
	host, err := currentSpace()
	if err != nil {
		return err
	}
	f := &forwarding{host: host}
	return errors.Join(f.restore(ctx), host.close())
}

// removeDead removes the uplinks of killed processes. Their namespaces can exist for minutes longer, while the kernel
// ends orphaned connections, but their guards cannot.
func (f *forwarding) removeDead() error {
	links, err := f.uplinks()
	if err != nil || len(links) == 0 {
		return err
	}
	c, err := nftables.New(nftables.WithNetNSFd(int(f.host.handle)))
	if err != nil {
		return fmt.Errorf("list the host's tables of nft: %w", err)
	}
	tables, err := c.ListTables()
	if err != nil {
		return fmt.Errorf("list the host's tables of nft: %w", err)
	}
	var errs []error
	for _, l := range links {
		if slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == guardName(l.Attrs().Name) }) {
			continue
		}
		if err := f.host.links.LinkDel(l); err != nil && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("remove the uplink %s, whose owner was killed: %w", l.Attrs().Name, err))
		}
	}
	return errors.Join(errs...)
}

func conf(family, device, key string) string { return path.Join(family, "conf", device, key) }

// read returns a setting of the calling thread's namespace, or "" if it does not exist.
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

// uplinks returns the uplinks of other sandboxes.
func (f *forwarding) uplinks() ([]netlink.Link, error) {
	all, err := f.host.links.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list the host's devices: %w", err)
	}
	return slices.DeleteFunc(all, func(l netlink.Link) bool {
		return l.Attrs().Alias != uplinkAlias || l.Attrs().Name == f.name
	}), nil
}

// waysOut returns the devices of the host's routes.
func (f *forwarding) waysOut() ([]string, error) {
	routes, err := f.host.links.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("list the host's routes: %w", err)
	}
	var names []string
	for _, r := range routes {
		l, err := f.host.links.LinkByIndex(r.LinkIndex)
		if err != nil || l.Attrs().Flags&unix.IFF_LOOPBACK != 0 || strings.HasPrefix(l.Attrs().Name, hostPrefix) {
			continue
		}
		names = append(names, l.Attrs().Name)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// restore restores the changed settings, if no other sandbox needs them. A setting that now has another value was
// changed by another program, and is left alone.
func (f *forwarding) restore(ctx context.Context) error {
	return f.alone(ctx, func() error {
		if err := f.removeDead(); err != nil {
			return err
		}
		if others, err := f.uplinks(); err != nil || len(others) > 0 {
			return err
		}
		changed, err := f.noted()
		if err != nil {
			return err
		}
		err = f.host.in(func() error {
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
