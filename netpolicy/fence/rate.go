package fence

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
)

// Limit limits how many bytes per second the guest can receive, and how many it can send. What it receives waits in a
// queue; what it sends above the limit is dropped, so that TCP slows down. It is called at most once.
func (n *Namespace) Limit(bytesPerSecond int64) error {
	if err := n.space.limitReceived(n.index, bytesPerSecond); err != nil {
		return hint(err)
	}
	return n.space.limitSent(bytesPerSecond)
}

// Limit is that of the Namespace, which must belong to this process.
func (f *Fence) Limit(bytesPerSecond int64) error {
	n, ok := f.namespace.(*Namespace)
	if !ok {
		return errors.New("the process of the namespace limits the network rate")
	}
	return n.Limit(bytesPerSecond)
}

// burstOf is the size of a burst in bytes: those of a twentieth of a second, and at least four of the largest
// packets, which are segmented later.
func burstOf(bytesPerSecond int64) uint32 {
	const least, most = 256 << 10, 64 << 20
	return uint32(min(max(bytesPerSecond/20, least), most))
}

// limitReceived adds a token bucket filter to the TAP, whose queue holds a tenth of a second.
func (s *space) limitReceived(index int, bytesPerSecond int64) error {
	burst := burstOf(bytesPerSecond)
	err := s.links.QdiscReplace(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       uint64(bytesPerSecond), Buffer: netlink.Xmittime(uint64(bytesPerSecond), burst), Limit: 2 * burst,
	})
	if err != nil {
		return fmt.Errorf("limit what the guest receives (the module sch_tbf is needed): %w", err)
	}
	return nil
}

// limitSent drops packets of the guest above the limit, before they are routed. The kernel's bucket holds the bytes of a
// second and the burst, which is two of the largest packets.
func (s *space) limitSent(bytesPerSecond int64) error {
	c, err := nftables.New(nftables.WithNetNSFd(int(s.handle)))
	if err != nil {
		return fmt.Errorf("open a netlink socket for nftables: %w", err)
	}
	t := c.AddTable(&nftables.Table{Name: "custody-rate", Family: nftables.TableFamilyINet})
	over := rule{&expr.Limit{
		Type: expr.LimitTypePktBytes, Rate: uint64(bytesPerSecond), Unit: expr.LimitTimeSecond, Burst: 128 << 10, Over: true,
	}}
	addChains(c, t, []chain{{
		name: "prerouting", hook: nftables.ChainHookPrerouting, kind: nftables.ChainTypeFilter, priority: nftables.ChainPriorityRaw,
		rules: []rule{match(from(tapName), over, drop())},
	}})
	if err := c.Flush(); err != nil {
		return refused(fmt.Errorf("limit what the guest sends (the modules nf_tables and nft_limit are needed): %w", err))
	}
	return nil
}
