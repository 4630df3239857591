package fence

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// rule is an nftables rule: matches, then a verdict.
type rule []expr.Any

func match(parts ...rule) rule {
	var r rule
	for _, p := range parts {
		r = append(r, p...)
	}
	return r
}

// meta compares a packet's metadata with bytes.
func meta(key expr.MetaKey, op expr.CmpOp, data []byte) rule {
	return rule{&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: op, Register: 1, Data: data}}
}

// A name that ends with a zero byte is the whole name; without it, it is a prefix.
func from(device string) rule { return meta(expr.MetaKeyIIFNAME, expr.CmpOpEq, whole(device)) }
func to(device string) rule   { return meta(expr.MetaKeyOIFNAME, expr.CmpOpEq, whole(device)) }

func whole(device string) []byte {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, device)
	return b
}

func toAnyNamed(prefix string) rule { return meta(expr.MetaKeyOIFNAME, expr.CmpOpEq, []byte(prefix)) }

func fromAnyNamed(prefix string) rule {
	return meta(expr.MetaKeyIIFNAME, expr.CmpOpEq, []byte(prefix))
}

// of matches packets of a family, netlink.FAMILY_V4 or FAMILY_V6, which are nftables' numbers too.
func of(family int) rule { return meta(expr.MetaKeyNFPROTO, expr.CmpOpEq, []byte{byte(family)}) }

func marked(mark uint32) rule {
	return meta(expr.MetaKeyMARK, expr.CmpOpEq, binaryutil.NativeEndian.PutUint32(mark))
}

// source and destination compare an address with a range.
func source(op expr.CmpOp, p netip.Prefix) rule { return address(op, p, 12, 8) }
func destination(p netip.Prefix) rule           { return address(expr.CmpOpEq, p, 16, 24) }

func address(op expr.CmpOp, p netip.Prefix, at4, at6 uint32) rule {
	protocol, at := byte(unix.NFPROTO_IPV4), at4
	if p.Addr().Is6() {
		protocol, at = unix.NFPROTO_IPV6, at6
	}
	size := uint32(p.Addr().BitLen() / 8)
	mask := make([]byte, size)
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return match(meta(expr.MetaKeyNFPROTO, expr.CmpOpEq, []byte{protocol}), rule{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: at, Len: size},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: size, Mask: mask, Xor: make([]byte, size)},
		&expr.Cmp{Op: op, Register: 1, Data: p.Masked().Addr().AsSlice()},
	})
}

// answering matches packets of a connection that the other side began, and errors about it.
func answering() rule {
	bits := expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED
	return rule{
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(bits), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
}

// towards compares the type of the destination address in the namespace: RTN_UNICAST, RTN_LOCAL, RTN_BROADCAST and so
// on.
func towards(op expr.CmpOp, kind uint32) rule {
	return rule{&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true}, &expr.Cmp{Op: op, Register: 1, Data: binary.NativeEndian.AppendUint32(nil, kind)}}
}

func accept() rule     { return rule{&expr.Verdict{Kind: expr.VerdictAccept}} }
func drop() rule       { return rule{&expr.Verdict{Kind: expr.VerdictDrop}} }
func masquerade() rule { return rule{&expr.Masq{}} }

// chain is an nftables base chain with its rules.
type chain struct {
	name     string
	hook     *nftables.ChainHook
	kind     nftables.ChainType
	priority *nftables.ChainPriority
	closed   bool // drops what no rule accepts
	rules    []rule
}

// addChains adds chains to a table in the connection's batch.
func addChains(c *nftables.Conn, t *nftables.Table, chains []chain) {
	for _, ch := range chains {
		policy := nftables.ChainPolicyAccept
		if ch.closed {
			policy = nftables.ChainPolicyDrop
		}
		to := c.AddChain(&nftables.Chain{
			Name: ch.name, Table: t, Type: ch.kind, Hooknum: ch.hook, Priority: ch.priority, Policy: &policy,
		})
		for _, r := range ch.rules {
			c.AddRule(&nftables.Rule{Table: t, Chain: to, Exprs: r})
		}
	}
}
