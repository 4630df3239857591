package fence

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// attachers returns the attachers that the kernel supports.
func attachers(t testing.TB) map[string]attacher {
	t.Helper()
	ways := map[string]attacher{"clsact": attachClsact}
	if hasTCX() {
		ways["tcx"] = attachTCX
	}
	return ways
}

// hasTCX reports whether the programs of the loopback device can be queried.
func hasTCX() bool {
	_, err := link.QueryPrograms(link.QueryOptions{Target: 1, Attach: ebpf.AttachTCXIngress})
	return err == nil
}

// onEach runs a test with each attacher and each IP version.
func onEach(t *testing.T, run func(t *testing.T, way attacher, peer netip.Addr)) {
	for name, way := range attachers(t) {
		for family, addr := range peers {
			t.Run(name+"/"+family, func(t *testing.T) {
				t.Parallel()
				run(t, way, addr)
			})
		}
	}
}

// TCX is the default if the kernel has it.
func TestAttachPrefersTCX(t *testing.T) {
	t.Parallel()
	f, _ := newFence(t, nil)
	must(t, f.own().space.in(func() error {
		tcx, clsact, err := attached(f.own().index, true)
		if err == nil && (len(tcx) > 0) != hasTCX() || len(tcx)+len(clsact) != 1 {
			err = fmt.Errorf("TCX %v, clsact %v", tcx, clsact)
		}
		return err
	}))
}

// attached returns the programs attached to a device in the thread's namespace, for received or sent packets.
func attached(index int, inbound bool) (tcx, clsact []ebpf.ProgramID, err error) {
	where, parent := ebpf.AttachTCXEgress, uint32(netlink.HANDLE_MIN_EGRESS)
	if inbound {
		where, parent = ebpf.AttachTCXIngress, netlink.HANDLE_MIN_INGRESS
	}
	if hasTCX() {
		found, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: where})
		if err != nil {
			return nil, nil, err
		}
		for _, p := range found.Programs {
			tcx = append(tcx, p.ID)
		}
	}
	device, err := netlink.LinkByIndex(index)
	if err != nil {
		return nil, nil, err
	}
	filters, err := netlink.FilterList(device, parent)
	if err != nil {
		return nil, nil, err
	}
	for _, f := range filters {
		if f, ok := f.(*netlink.BpfFilter); ok {
			clsact = append(clsact, ebpf.ProgramID(f.Id))
		}
	}
	return tcx, clsact, nil
}

// detachAll takes every program off a device, by force, as another program of root might.
func detachAll(t *testing.T, s *space, device string) {
	t.Helper()
	index := lookup(t, s, device).Attrs().Index
	must(t, s.in(func() error {
		for inbound, where := range map[bool]ebpf.AttachType{true: ebpf.AttachTCXIngress, false: ebpf.AttachTCXEgress} {
			tcx, _, err := attached(index, inbound)
			if err != nil {
				return err
			}
			for _, id := range tcx {
				if err := detach(index, where, id); err != nil {
					return err
				}
			}
		}
		qdiscs, err := netlink.QdiscList(lookup(t, s, device))
		if err != nil {
			return err
		}
		for _, q := range qdiscs {
			if q.Type() != "clsact" {
				continue
			}
			if err := netlink.QdiscDel(q); err != nil {
				return err
			}
		}
		for _, inbound := range []bool{true, false} {
			if tcx, clsact, err := attached(index, inbound); err != nil || len(tcx)+len(clsact) > 0 {
				return fmt.Errorf("%s still has the programs %v %v, %v", device, tcx, clsact, err)
			}
		}
		return nil
	}))
}

func detach(index int, where ebpf.AttachType, id ebpf.ProgramID) error {
	prog, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return err
	}
	defer prog.Close()
	return link.RawDetachProgram(link.RawDetachProgramOptions{Target: index, Program: prog, Attach: where})
}

// programsOf returns the kernel's ids of a namespace's programs.
func programsOf(t testing.TB, s *space) (ids []ebpf.ProgramID) {
	t.Helper()
	must(t, s.in(func() error {
		for device, directions := range map[string][]bool{tapName: {true, false}, uplinkName: {true}} {
			l, err := s.links.LinkByName(device)
			if err != nil {
				continue // no direct rule
			}
			for _, inbound := range directions {
				tcx, clsact, err := attached(l.Attrs().Index, inbound)
				if err != nil {
					return err
				}
				gates := append(tcx, clsact...)
				if len(gates) != 1 {
					return fmt.Errorf("%s has the programs %v", device, gates)
				}
				ids = append(append(ids, gates...), admittedBy(t, gates[0])...)
			}
		}
		return nil
	}))
	return ids
}
