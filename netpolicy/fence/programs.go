package fence

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/custody-project/custody/netpolicy"
)

// programs are the fence's eBPF programs and maps in the kernel. Variables are read and written in memory, since
// programsVariables cannot be opened from descriptors.
type programs struct {
	loaded
	memory                    *ebpf.Memory // of Variables
	denials, lost, generation int64        // offsets in it
}

type loaded struct {
	programsObjects
	Variables *ebpf.Map `ebpf:".bss"`
}

// marks are random numbers that only Custody and its packet filters have.
type marks struct {
	pass   uint32 // on packets that were checked
	inject uint32 // on packets that Custody sends
	part   uint32 // combined with a generation, on fragments that were checked under it: see parts
}

// parts returns the mark of fragments that were checked under a generation.
func (m marks) parts(generation uint32) uint32 { return m.part ^ generation }

// readPrograms prepares the programs, with the marks of one fence, for loading.
func readPrograms(m marks) (*ebpf.CollectionSpec, error) {
	spec, err := loadPrograms()
	if err != nil {
		return nil, fmt.Errorf("read the fence's programs: %w", err)
	}
	for name, value := range constants(m) {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("set %s in the fence's programs: %w", name, err)
		}
	}
	return spec, nil
}

func loadObjects(spec *ebpf.CollectionSpec) (*programs, error) {
	p := new(programs)
	if err := spec.LoadAndAssign(&p.loaded, nil); err != nil {
		return p, refused(err)
	}
	return p, p.openVariables(spec)
}

// openVariables opens the memory of Variables.
func (p *programs) openVariables(spec *ebpf.CollectionSpec) (err error) {
	if p.memory, err = p.Variables.Memory(); err != nil {
		return fmt.Errorf("open the programs' variables: %w", err)
	}
	for name, at := range map[string]*int64{programsVarDenials: &p.denials, programsVarLost: &p.lost, programsVarGeneration: &p.generation} {
		v := spec.Variables[name]
		if v.SectionName != variablesSection {
			return fmt.Errorf("the variable %s is in the section %s", name, v.SectionName)
		}
		*at = int64(v.Offset)
	}
	return nil
}

const variablesSection = ".bss"

// setGeneration sets the number of the policy in force.
func (p *programs) setGeneration(n uint32) error {
	_, err := p.memory.WriteAt(binary.NativeEndian.AppendUint32(nil, n), p.generation)
	return err
}

// inForce returns the number that setGeneration has set.
func (p *programs) inForce() (uint32, error) {
	var b [4]byte
	_, err := p.memory.ReadAt(b[:], p.generation)
	return binary.NativeEndian.Uint32(b[:]), err
}

// totals returns the number of denials for each reason.
func (p *programs) totals() (t [reasons]uint64, err error) {
	var b [reasons * 8]byte
	if _, err := p.memory.ReadAt(b[:], p.denials); err != nil {
		return t, fmt.Errorf("read the counters of denials: %w", err)
	}
	for i := range t {
		t[i] = binary.NativeEndian.Uint64(b[i*8:])
	}
	return t, nil
}

// lostRecords returns the number of records that did not fit into the ring buffer.
func (p *programs) lostRecords() (uint64, error) {
	var b [8]byte
	if _, err := p.memory.ReadAt(b[:], p.lost); err != nil {
		return 0, fmt.Errorf("read the counter of lost records: %w", err)
	}
	return binary.NativeEndian.Uint64(b[:]), nil
}

func constants(m marks) map[string]any {
	gateway, guest := netpolicy.Gateway4.As4(), netpolicy.Guest4.As4()
	guest6, synthetic := netpolicy.Guest6.As16(), netpolicy.Synthetic.Addr().As4()
	return map[string]any{
		programsVarPassMark: m.pass, programsVarInjectMark: m.inject, programsVarPartMark: m.part,
		programsVarGuestMac: netpolicy.GuestMAC, programsVarGatewayMac: netpolicy.GatewayMAC,
		programsVarGuest4: guest, programsVarGateway4: gateway, programsVarGuest6: guest6,
		programsVarSynthetic4:     synthetic,
		programsVarSynthetic4Mask: binary.BigEndian.AppendUint32(nil, ^uint32(0)<<(32-netpolicy.Synthetic.Bits())),
		programsVarResolverPort:   binary.BigEndian.AppendUint16(nil, netpolicy.ResolverPort),
	}
}

func (p *programs) close() error { return errors.Join(p.programsObjects.Close(), p.Variables.Close()) }
