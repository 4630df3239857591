package fence

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// A slot is a gate's index in the table of admitted programs.
type slot uint32

const (
	fromGuest slot = iota
	toGuest
	fromUplink
	slots
)

// inbound reports whether a gate filters packets that its device receives, rather than sends.
func (s slot) inbound() bool { return s != toGuest }

// gates are the eBPF programs on the devices. They belong to the devices. A gate passes packets to the program that was
// admitted to its slot, and drops them if there is none. When the process of the Fence ends, for whatever reason, the
// kernel empties the table, because only that process has it open.
//
// The kernel needs some 10 ms to attach a program to a device, and no time to admit one. So the gates are attached
// before the policy's programs are even verified.
type gates struct {
	gatesObjects
	attach attacher
}

func newGates(attach attacher) (*gates, error) {
	g := &gates{attach: attach}
	if err := loadGatesObjects(&g.gatesObjects, nil); err != nil {
		return nil, refused(err)
	}
	return g, nil
}

// takeAdmitted returns the table of admitted programs, which the gates no longer own.
func (g *gates) takeAdmitted() *ebpf.Map {
	m := g.Admitted
	g.Admitted = nil
	return m
}

// attachTo attaches a slot's gate to a device. The caller's thread is in the namespace.
func (g *gates) attachTo(index int, s slot) error {
	gate := []*ebpf.Program{g.FromGuestGate, g.ToGuestGate, g.FromUplinkGate}[s]
	if err := g.attach(index, s.inbound(), gate); err != nil {
		return refused(fmt.Errorf("attach a packet program to a network device: %w", err))
	}
	return nil
}
