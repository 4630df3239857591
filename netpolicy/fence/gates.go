package fence

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// A slot is a gate's place in the table of admitted programs.
type slot uint32

const (
	fromGuest slot = iota
	toGuest
	fromUplink
	slots
)

// gates are the programs that stand on the devices themselves, and belong to them: no
// descriptor of ours holds them there. A gate hands packets to the program that was
// admitted to its slot and drops them where there is none. The kernel empties the
// table when this process, which alone has it open, ends in whatever way.
//
// Putting a program on a device takes the kernel some 10 ms, admitting one takes
// none. So the gates stand before the policy's programs are even checked.
type gates struct{ gatesObjects }

func newGates() (*gates, error) {
	g := &gates{}
	if err := loadGatesObjects(&g.gatesObjects, nil); err != nil {
		return nil, loading(err)
	}
	return g, nil
}

// stand puts a slot's gate onto a device, in a direction. It runs in the namespace.
func (g *gates) stand(index int, where ebpf.AttachType, s slot) error {
	gate := []*ebpf.Program{g.FromGuestGate, g.ToGuestGate, g.FromUplinkGate}[s]
	if err := link.RawAttachProgram(link.RawAttachProgramOptions{Target: index, Program: gate, Attach: where}); err != nil {
		return fmt.Errorf("put up the wall (TCX, in Linux 6.6 or newer, is needed): %w", err)
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
