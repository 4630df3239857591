package fence

import (
	"fmt"

	"github.com/google/nftables"

	"github.com/custody-project/custody/netpolicy"
)

// writeTable writes the namespace's nftables table in one transaction, so that it always exists. Packets must carry the
// mark; those of direct flows pass only if there is an uplink, for the generation direct; 0 means that there is none.
func (s *space) writeTable(m marks, direct uint32) error {
	c, err := nftables.New(nftables.WithNetNSFd(int(s.handle)))
	if err != nil {
		return fmt.Errorf("open a netlink socket for nftables: %w", err)
	}
	t := &nftables.Table{Name: "custody", Family: nftables.TableFamilyINet}
	c.AddTable(t) // so that the deletion cannot fail
	c.DelTable(t)
	c.AddTable(t)
	addChains(c, t, tableChains(m, direct))
	if err := c.Flush(); err != nil {
		return refused(fmt.Errorf("write the namespace's table of nftables (the modules nf_tables, nft_ct, nft_fib_inet and nft_masq are needed): %w", err))
	}
	return nil
}

func tableChains(m marks, direct uint32) []chain {
	filter := func(name string, hook *nftables.ChainHook, rules ...rule) chain {
		return chain{name: name, hook: hook, kind: nftables.ChainTypeFilter, priority: nftables.ChainPriorityFilter, closed: true, rules: rules}
	}
	input := []rule{match(from(tapName), marked(m.pass), destination(netpolicy.Synthetic), accept())}
	output := []rule{match(to(tapName), marked(m.pass), accept())}
	if direct == 0 {
		return []chain{
			filter("input", nftables.ChainHookInput, input...),
			filter("forward", nftables.ChainHookForward),
			filter("output", nftables.ChainHookOutput, output...),
		}
	}
	output = append(output, match(to(uplinkName), marked(m.inject), answering(), accept()))
	return []chain{
		filter("input", nftables.ChainHookInput, input...),
		filter("forward", nftables.ChainHookForward,
			match(from(tapName), to(uplinkName), marked(m.pass), accept()),
			match(from(tapName), to(uplinkName), marked(m.parts(direct)), accept()),
			match(from(uplinkName), to(tapName), marked(m.pass), answering(), accept())),
		filter("output", nftables.ChainHookOutput, output...),
		{
			name: "postrouting", hook: nftables.ChainHookPostrouting, kind: nftables.ChainTypeNAT,
			priority: nftables.ChainPriorityNATSource, rules: []rule{match(to(uplinkName), masquerade())},
		},
	}
}
