package fence

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// A slot is a gate's place in the table of admitted programs.
type slot uint32

const (
	fromGuest slot = iota
	toGuest
	fromUplink
	slots
)

// inbound reports whether a gate sees what its device receives, rather than what it sends.
func (s slot) inbound() bool { return s != toGuest }

// gates are the programs that stand on the devices themselves, and belong to them: no
// descriptor of ours holds them there. A gate hands packets to the program that was
// admitted to its slot and drops them where there is none. The kernel empties the
// table when this process, which alone has it open, ends in whatever way.
//
// Putting a program on a device takes the kernel some 10 ms, admitting one takes
// none. So the gates stand before the policy's programs are even checked.
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

// stand puts a slot's gate onto a device. It runs in the namespace.
func (g *gates) stand(index int, s slot) error {
	gate := []*ebpf.Program{g.FromGuestGate, g.ToGuestGate, g.FromUplinkGate}[s]
	if err := g.attach(index, s.inbound(), gate); err != nil {
		return refused(fmt.Errorf("attach a packet program to a network device: %w", err))
	}
	return nil
}

// admit has a slot's gate hand its packets to a program.
func (g *gates) admit(s slot, program *ebpf.Program) error {
	if err := g.Admitted.Put(s, program); err != nil {
		return fmt.Errorf("let the policy's program in: %w", err)
	}
	return nil
}

// shut has every gate drop everything.
func (g *gates) shut() error {
	var errs []error
	for s := range slots {
		if err := g.Admitted.Delete(s); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
