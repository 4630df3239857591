package fence

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// An attacher attaches a program to the packets that a device in the calling thread's namespace receives (inbound) or
// sends. The program stays until the device is removed: this process has no descriptor for it.
type attacher func(index int, inbound bool, program *ebpf.Program) error

// attach uses TCX, or clsact if the kernel has no TCX (before Linux 6.6). Both run the program at the same place, and
// interpret its verdicts in the same way.
func attach(index int, inbound bool, program *ebpf.Program) error {
	err := attachTCX(index, inbound, program)
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, ebpf.ErrNotSupported) {
		return err
	}
	if fallback := attachClsact(index, inbound, program); fallback != nil {
		return fmt.Errorf("%w; %w", err, fallback)
	}
	return nil
}

func attachTCX(index int, inbound bool, program *ebpf.Program) error {
	where := ebpf.AttachTCXEgress
	if inbound {
		where = ebpf.AttachTCXIngress
	}
	if err := link.RawAttachProgram(link.RawAttachProgramOptions{Target: index, Program: program, Attach: where}); err != nil {
		return fmt.Errorf("with TCX: %w", err)
	}
	return nil
}

// attachClsact adds a filter in direct-action mode to the device's clsact queueing
// discipline: the program's return value is the verdict.
func attachClsact(index int, inbound bool, program *ebpf.Program) error {
	qdisc := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
	if err := netlink.QdiscAdd(qdisc); err != nil && !errors.Is(err, unix.EEXIST) { // the filter of the other direction has added it
		return fmt.Errorf("add a clsact queueing discipline (the module sch_ingress is needed): %w", err)
	}
	filter := &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: index, Parent: netlink.HANDLE_MIN_EGRESS, Handle: netlink.MakeHandle(0, 1), Protocol: unix.ETH_P_ALL, Priority: 1,
		},
		Fd: program.FD(), Name: "custody", DirectAction: true,
	}
	if inbound {
		filter.Parent = netlink.HANDLE_MIN_INGRESS
	}
	if err := netlink.FilterAdd(filter); err != nil {
		return fmt.Errorf("add a filter to clsact (the module cls_bpf is needed): %w", err)
	}
	return nil
}
