package fence

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/netpolicy"
)

// programs are the fence's eBPF programs and maps in the kernel.
type programs struct {
	programsObjects
	ranges *ebpf.MapSpec // of one generation
	links  []link.Link
}

// marks are numbers that only Custody and its walls know.
type marks struct {
	pass   uint32 // on packets that were looked at
	inject uint32 // on packets that Custody itself sends
}

func loadObjects(m marks) (*programs, error) {
	spec, err := loadPrograms()
	if err != nil {
		return nil, fmt.Errorf("read the fence's programs: %w", err)
	}
	for name, value := range constants(m) {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("set %s in the fence's programs: %w", name, err)
		}
	}
	p := &programs{ranges: spec.Maps["ranges"].InnerMap.Copy()}
	err = spec.LoadAndAssign(&p.programsObjects, nil)
	switch {
	case errors.Is(err, unix.EPERM):
		return nil, fmt.Errorf("load the fence's programs (CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON are needed: run as root): %w", err)
	case err != nil:
		return nil, fmt.Errorf("load the fence's programs (Linux 6.6 or newer with BTF is needed): %w", err)
	}
	return p, nil
}

func constants(m marks) map[string]any {
	gateway, guest := netpolicy.Gateway4.As4(), netpolicy.Guest4.As4()
	guest6, synthetic := netpolicy.Guest6.As16(), netpolicy.Synthetic.Addr().As4()
	return map[string]any{
		programsVarPassMark: m.pass, programsVarInjectMark: m.inject,
		programsVarGuestMac: netpolicy.GuestMAC, programsVarGatewayMac: netpolicy.GatewayMAC,
		programsVarGuest4: guest, programsVarGateway4: gateway, programsVarGuest6: guest6,
		programsVarSynthetic4:     synthetic,
		programsVarSynthetic4Mask: binary.BigEndian.AppendUint32(nil, ^uint32(0)<<(32-netpolicy.Synthetic.Bits())),
		programsVarResolverPort:   binary.BigEndian.AppendUint16(nil, netpolicy.ResolverPort),
	}
}

// attachTap puts wall and policy onto the TAP, the wall first. It runs in the namespace.
func (p *programs) attachTap(index int) error {
	if err := p.attach(index, ebpf.AttachTCXIngress, p.FromGuest); err != nil {
		return err
	}
	return p.attach(index, ebpf.AttachTCXEgress, p.ToGuest)
}

// attach puts the wall onto a device and then a policy program before it. The wall
// belongs to the device; the program to a link that this process holds.
func (p *programs) attach(index int, where ebpf.AttachType, policy *ebpf.Program) error {
	err := link.RawAttachProgram(link.RawAttachProgramOptions{Target: index, Program: p.Wall, Attach: where})
	if err != nil {
		return fmt.Errorf("put up the wall (TCX, in Linux 6.6 or newer, is needed): %w", err)
	}
	l, err := link.AttachTCX(link.TCXOptions{Interface: index, Program: policy, Attach: where, Anchor: link.Head()})
	if err != nil {
		return fmt.Errorf("attach the policy's program: %w", err)
	}
	p.links = append(p.links, l)
	return nil
}

func (p *programs) close() error {
	var errs []error
	for _, l := range p.links {
		errs = append(errs, l.Close())
	}
	p.links = nil
	return errors.Join(append(errs, p.programsObjects.Close())...)
}
