package fence

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/custody-project/custody/netpolicy"
)

// oracle decides on packets as the programs should: slowly, in Go, with only netpolicy.Decide and a list of opened
// addresses.
type oracle struct {
	policy *netpolicy.Policy
	opened []*opening // in order
	flows  map[Key]*oracleFlow
	begun  map[datagramID]*datagram
}

// datagram is a UDP datagram of which some fragments have passed, but not the last.
type datagram struct {
	key    Key
	size   int // in its header
	passed int // bytes
}

type datagramID struct {
	peer netip.Addr
	id   uint32
	out  bool
}

type opening struct {
	Permit
	addr    netip.Addr
	expired bool
	dead    bool
}

type oracleFlow struct {
	opening            *opening // nil for a range or the resolver
	resolver, revoked  bool
	finOut, finIn      bool
	reset, answered    bool
	outs, ins          int
	guestAck, peerNext uint32
}

// parsed are the fields of a packet.
type parsed struct {
	key            Key
	flags          byte
	seq, ack, size uint32
	arp            bool
	quoted         *Key // by an ICMP error of path MTU
	part           *parsedPart
}

// parsedPart are the fields of a fragment.
type parsedPart struct {
	id         uint32
	begin, end int
	last       bool
	size       int // of the datagram, in the first
}

// parse returns a reason, or allowed.
func parse(f []byte, out bool) (p parsed, why int) {
	if len(f) < 14 {
		return p, malformed
	}
	mine, theirs := netpolicy.GuestMAC[:], netpolicy.GatewayMAC[:]
	if !out {
		mine, theirs = theirs, mine
	}
	kind := be16(f[12:])
	isBroadcast := bytes.Equal(f[:6], []byte{255, 255, 255, 255, 255, 255})
	if !bytes.Equal(f[6:12], mine) || !bytes.Equal(f[:6], theirs) && !(kind == 0x0806 && isBroadcast) {
		return p, wrongLink
	}
	switch kind {
	case 0x0806:
		p.arp = true
		return p, parseARP(f[14:], out)
	case 0x0800:
		return parse4(f, out)
	case 0x86dd:
		return parse6(f, out)
	}
	return p, notIP
}

func parseARP(a []byte, out bool) int {
	mine, from, to := netpolicy.GuestMAC, netpolicy.Guest4, netpolicy.Gateway4
	if !out {
		mine, from, to = netpolicy.GatewayMAC, to, from
	}
	ok := len(a) >= 28 && bytes.Equal(a[:6], []byte{0, 1, 8, 0, 6, 4}) && (be16(a[6:]) == 1 || be16(a[6:]) == 2) &&
		bytes.Equal(a[8:14], mine[:]) && bytes.Equal(a[14:18], from.AsSlice()) && bytes.Equal(a[24:28], to.AsSlice())
	if !ok {
		return badARP
	}
	return allowed
}

func parse4(f []byte, out bool) (p parsed, why int) {
	ip := f[14:]
	if len(ip) < 20 || ip[0]>>4 != 4 || ip[0]&15 < 5 {
		return p, malformed
	}
	if ip[0]&15 > 5 {
		return p, options
	}
	total := int(be16(ip[2:]))
	if total < 20 || !padded(len(f), 14+total) {
		return p, malformed
	}
	place := be16(ip[6:])
	if place&0x8000 != 0 {
		return p, fragment
	}
	var part *parsedPart
	if place &= 0x3fff; place != 0 {
		part = &parsedPart{id: uint32(be16(ip[4:])), begin: int(place&0x1fff) * 8, last: place&0x2000 == 0}
	}
	src, dst := netip.AddrFrom4([4]byte(ip[12:16])), netip.AddrFrom4([4]byte(ip[16:20]))
	return parseIP(src, dst, netpolicy.Guest4, ip[9], ip[20:total], part, out)
}

func parse6(f []byte, out bool) (p parsed, why int) {
	ip := f[14:]
	if len(ip) < 40 || ip[0]>>4 != 6 || !padded(len(f), 54+int(be16(ip[4:]))) {
		return p, malformed
	}
	src, dst := netip.AddrFrom16([16]byte(ip[8:24])), netip.AddrFrom16([16]byte(ip[24:40]))
	return parseIP(src, dst, netpolicy.Guest6, ip[6], ip[40:40+int(be16(ip[4:]))], nil, out)
}

// padded reports whether a frame has the packet's length, or Ethernet's minimum length.
func padded(frame, packet int) bool { return frame == packet || frame > packet && frame <= 60 }

func parseIP(src, dst, guest netip.Addr, proto byte, body []byte, part *parsedPart, out bool) (p parsed, why int) {
	own, peer := src, dst
	if !out {
		own, peer = dst, src
	}
	if own != guest {
		return p, wrongSource
	}
	if guest.Is6() {
		switch proto {
		case 0, 43, 50, 51, 60, 135, 139, 140, 253, 254:
			return p, extension
		}
	}
	if part != nil {
		return parsePart(peer, guest, proto, body, part, out)
	}
	if proto == 44 && guest.Is6() {
		return parseFragment(peer, guest, body, out)
	}
	if proto == 1 && guest.Is4() || proto == 58 && guest.Is6() {
		p.quoted = parseQuoted(body, guest)
		return p, icmp
	}
	if proto != 6 && proto != 17 {
		return p, wrongProtocol
	}
	if peer.Is4In6() {
		return p, mapped
	}
	p.key = Key{Proto: protoName(proto), Src: netip.AddrPortFrom(guest, 0), Dst: netip.AddrPortFrom(peer, 0)}
	if why := p.transport(proto, body, out); why != allowed {
		return p, why
	}
	return p, allowed
}

// parseFragment reads the fragment header that follows an IPv6 header.
func parseFragment(peer, guest netip.Addr, b []byte, out bool) (p parsed, why int) {
	switch {
	case peer.Is4In6():
		return p, mapped
	case len(b) < 8:
		return p, malformed
	case b[1] != 0 || b[3]&6 != 0:
		return p, fragment
	}
	place := be16(b[2:])
	return parsePart(peer, guest, b[0], b[8:], &parsedPart{id: binary.BigEndian.Uint32(b[4:]), begin: int(place &^ 7), last: place&1 == 0}, out)
}

func parsePart(peer, guest netip.Addr, proto byte, b []byte, part *parsedPart, out bool) (p parsed, why int) {
	part.end = part.begin + len(b)
	first := part.begin == 0
	if proto != 17 || len(b) == 0 || first && part.last || !part.last && len(b)%8 != 0 {
		return p, fragment
	}
	p.part = part
	p.key = Key{Proto: "udp", Src: netip.AddrPortFrom(guest, 0), Dst: netip.AddrPortFrom(peer, 0)}
	if first {
		p.ports(b, out)
		part.size = int(be16(b[4:]))
	}
	return p, allowed
}

// place reports whether a fragment is the next one of its datagram. Otherwise it ends the datagram.
func (o *oracle) place(p *parsed, out bool) int {
	part := p.part
	if part == nil {
		return allowed
	}
	id := datagramID{p.key.Dst.Addr(), part.id, out}
	begun := o.begun[id]
	switch {
	case netpolicy.Synthetic.Contains(id.peer):
		return fragment
	case part.begin == 0 && part.end >= part.size:
		return malformed
	case part.begin == 0:
		return allowed
	case begun == nil:
		return fragment
	case part.begin != begun.passed, part.last && part.end != begun.size, !part.last && part.end >= begun.size:
		delete(o.begun, id)
		return fragment
	}
	p.key = begun.key
	return allowed
}

// pass stores that a fragment has passed.
func (o *oracle) pass(p parsed, out bool) {
	if p.part == nil {
		return
	}
	id := datagramID{p.key.Dst.Addr(), p.part.id, out}
	switch {
	case p.part.begin == 0:
		o.begun[id] = &datagram{p.key, p.part.size, p.part.end}
	case p.part.last:
		delete(o.begun, id)
	default:
		o.begun[id].passed = p.part.end
	}
}

func (p *parsed) transport(proto byte, b []byte, out bool) int {
	if proto == 17 {
		if len(b) < 8 || int(be16(b[4:])) != len(b) {
			return malformed
		}
	} else {
		if len(b) < 20 || b[12]>>4 < 5 || int(b[12]>>4)*4 > len(b) {
			return malformed
		}
		p.flags, p.seq, p.ack = b[13], binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
		p.size = uint32(len(b) - int(b[12]>>4)*4)
		syn, fin, rst, ack := p.flags&2 > 0, p.flags&1 > 0, p.flags&4 > 0, p.flags&16 > 0
		if !syn && !rst && !ack || syn && (fin || rst) || fin && rst {
			return tcpFlags
		}
		if syn {
			p.size++
		}
		if fin {
			p.size++
		}
	}
	p.ports(b, out)
	return allowed
}

func (p *parsed) ports(b []byte, out bool) {
	guest, peer := be16(b), be16(b[2:])
	if !out {
		guest, peer = peer, guest
	}
	p.key.Src = netip.AddrPortFrom(p.key.Src.Addr(), guest)
	p.key.Dst = netip.AddrPortFrom(p.key.Dst.Addr(), peer)
}

// parseQuoted parses the flow that an ICMP error quotes.
func parseQuoted(b []byte, guest netip.Addr) *Key {
	var src, dst netip.Addr
	var proto byte
	var ports []byte
	switch {
	case guest.Is4() && len(b) >= 8+20+4 && b[0] == 3 && b[1] == 4 && b[8] == 0x45 && be16(b[14:])&0x1fff == 0:
		src, dst, proto, ports = netip.AddrFrom4([4]byte(b[20:24])), netip.AddrFrom4([4]byte(b[24:28])), b[17], b[28:]
	case guest.Is6() && len(b) >= 8+40+4 && b[0] == 2 && b[1] == 0 && b[8]>>4 == 6:
		src, dst, proto, ports = netip.AddrFrom16([16]byte(b[16:32])), netip.AddrFrom16([16]byte(b[32:48])), b[14], b[48:]
		if proto == 44 {
			if len(b) < 8+40+8+4 || be16(b[50:])&^7 != 0 {
				return nil
			}
			proto, ports = b[48], b[56:]
		}
	}
	if src != guest {
		return nil
	}
	return &Key{Proto: protoName(proto), Src: netip.AddrPortFrom(src, be16(ports)), Dst: netip.AddrPortFrom(dst, be16(ports[2:]))}
}

func (f *oracleFlow) over() bool { return f.reset || f.revoked || f.finOut && f.finIn }

// fromGuest decides on a frame of the guest, and updates the flows.
func (o *oracle) fromGuest(frame []byte) int {
	p, why := parse(frame, true)
	if why == allowed && !p.arp {
		why = o.place(&p, true)
	}
	if why != allowed || p.arp {
		return why
	}
	begins := p.key.Proto == "tcp" && p.flags&0x3f == 2
	f := o.flows[p.key]
	if f != nil && begins && f.over() {
		delete(o.flows, p.key)
		f = nil
	}
	if f == nil {
		if p.key.Proto == "tcp" && !begins {
			return noFlow
		}
		if f, why = o.decide(p.key); why != allowed {
			return why
		}
		o.flows[p.key] = f
	}
	if f.revoked {
		return revoked
	}
	o.pass(p, true)
	f.sent(p)
	return allowed
}

func (o *oracle) decide(k Key) (*oracleFlow, int) {
	if k.Dst.Addr() == netpolicy.Gateway4 && k.Dst.Port() == 53 {
		return &oracleFlow{resolver: true}, allowed
	}
	var last *opening
	for _, p := range o.opened {
		if !p.dead && p.addr == k.Dst.Addr() && p.Port == k.port() {
			last = p
		}
	}
	var f *oracleFlow
	if last != nil && !last.expired {
		f = &oracleFlow{opening: last}
	} else if netpolicy.Decide(o.policy, netpolicy.Question{Addr: k.Dst.Addr(), Port: k.port(), Via: netpolicy.Direct}).Allow {
		f = &oracleFlow{}
	}
	if f != nil && o.keeps(k.Dst.Addr()) {
		return nil, withheld
	}
	if f != nil {
		return f, allowed
	}
	if last != nil {
		return nil, expired
	}
	return nil, notPermitted
}

// What the host of a differential test keeps: its own addresses, including those of its uplink, and those that are not
// unicast.
var (
	duelsOwn    = prefixes([]string{"127.0.0.0/8", "::1/128", "198.19.0.0/32", "fdc5:7a1c:19d3::/128"})
	duelsOthers = prefixes([]string{"127.255.255.255/32", "198.19.0.0/16", "fdc5:7a1c:19d3::/112", "0.0.0.0/8", "224.0.0.0/4", "255.255.255.255/32", "::/128", "ff00::/8"})
)

// keeps reports whether the host drops packets to an address.
func (o *oracle) keeps(a netip.Addr) bool {
	within := func(list []netip.Prefix) bool {
		return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	if within(duelsOwn) {
		return a.String() == "127.255.255.255" || !o.named(a)
	}
	return !netpolicy.Synthetic.Contains(a) && within(duelsOthers)
}

// named reports whether the policy names a single address.
func (o *oracle) named(a netip.Addr) bool {
	for _, r := range o.policy.Rules() {
		if p, ok := r.Pattern.Prefix(); ok && p.IsSingleIP() && p.Addr() == a {
			return true
		}
	}
	return slices.ContainsFunc(o.opened, func(op *opening) bool {
		if op.dead || op.Via != netpolicy.Direct || op.addr != a {
			return false
		}
		v := netpolicy.Decide(o.policy, netpolicy.Question{Name: op.Name, Addr: a, Port: op.Port, Via: op.Via})
		return v.Allow && slices.ContainsFunc(v.Rule.Addresses, func(p netip.Prefix) bool { return p.Contains(a) })
	})
}

// toGuest decides on a frame for the guest, and updates the flows.
func (o *oracle) toGuest(frame []byte) int {
	p, why := parse(frame, false)
	if p.arp && why == allowed {
		return allowed
	}
	if why == icmp && p.quoted != nil {
		if f := o.flows[*p.quoted]; f != nil && !f.revoked {
			return allowed
		}
	}
	if why == allowed {
		why = o.place(&p, false)
	}
	if why != allowed {
		return why
	}
	f := o.flows[p.key]
	switch {
	case f == nil:
		return unasked
	case f.revoked && p.key.Proto == "tcp" && p.flags&4 > 0 && netpolicy.Synthetic.Contains(p.key.Dst.Addr()):
		return allowed
	case f.revoked:
		return revoked
	}
	o.pass(p, false)
	f.received(p)
	return allowed
}

func later(a, b uint32) bool { return int32(a-b) > 0 }

func (f *oracleFlow) sent(p parsed) {
	if p.key.Proto == "tcp" {
		rst, ack := p.flags&4 > 0, p.flags&16 > 0
		f.reset = f.reset || rst
		if !rst && ack && (f.guestAck == 0 || later(p.ack, f.guestAck)) {
			f.guestAck = p.ack
		}
		f.finOut = f.finOut || p.flags&1 > 0
	}
	f.outs++
}

func (f *oracleFlow) received(p parsed) {
	if p.key.Proto == "tcp" {
		if p.flags&4 > 0 {
			f.reset = f.reset || !f.answered || p.seq == f.guestAck || p.seq == f.peerNext
		} else if next := p.seq + p.size; f.ins == 0 || later(next, f.peerNext) {
			f.peerNext = next
		}
		f.finIn = f.finIn || p.flags&1 > 0
	}
	f.answered = true
	f.ins++
}

// enforce changes the policy, and removes the state that it does not allow.
func (o *oracle) enforce(p *netpolicy.Policy) {
	o.policy = p
	for _, op := range o.opened {
		q := netpolicy.Question{Name: op.Name, Port: op.Port, Via: op.Via}
		if op.Via == netpolicy.Direct {
			q.Addr = op.addr
		}
		op.dead = op.dead || !netpolicy.Decide(p, q).Allow
	}
	for k, f := range o.flows {
		switch {
		case f.resolver:
		case f.opening != nil && f.opening.dead && f.opening.Via == netpolicy.Gateway:
			f.revoked = true // kept for the gateway's resets
		case f.opening != nil && f.opening.dead, o.keeps(k.Dst.Addr()):
			delete(o.flows, k)
		case f.opening == nil && !netpolicy.Decide(p, netpolicy.Question{Addr: k.Dst.Addr(), Port: k.port(), Via: netpolicy.Direct}).Allow:
			delete(o.flows, k)
		}
	}
}

// open adds a permit after all others for the same name, address and port.
func (o *oracle) open(op *opening) {
	for i, old := range o.opened {
		if old.Name == op.Name && old.addr == op.addr && old.Port == op.Port {
			same := old.Permit == op.Permit && !old.dead
			if same {
				old.expired = op.expired
				o.opened = append(append(o.opened[:i:i], o.opened[i+1:]...), old)
				return
			}
		}
	}
	o.opened = append(o.opened, op)
}
