package fence

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/custody-project/custody/netpolicy"
)

// programs are the fence's eBPF programs and maps in the kernel.
type programs struct {
	programsObjects
	ranges *ebpf.MapSpec // of one generation
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
	p := &programs{ranges: spec.Maps[programsMapRanges].InnerMap.Copy()}
	return p, refused(spec.LoadAndAssign(&p.programsObjects, nil))
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

func (p *programs) close() error { return p.programsObjects.Close() }
