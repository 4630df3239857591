package reach

import (
	"fmt"
	"math/bits"
	"net/netip"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/netpolicy"
)

// Verdicts on a range; reach.bpf.c has the same.
const (
	denied uint32 = iota
	remote        // allowed unless the address is one of this host
	named         // allowed
)

// maxDestinations bounds the table; reach.bpf.c has the same. Each port of a policy needs about 150 entries.
const maxDestinations = 1 << 17

// fixedBits precede the address in a key.
const fixedBits = 32

// destination is a range of addresses at a port.
type destination struct {
	port netpolicy.Port
	in   netip.Prefix
}

// Limit is the limit of one process. It is not safe for concurrent use.
//
//	New --> nothing can be reached --Set--> the policy's destinations --Set--> ...
type Limit struct {
	programs programsObjects
	table    map[destination]uint32 // what is in programs.Destinations
}

// New returns a limit under which nothing can be reached. The caller closes it.
func New() (*Limit, error) {
	l := &Limit{table: map[destination]uint32{}}
	if err := loadProgramsObjects(&l.programs, nil); err != nil {
		return nil, fmt.Errorf("load the programs that limit a worker's sockets (needs root and a kernel with CONFIG_CGROUP_BPF): %w", err)
	}
	return l, nil
}

// Attach applies the limit to the sockets that the processes in a control group of version 2 make from now on. It lasts as long as the
// group, even when this process is killed.
func (l *Limit) Attach(group *os.File) error {
	for at, program := range map[ebpf.AttachType]*ebpf.Program{
		ebpf.AttachCGroupInetEgress: l.programs.Sent, ebpf.AttachCGroupInet4Connect: l.programs.Connect4, ebpf.AttachCGroupInet6Connect: l.programs.Connect6,
	} {
		err := link.RawAttachProgram(link.RawAttachProgramOptions{Target: int(group.Fd()), Program: program, Attach: at, Flags: allowMulti})
		if err != nil {
			return fmt.Errorf("limit the worker's sockets: %w", err)
		}
	}
	return nil
}

// allowMulti is BPF_F_ALLOW_MULTI: programs of the groups above judge too.
const allowMulti = 2

// Set replaces what can be reached: addresses of the hosts that rules for names allow, at the rules' ports, and DNS servers, if there is any
// rule. What both the old and the new policy allow stays reachable meanwhile, and what both deny does not become reachable.
func (l *Limit) Set(p *netpolicy.Policy, servers []netip.AddrPort) error {
	wanted := destinations(p, servers)
	if len(wanted) > maxDestinations {
		return fmt.Errorf("the rules need %d entries of a table that has %d: name fewer ports", len(wanted), maxDestinations)
	}
	for _, first := range []bool{true, false} {
		for d, verdict := range wanted {
			if old, ok := l.table[d]; (verdict == denied) != first || ok && old == verdict {
				continue
			}
			if err := l.programs.Destinations.Put(d.key(), verdict); err != nil {
				return fmt.Errorf("limit the worker's sockets: %w", err)
			}
			l.table[d] = verdict
		}
		for d, verdict := range l.table {
			if _, ok := wanted[d]; (verdict == denied) == first || ok {
				continue
			}
			if err := l.programs.Destinations.Delete(d.key()); err != nil {
				return fmt.Errorf("limit the worker's sockets: %w", err)
			}
			delete(l.table, d)
		}
	}
	return nil
}

// destinations returns the table of a policy. As in netpolicy.Rule.AllowsAddr, the longest range that contains an address decides.
func destinations(p *netpolicy.Policy, servers []netip.AddrPort) map[destination]uint32 {
	table := map[destination]uint32{}
	rules := p.Rules()
	for _, r := range rules {
		if r.Mode != netpolicy.Gateway {
			continue // the worker has no connections of direct flows
		}
		for _, port := range r.Ports {
			for _, all := range []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)} {
				table[destination{port, all}] = remote
			}
			for _, special := range netpolicy.SpecialRanges() {
				table[destination{port, special}] = denied
			}
		}
	}
	for _, r := range rules {
		if r.Mode != netpolicy.Gateway {
			continue
		}
		for _, port := range r.Ports {
			for _, in := range r.Addresses {
				table[destination{port, in.Masked()}] = named
			}
		}
	}
	if len(rules) == 0 {
		return table
	}
	for _, s := range servers {
		for _, proto := range []string{"udp", "tcp"} {
			a := s.Addr().WithZone("")
			table[destination{netpolicy.Port{Proto: proto, Number: s.Port()}, netip.PrefixFrom(a, a.BitLen())}] = named
		}
	}
	return table
}

// key returns the destination as the programs have it.
func (d destination) key() programsKey {
	k := programsKey{Bits: uint32(fixedBits + d.in.Bits()), Proto: unix.IPPROTO_TCP, Family: 4}
	if d.port.Proto == "udp" {
		k.Proto = unix.IPPROTO_UDP
	}
	if d.in.Addr().Is6() {
		k.Family = 6
	}
	k.Port = bits.ReverseBytes16(d.port.Number) // both architectures are little-endian
	copy(k.Addr[:], d.in.Addr().AsSlice())
	return k
}

// Close frees the programs and the table. The group they are attached to keeps them.
func (l *Limit) Close() error { return l.programs.Close() }
