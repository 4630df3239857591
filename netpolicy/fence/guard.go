package fence

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// guard is the nftables table on the host that keeps one sandbox's uplink from the host's own addresses, from addresses
// that are not unicast (broadcast, anycast, multicast) and from other sandboxes, and translates its source to the host's
// address. The kernel removes it when the socket that made it is closed.
type guard struct {
	conn   *nftables.Conn
	table  *nftables.Table
	uplink *uplink
}

func newGuard(host *space, u *uplink) (*guard, error) {
	g := &guard{uplink: u, table: &nftables.Table{Name: guardName(u.name), Family: nftables.TableFamilyINet}}
	var own *netlink.Conn
	var err error
	g.conn, err = nftables.New(nftables.WithNetNSFd(int(host.handle)), nftables.AsLasting(),
		nftables.WithSockOptions(func(c *netlink.Conn) error { own = c; return nil }))
	if err == nil {
		err = makeOwned(own, g.table.Name)
	}
	if err != nil {
		return g, fmt.Errorf("guard the host's end of the uplink (nf_tables is needed): %w", err)
	}
	return g, g.write(nil, nil)
}

// guardName returns the name of an uplink's table.
func guardName(uplink string) string { return "custody-" + uplink }

// tableOwner is NFT_TABLE_F_OWNER of linux/netfilter/nf_tables.h.
const tableOwner = 2

// makeOwned adds a table that is removed with the socket: NFT_TABLE_F_OWNER, which the library cannot set. A message
// begins with its family, version and resource (struct nfgenmsg).
func makeOwned(c *netlink.Conn, name string) error {
	data, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.NFTA_TABLE_NAME, Data: append([]byte(name), 0)},
		{Type: unix.NFTA_TABLE_FLAGS, Data: []byte{0, 0, 0, tableOwner}},
	})
	if err != nil {
		return err
	}
	bracket := func(kind netlink.HeaderType) netlink.Message {
		return netlink.Message{
			Header: netlink.Header{Type: kind, Flags: netlink.Request},
			Data:   []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES},
		}
	}
	_, err = c.SendMessages([]netlink.Message{bracket(unix.NFNL_MSG_BATCH_BEGIN), {
		Header: netlink.Header{
			Type:  unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWTABLE,
			Flags: netlink.Request | netlink.Acknowledge | netlink.Create | netlink.Excl,
		},
		Data: append([]byte{unix.NFPROTO_INET, unix.NFNETLINK_V0, 0, 0}, data...),
	}, bracket(unix.NFNL_MSG_BATCH_END)})
	if err != nil {
		return err
	}
	_, err = c.Receive()
	return err
}

// write replaces the guard's rules in one transaction. named are host addresses that a rule of the policy names. The
// opened devices forward only because Custody has enabled it, so the guard restricts them to sandboxes.
func (g *guard) write(named []netip.Addr, opened []forwarder) error {
	chains := g.chains(named, opened)
	for _, ch := range chains { // added first, so that the deletion cannot fail
		addChains(g.conn, g.table, []chain{{name: ch.name, hook: ch.hook, kind: ch.kind, priority: ch.priority}})
		c := &nftables.Chain{Name: ch.name, Table: g.table}
		g.conn.FlushChain(c)
		for _, r := range ch.rules {
			g.conn.AddRule(&nftables.Rule{Table: g.table, Chain: c, Exprs: r})
		}
	}
	if err := g.conn.Flush(); err != nil {
		return fmt.Errorf("write the guard of %s: %w", g.uplink.name, err)
	}
	return nil
}

func (g *guard) chains(named []netip.Addr, opened []forwarder) []chain {
	name := g.uplink.name
	own4, own6 := netip.PrefixFrom(g.uplink.addr(uplinks4, 1), 32), netip.PrefixFrom(g.uplink.addr(uplinks6, 1), 128)
	in := []rule{
		match(from(name), source(expr.CmpOpNeq, own4), drop()),
		match(from(name), source(expr.CmpOpNeq, own6), drop()),
	}
	var own []rule
	for _, a := range named {
		to := destination(netip.PrefixFrom(a, a.BitLen()))
		in = append(in, match(from(name), to, towards(expr.CmpOpEq, unix.RTN_LOCAL), accept()))
		own = append(own, match(from(name), to, accept()))
	}
	in = append(in, match(from(name), towards(expr.CmpOpNeq, unix.RTN_UNICAST), drop()))
	own = append(own, match(from(name), drop())) // in any case: the host's tables may have rewritten the address
	through := []rule{
		match(from(name), toAnyNamed(hostPrefix), drop()),
		match(to(name), answering(), accept()),
		match(to(name), drop()),
	}
	for _, o := range opened {
		through = append(through,
			match(of(o.family), toAnyNamed(hostPrefix), accept()),
			match(of(o.family), fromAnyNamed(hostPrefix), accept()))
		if o.device == "" {
			through = append(through, match(of(o.family), drop()))
		} else {
			through = append(through, match(of(o.family), from(o.device), drop()))
		}
	}
	return []chain{
		{name: "prerouting", hook: nftables.ChainHookPrerouting, kind: nftables.ChainTypeFilter, priority: nftables.ChainPriorityRaw, rules: in},
		{name: "input", hook: nftables.ChainHookInput, kind: nftables.ChainTypeFilter, priority: nftables.ChainPriorityFilter, rules: own},
		{name: "forward", hook: nftables.ChainHookForward, kind: nftables.ChainTypeFilter, priority: nftables.ChainPriorityFilter, rules: through},
		{name: "postrouting", hook: nftables.ChainHookPostrouting, kind: nftables.ChainTypeNAT, priority: nftables.ChainPriorityNATSource, rules: []rule{
			match(source(expr.CmpOpEq, own4), masquerade()),
			match(source(expr.CmpOpEq, own6), masquerade()),
		}},
	}
}

func (g *guard) close() error {
	if g.conn == nil {
		return nil
	}
	err := g.conn.CloseLasting()
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
