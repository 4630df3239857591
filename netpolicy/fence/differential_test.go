package fence

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/custody-project/custody/netpolicy"
)

// differential compares the programs, with their real maps, with the oracle.
type differential struct {
	t      testing.TB
	fence  *Fence
	oracle *oracle
	before [reasons]uint64
}

// newDifferential makes a fence that is not swept, so that results do not depend on time.
func newDifferential(t testing.TB) *differential {
	t.Helper()
	var f *Fence
	must(t, testSpace(t).in(func() error {
		host, err := currentSpace()
		if err == nil {
			f, err = build(context.Background(), host)
		}
		return err
	}))
	t.Cleanup(func() { must(t, f.discard()) })
	return &differential{t: t, fence: f}
}

// begin resets all state.
func (d *differential) begin() {
	d.oracle = &oracle{}
	f := d.fence
	must(d.t, f.permits.revisit(nil))
	f.permits.byID = map[uint32]*permit{resolverID: f.permits.byID[resolverID]}
	f.ledger.pending = nil
	d.forgetFlows()
}

func (d *differential) forgetFlows() {
	d.oracle.flows, d.oracle.begun = map[Key]*oracleFlow{}, map[datagramID]*datagram{}
	f := d.fence
	var keys []programsFlowKey
	must(d.t, f.ledger.each(func(k programsFlowKey, _ *programsFlow) { keys = append(keys, k) }))
	for _, k := range keys {
		must(d.t, f.filters.maps.Flows.Delete(k))
	}
	clear(f.ledger.dying)
	var ids []programsDatagramKey
	var id programsDatagramKey
	var ignored programsDatagram
	for all := f.filters.maps.Datagrams.Iterate(); all.Next(&id, &ignored); {
		ids = append(ids, id)
	}
	for _, id := range ids {
		must(d.t, f.filters.maps.Datagrams.Delete(id))
	}
}

func (d *differential) enforce(p *netpolicy.Policy) {
	_, err := d.fence.Enforce(context.Background(), netpolicy.Generation{Number: d.fence.generation + 1, Policy: p})
	must(d.t, err)
	d.oracle.enforce(p)
}

// runs reports whether the kernel's test run accepts a frame: it needs a complete IP header. TestDrops sends shorter
// ones through a real TAP.
func runs(frame []byte) bool {
	need := map[uint16]int{0x0800: 34, 0x86dd: 54}
	return len(frame) >= 14 && len(frame) >= need[be16(frame[12:])]
}

// send compares both decisions on one frame.
func (d *differential) send(frame []byte, out bool) {
	if !runs(frame) {
		return
	}
	prog, want := d.fence.filters.maps.ToGuest, 0
	if out {
		prog = d.fence.filters.maps.FromGuest
	}
	ret, err := prog.Run(&ebpf.RunOptions{Data: frame})
	must(d.t, err)
	if out {
		want = d.oracle.fromGuest(frame)
	} else {
		want = d.oracle.toGuest(frame)
	}
	totals, err := d.fence.filters.maps.totals()
	must(d.t, err)
	got := 0
	for why := range totals {
		if totals[why] != d.before[why] {
			got = why
		}
	}
	d.before = totals
	if got != want || (ret == 0) != (want == allowed) {
		d.t.Fatalf("out %v: programs decide %d (%s), oracle %d (%s), verdict %d\n%x\npolicy:\n%s", out, got, reasonText[got], want, reasonText[want], ret, frame, d.oracle.policy)
	}
}

// generator makes random policies and packets from few values, so that they match often.
type generator struct{ *rand.Rand }

func pick[T any](d generator, from []T) T { return from[d.IntN(len(from))] }

var (
	diceRanges = []string{
		"0.0.0.0/0", "45.0.0.0/8", "45.0.0.0/24", "45.0.0.2/32", "10.0.0.0/8", "10.1.0.0/16", "8.0.0.0/5", "169.254.169.254/32", "192.0.0.0/2",
		"198.18.0.0/15", "198.18.1.0/24", "224.0.0.0/4", "::/0", "::/3", "2000::/3", "2a00:45::/32", "2a00:45::/64", "2a00:45::2/128", "fc00::/7",
		"fdc5:7a1c:19d2::/64", "64:ff9b::/96", "fe80::/10", "2001::/16", "2001:db8::/32",
		"127.0.0.0/8", "127.0.0.1/32", "127.255.255.255/32", "224.0.0.251/32", "198.19.0.0/32", "::1/128", "ff00::/8",
	}
	diceAddrs = []string{
		"45.0.0.2", "45.0.0.3", "45.1.0.2", "46.0.0.2", "10.0.0.1", "10.1.2.3", "11.0.0.1", "169.254.169.254", "192.168.1.1", "127.0.0.1", "127.0.0.2", "127.255.255.255", "100.64.0.1",
		"198.18.0.1", "198.18.0.2", "198.18.1.7", "198.18.1.8", "198.19.0.0", "224.0.0.251", "255.255.255.255", "0.0.0.0",
		"2a00:45::2", "2a00:45::3", "2a00:45:1::2", "2a01::1", "fdc5:7a1c:19d2::1", "fdc5:7a1c:19d2::2", "fd00::1", "64:ff9b::a00:1", "fe80::1", "ff02::1",
		"2001:db8::1", "2001:0:1::1", "2002:a00:1::", "::1", "::", "::2d00:2", "::ffff:45.0.0.2", "::ffff:10.0.0.1",
	}
	dicePorts    = []netpolicy.Port{{Proto: "tcp", Number: 443}, {Proto: "tcp", Number: 53}, {Proto: "udp", Number: 443}, {Proto: "udp", Number: 53}, {Proto: "tcp", Number: 80}}
	diceNames    = []string{"a.example.com", "b.example.com", "c.example.net"}
	diceSpecials = []string{"10.0.0.0/8", "fc00::/7", "198.18.0.0/15"}
)

// policy makes a valid policy. It always has a direct rule, so that the uplink is not replaced.
func (d generator) policy() *netpolicy.Policy {
	for {
		rules := []netpolicy.Rule{allow("192.0.2.1", "tcp/9")}
		for range d.IntN(6) {
			r := allow(pick(d, diceRanges))
			r.Ports = d.ports()
			rules = append(rules, r)
		}
		for range d.IntN(5) {
			r := allow(pick(d, append(diceNames, "*.example.com")))
			r.Ports = d.ports()
			if d.IntN(2) == 0 {
				r.Mode = netpolicy.Direct
				if d.IntN(2) == 0 {
					r.Addresses = []netip.Prefix{netip.MustParsePrefix(pick(d, diceSpecials))}
				}
			}
			rules = append(rules, r)
		}
		if p, err := netpolicy.New(rules); err == nil {
			return p
		}
	}
}

func (d generator) ports() (ports []netpolicy.Port) {
	for range 1 + d.IntN(3) {
		ports = append(ports, pick(d, dicePorts))
	}
	return ports
}

// open opens an address in both, if the policy allows it; mostly the policy does.
func (d generator) open(differential *differential) {
	op := &opening{
		Permit: Permit{Name: pick(d, diceNames), Port: pick(d, dicePorts), Via: pick(d, []netpolicy.Mode{netpolicy.Direct, netpolicy.Gateway})},
		addr:   netip.MustParseAddr(pick(d, diceAddrs)),
	}
	if rules := differential.oracle.policy.Match(op.Name); len(rules) > 0 && d.IntN(5) > 0 {
		r := pick(d, rules)
		op.Port, op.Via = pick(d, r.Ports), r.Mode
		if r.Mode == netpolicy.Gateway {
			op.addr = netip.MustParseAddr(pick(d, []string{"198.18.1.7", "198.18.1.8"}))
		}
	}
	op.Rule, op.DNSSeq = "r", uint64(d.IntN(3))
	until := time.Time{}
	if op.Via == netpolicy.Direct {
		until = time.Now().Add(time.Hour)
		if op.expired = d.IntN(4) == 0; op.expired {
			until = time.Now().Add(-time.Second)
		}
	}
	allow := d.mayOpen(differential.oracle.policy, op)
	err := differential.fence.Open(op.addr, op.Permit, until)
	if (err == nil) != allow {
		differential.t.Fatalf("Open(%s, %+v): %v; the oracle decides %v", op.addr, op.Permit, err, allow)
	}
	if allow {
		op.addr = op.addr.Unmap()
		differential.oracle.open(op)
	}
}

func (d generator) mayOpen(p *netpolicy.Policy, op *opening) bool {
	addr := op.addr.Unmap()
	if op.Via == netpolicy.Gateway {
		return netpolicy.Synthetic.Contains(addr) && !netpolicy.Link4.Contains(addr) && netpolicy.Decide(p, netpolicy.Question{Name: op.Name, Port: op.Port, Via: op.Via}).Allow
	}
	return !netpolicy.Synthetic.Contains(addr) && netpolicy.Decide(p, netpolicy.Question{Name: op.Name, Addr: addr, Port: op.Port, Via: op.Via}).Allow
}

// frame makes a packet: usually a valid one, sometimes with an error.
func (d generator) frame(o *oracle) (frame []byte, out bool) {
	out = d.IntN(3) > 0
	if d.IntN(40) == 0 {
		f := arp(uint16(1+d.IntN(2)), netpolicy.Guest4, netpolicy.Gateway4)
		return d.spoil(f), out
	}
	to := d.target(o)
	p := packet{
		in: !out, proto: protoNumber(to.Proto), peer: to.Dst.Addr(), guestPort: to.Src.Port(), peerPort: to.Dst.Port(),
		flags: pick(d, []byte{2, 2, 2, 18, 16, 16, 24, 17, 4, 20, 0xc2}), seq: uint32(d.IntN(4)), ack: uint32(d.IntN(4)), payload: make([]byte, d.IntN(30)),
	}
	if d.IntN(15) == 0 {
		p.flags = byte(d.IntN(256))
	}
	switch d.IntN(40) {
	case 0:
		p.proto = pick(d, []uint8{0, 1, 2, 43, 44, 47, 50, 51, 58, 60, 132, 135, 136, 253})
	case 1:
		p.in = !p.in
	case 2, 3:
		p.proto, p.transport = d.icmp(p)
	}
	f := p.frame()
	if d.IntN(5) == 0 {
		f = d.spoil(f)
	}
	return f, out
}

// target returns the addresses and ports of a packet: those of an existing flow, of an opened address, or random ones.
func (d generator) target(o *oracle) Key {
	port := pick(d, dicePorts)
	k := Key{Proto: port.Proto, Src: netip.AddrPortFrom(netip.Addr{}, 40000+uint16(d.IntN(3))), Dst: netip.AddrPortFrom(netip.MustParseAddr(pick(d, diceAddrs)), port.Number)}
	switch live := slices.SortedFunc(maps.Keys(o.flows), func(a, b Key) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }); {
	case len(live) > 0 && d.IntN(2) == 0:
		return pick(d, live)
	case len(o.opened) > 0 && d.IntN(2) == 0:
		op := pick(d, o.opened)
		k.Proto, k.Dst = op.Port.Proto, netip.AddrPortFrom(op.addr, op.Port.Number)
	}
	return k
}

// icmp makes a path MTU error that quotes a packet of the guest.
func (d generator) icmp(about packet) (proto uint8, body []byte) {
	about.in = false
	whole := about.frame()
	if d.IntN(4) == 0 {
		at := 8 * d.IntN(2)
		whole = fragmentOf(whole, 1, at, at+24, true)
	}
	quote := whole[14:]
	if d.IntN(4) == 0 {
		quote = quote[:d.IntN(len(quote))]
	}
	if about.v6() {
		return 58, append([]byte{pick(d, []byte{2, 2, 2, 1, 128}), 0, 0, 0, 0, 0, 5, 0}, quote...)
	}
	return 1, append([]byte{pick(d, []byte{3, 3, 3, 5, 8}), pick(d, []byte{4, 4, 4, 1}), 0, 0, 0, 0, 5, 0}, quote...)
}

func (d generator) spoil(f []byte) []byte {
	f = slices.Clone(f)
	switch d.IntN(5) {
	case 0:
		f = f[:14+d.IntN(len(f)-13)]
	case 1:
		f = append(f, make([]byte, 1+d.IntN(40))...)
	case 2:
		f[14] = byte(d.IntN(256)) // version, header length
	case 3:
		at := 14 + d.IntN(min(len(f)-14, 8))
		f[at] = byte(d.IntN(256))
	default:
		for range 1 + d.IntN(2) {
			f[d.IntN(len(f))] ^= 1 << d.IntN(8)
		}
	}
	return f
}

const packetsPerDuel = 400

// FuzzVerdicts makes policies, changes of policy, opened addresses and packets from a seed. The programs must decide as
// the oracle does, with the same reason.
func FuzzVerdicts(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	differential := newDifferential(f)
	f.Fuzz(func(t *testing.T, seed uint64) {
		differential.t = t
		differential.run(generator{rand.New(rand.NewPCG(seed, 3))})
	})
}

func (differential *differential) run(d generator) {
	differential.begin()
	differential.enforce(d.policy())
	for i := range packetsPerDuel {
		if i%8 == 0 {
			d.open(differential)
		}
		if i > 0 && i%100 == 0 {
			differential.enforce(d.policy())
		}
		if d.IntN(12) == 0 {
			frames, out := d.datagram(differential.oracle)
			for _, frame := range frames {
				differential.send(frame, out)
			}
			continue
		}
		frame, out := d.frame(differential.oracle)
		differential.send(frame, out)
	}
}

// FuzzFrames feeds arbitrary bytes to both: a sequence of frames, each preceded by a byte for its direction and two for
// its length.
func FuzzFrames(f *testing.F) {
	d := generator{rand.New(rand.NewPCG(1, 1))}
	for range 30 {
		var seed []byte
		for range 4 {
			frame, out := d.frame(&oracle{policy: fixedPolicy(f)})
			direction := byte(0)
			if out {
				direction = 1
			}
			seed = append(binary.BigEndian.AppendUint16(append(seed, direction), uint16(len(frame))), frame...)
		}
		f.Add(seed)
	}
	differential := newDifferential(f)
	differential.begin()
	differential.enforce(fixedPolicy(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		differential.t = t
		differential.forgetFlows()
		for len(b) >= 3 {
			out, n := b[0]&1 == 1, min(int(be16(b[1:])), len(b)-3, 3000)
			differential.send(b[3:3+n], out)
			b = b[3+n:]
		}
	})
}

func fixedPolicy(t testing.TB) *netpolicy.Policy {
	p, err := netpolicy.New([]netpolicy.Rule{allow("45.0.0.0/8", "tcp/443", "udp/443"), allow("2a00:45::/32", "tcp/443", "udp/53"), allow("10.0.0.0/8", "tcp/53")})
	must(t, err)
	return p
}

// The table of ranges agrees with Decide on every relevant address.
func TestRangesAgreeWithDecide(t *testing.T) {
	d := generator{rand.New(rand.NewPCG(7, 7))}
	var probes []netip.Addr
	for _, s := range append(netpolicy.SpecialRanges(), prefixes(diceRanges)...) {
		first, last := s.Addr(), lastOf(s)
		probes = append(probes, first, last)
		if p := first.Prev(); p.IsValid() {
			probes = append(probes, p)
		}
		if n := last.Next(); n.IsValid() {
			probes = append(probes, n)
		}
	}
	differential := newDifferential(t)
	for round := range 30 {
		differential.begin()
		differential.enforce(d.policy())
		for i, a := range probes {
			if a.Is4In6() {
				continue // denied before any rule is checked
			}
			port := pick(d, dicePorts)
			p := packet{proto: protoNumber(port.Proto), peer: a, guestPort: uint16(i + 1), peerPort: port.Number, flags: 2}
			differential.send(p.frame(), true)
		}
		if t.Failed() {
			t.Fatal("round", round)
		}
	}
}

func prefixes(list []string) (all []netip.Prefix) {
	for _, s := range list {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
