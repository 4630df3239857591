package redteam

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/redteam/simnet"
)

// knownSynthetic is the synthetic address of a name in the scene of the hostile kernel, on tcp/443.
var knownSynthetic = netpolicy.FirstSynthetic

// kernelProbes are the probes that write raw frames to the network card.
type kernelProbes struct{ *catalogue }

// all adds the probes that only a compromised guest kernel could send: raw frames. Most have an allowed destination, and
// differ from an allowed frame in one property.
func (c kernelProbes) all() {
	c.linkLayer()
	c.packets4()
	c.packets6()
	c.protocols()
	c.segments()
	c.destinations()
}

// put adds a probe of frames.
func (c kernelProbes) put(id string, v Family, title string, bypass Bypass, frames ...[]byte) {
	c.add(Probe{ID: "kernel/" + id, Family: v, Title: title, Bypass: bypass, scene: kernel, frames: frames, proof: anyDenial})
}

// holds sets that the fence's program may pass n frames of the last probe: each is the first fragment of a datagram that
// would be allowed, and that is never complete.
func (c kernelProbes) holds(n int) { c.list[len(c.list)-1].held = n }

// good4 and good6 are allowed packets: UDP to the direct host.
func (c kernelProbes) good4() ip { return ip{to: simnet.Direct4}.udp(40000, 7001, c.token()) }
func (c kernelProbes) good6() ip { return ip{to: simnet.Direct6}.udp(40000, 7001, c.token()) }

func (c kernelProbes) good(v Family) ip {
	if v == IPv6 {
		return c.good6()
	}
	return c.good4()
}

// from returns good4 or good6 with another source.
func (c kernelProbes) from(a, to netip.Addr) ip {
	return ip{from: a, to: to}.udp(40000, 7001, c.token())
}

func (c kernelProbes) linkLayer() {
	other, all := [6]byte{2, 0xc0, 0xde, 0, 0, 9}, [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	for _, v := range []Family{IPv4, IPv6} {
		kind := map[Family]uint16{IPv4: ether4, IPv6: ether6}[v]
		c.put("source-mac-"+v.short(), v, "another source MAC", Spoofing, etherBetween(other, netpolicy.GatewayMAC, kind, c.good(v).bytes()))
		c.put("gateway-mac-"+v.short(), v, "the gateway's MAC as source", Spoofing, etherBetween(netpolicy.GatewayMAC, netpolicy.GatewayMAC, kind, c.good(v).bytes()))
		c.put("destination-mac-"+v.short(), v, "another destination MAC", Spoofing, etherBetween(netpolicy.GuestMAC, other, kind, c.good(v).bytes()))
		c.put("broadcast-mac-"+v.short(), v, "the broadcast MAC as destination", Spoofing, etherBetween(netpolicy.GuestMAC, all, kind, c.good(v).bytes()))
		c.put("vlan-"+v.short(), v, "a VLAN tag", Spoofing, ether(etherVLAN, tagged(kind, c.good(v).bytes())))
		c.put("vlan-twice-"+v.short(), v, "two VLAN tags", Spoofing, ether(etherQinQ, tagged(etherVLAN, tagged(kind, c.good(v).bytes()))))
		c.put("wrong-type-"+v.short(), v, "a packet under the EtherType of the other IP version", NoIPv6, ether(ether4+ether6-kind, c.good(v).bytes()))
	}
	for _, e := range []struct {
		id, title string
		kind      uint16
	}{
		{"lldp", "LLDP", 0x88cc}, {"eapol", "EAPOL", 0x888e}, {"mpls", "MPLS", 0x8847}, {"pppoe", "PPPoE", 0x8864}, {"experimental", "an experimental EtherType", 0x88b5},
		{"llc", "an IEEE 802.3 frame, with a length instead of an EtherType", 64}, {"rarp", "RARP", 0x8035}, {"macsec", "MACsec", 0x88e5},
	} {
		c.put("ether-"+e.id, "", e.title, OtherWay, ether(e.kind, []byte(c.token()+strings.Repeat("\x00", 60))))
	}
	guest, gw := netpolicy.Guest4, netpolicy.Gateway4
	gmac, wmac := netpolicy.GuestMAC, netpolicy.GatewayMAC
	c.put("arp-other-source", IPv4, "ARP with a source address other than the guest's", Spoofing, etherBetween(gmac, all, etherARP, arp(1, gmac, simnet.Site4, [6]byte{}, gw, "")))
	c.put("arp-other-mac", IPv4, "ARP with a sender MAC other than the frame's", Spoofing, etherBetween(gmac, all, etherARP, arp(1, other, guest, [6]byte{}, gw, "")))
	c.put("arp-poison", IPv4, "ARP that claims the gateway's address", Spoofing, etherBetween(gmac, all, etherARP, arp(2, gmac, gw, wmac, guest, "")))
	c.put("arp-gratuitous", IPv4, "ARP that announces another address", Spoofing, etherBetween(gmac, all, etherARP, arp(1, gmac, netip.MustParseAddr("198.18.1.0"), [6]byte{}, netip.MustParseAddr("198.18.1.0"), "")))
	c.put("arp-proxy", IPv4, "ARP for a public address", Spoofing, etherBetween(gmac, all, etherARP, arp(1, gmac, guest, [6]byte{}, simnet.Attacker4, "")))
	c.put("arp-data", IPv4, "data after an ARP packet", DNSTunnel, etherBetween(gmac, all, etherARP, arp(1, gmac, guest, [6]byte{}, simnet.Attacker4, c.token())))
}

func tagged(kind uint16, body []byte) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{0, 7}, kind), body...)
}

func (c kernelProbes) packets4() {
	for _, s := range []struct{ id, title, from string }{
		{"other", "another address of the link as source", "198.18.0.9"}, {"host", "the host's address as source", "93.184.1.2"}, {"gateway", "the gateway's address as source", "198.18.0.1"},
		{"world", "another public source address", "93.184.10.10"}, {"loopback", "the loopback as source", "127.0.0.1"}, {"zero", "no source", "0.0.0.0"},
		{"synthetic", "a synthetic address as source", "198.18.1.0"},
	} {
		c.put("source-"+s.id+"-v4", IPv4, s.title, Spoofing, c.from(netip.MustParseAddr(s.from), simnet.Direct4).frame())
	}
	for _, o := range []struct {
		id, title string
		options   string
	}{
		{"loose-route", "loose source routing to the attacker", "\x83\x07\x04\x5d\xb8\x42\x42\x00"}, {"strict-route", "strict source routing", "\x89\x07\x04\x5d\xb8\x42\x42\x00"},
		{"record-route", "record route", "\x07\x07\x04\x00\x00\x00\x00\x00"}, {"timestamp", "timestamps", "\x44\x08\x05\x00\x00\x00\x00\x00"},
		{"router-alert", "a router alert", "\x94\x04\x00\x00"}, {"padding", "an option that does nothing", "\x01\x01\x01\x00"},
	} {
		p := c.good4()
		p.options = []byte(o.options)
		c.put("option-"+o.id, IPv4, "an IP option: "+o.title, Spoofing, p.frame())
	}
	part := func(port uint16, from, to int) []byte {
		whole := ip{to: simnet.Direct4}.udp(40000, port, c.token()+strings.Repeat(".", 64)).body
		place := uint16(from / 8)
		if to > 0 {
			place |= 0x2000
		} else {
			to = len(whole)
		}
		return ip{to: simnet.Direct4, proto: protoUDP, place: place, body: whole[from:to]}.frame()
	}
	c.put("fragment-first-v4", IPv4, "a datagram for another port in fragments", Fragments, part(7009, 0, 24), part(7009, 24, 0))
	c.put("fragment-later-v4", IPv4, "a later fragment", Fragments, part(7001, 8, 0))
	c.put("fragment-all-v4", IPv4, "a datagram in fragments, the last one first", Fragments, part(7001, 24, 0), part(7001, 0, 24))
	c.holds(1)
	c.put("fragment-overlap-v4", IPv4, "fragments that overlap over the ports", Fragments, part(7001, 0, 24), part(7009, 0, 24), part(7009, 8, 32), part(7009, 24, 0))
	c.holds(1)
	tiny := ip{to: simnet.Direct4}.tcp(40001, 7000, tcpSYN, c.token())
	c.put("fragment-tiny-v4", IPv4, "a first fragment too small for the flags of TCP", Fragments,
		ip{to: tiny.to, proto: protoTCP, place: 0x2000, body: tiny.body[:8]}.frame(), ip{to: tiny.to, proto: protoTCP, place: 1, body: tiny.body[8:]}.frame())
	c.malformed4()
}

// malformed4 adds packets that lenient parsers misread.
func (c kernelProbes) malformed4() {
	p := c.good4()
	p.version = 0x44
	c.put("short-header-v4", IPv4, "a header of 16 bytes", Fragments, p.frame())
	p = c.good4()
	p.version = 0x4f
	c.put("long-header-v4", IPv4, "a header that is longer than the packet", Fragments, p.frame())
	p = c.good4()
	p.version = 0x65
	c.put("version-v4", IPv4, "version 6 in a packet of version 4", NoIPv6, p.frame())
	p = c.good4()
	p.length = 20 + len(p.body) + 100
	c.put("length-beyond-v4", IPv4, "a length beyond the frame", Fragments, p.frame())
	p = c.good4()
	p.length = 22
	c.put("length-short-v4", IPv4, "a length that ends inside the ports", Fragments, p.frame())
	c.put("runt", "", "a frame that ends in its header", Fragments, ether(ether4, []byte{0x45}))
}

func (c kernelProbes) packets6() {
	for _, s := range []struct{ id, title, from string }{
		{"other", "another address of the link as source", "fdc5:7a1c:19d2::9"}, {"host", "the host's address as source", "2600:dead:1::2"},
		{"gateway", "the gateway's address as source", "fdc5:7a1c:19d2::1"}, {"world", "another public source address", "2600:dead:10::10"},
		{"linklocal", "a link-local source", "fe80::c0:deff:fe00:2"}, {"zero", "no source", "::"}, {"loopback", "the loopback as source", "::1"},
	} {
		c.put("source-"+s.id+"-v6", IPv6, s.title, Spoofing, c.from(netip.MustParseAddr(s.from), simnet.Direct6).frame())
	}
	pad := []byte{0, 1, 4, 0, 0, 0, 0} // length 0, PadN of 4
	attacker := simnet.Attacker6.As16()
	route := slices.Concat([]byte{2, 0, 1, 0, 0, 0, 0}, attacker[:])
	srv6 := slices.Concat([]byte{2, 4, 1, 0, 0, 0, 0}, attacker[:])
	for _, e := range []struct {
		id, title string
		kind      uint8
		rest      []byte
	}{
		{"hop-by-hop", "options hop by hop", 0, pad}, {"destination", "options for the destination", 60, pad}, {"routing", "a routing header of type 0", 43, route},
		{"segment-routing", "segment routing", 43, srv6}, {"mobility", "a mobility header", 135, pad}, {"shim6", "a Shim6 header", 140, pad}, {"hip", "a HIP header", 139, pad},
		{"authentication", "an authentication header", 51, []byte{1, 0, 0, 0, 0, 0, 1}},
	} {
		c.put("extension-"+e.id, IPv6, "an extension header: "+e.title, NoIPv6, c.good6().behind(e.kind, e.rest).frame())
	}
	c.put("extension-chain", IPv6, "a long chain of extension headers", NoIPv6, c.good6().behind(60, pad).behind(60, pad).behind(60, pad).behind(0, pad).frame())
	part := func(port uint16, from, to int) []byte {
		whole := ip{to: simnet.Direct6}.udp(40000, port, c.token()+strings.Repeat(".", 64))
		place := uint16(from)
		if to > 0 {
			place |= 1
		} else {
			to = len(whole.body)
		}
		p := ip{to: whole.to, proto: protoUDP, body: whole.body[from:to]}
		return p.behind(44, binary.BigEndian.AppendUint32([]byte{0, byte(place >> 8), byte(place)}, 0x7e57)).frame()
	}
	c.put("fragment-first-v6", IPv6, "a datagram for another port in fragments", Fragments, part(7009, 0, 24), part(7009, 24, 0))
	c.put("fragment-later-v6", IPv6, "a later fragment", Fragments, part(7001, 8, 0))
	c.put("fragment-atomic-v6", IPv6, "a fragment that is the whole datagram", Fragments, part(7001, 0, 0))
	c.put("fragment-overlap-v6", IPv6, "fragments that overlap", Fragments, part(7001, 0, 24), part(7009, 8, 0), part(7001, 24, 0))
	c.holds(1)
	p := c.good6()
	p.length = len(p.body) + 100
	c.put("length-beyond-v6", IPv6, "a length beyond the frame", Fragments, p.frame())
	p = c.good6()
	p.length = 4
	c.put("length-short-v6", IPv6, "a length that ends inside the ports", Fragments, p.frame())
}

// protocols adds frames of protocols other than TCP and UDP, and ICMP messages.
func (c kernelProbes) protocols() {
	for _, v := range []Family{IPv4, IPv6} {
		to := v.of(simnet.Direct4, simnet.Direct6)
		inner := ip{from: to, to: v.of(simnet.Attacker4, simnet.Attacker6)}.udp(40000, 443, "a packet inside").bytes()
		for _, e := range []struct {
			id, title string
			number    uint8
			body      []byte
		}{
			{"gre", "a GRE tunnel", 47, append([]byte{0, 0, 8, 0}, inner...)}, {"ipip", "a tunnel of IPv4", 4, inner}, {"sixinip", "a tunnel of IPv6", 41, inner},
			{"sctp", "SCTP", 132, []byte(strings.Repeat("\x1b\x58", 6))}, {"esp", "ESP", 50, []byte(strings.Repeat("\x00\x00\x00\x01", 4))}, {"udplite", "UDP-Lite", 136, c.from(v.of(netpolicy.Guest4, netpolicy.Guest6), to).body},
			{"dccp", "DCCP", 33, make([]byte, 12)}, {"reserved", "the last protocol number", 255, nil}, {"none", "protocol number 59 (no next header)", 59, nil},
		} {
			body := append(slices.Clone(e.body), c.token()...)
			c.put("proto-"+e.id+"-"+v.short(), v, e.title, RawSocket, ip{to: to, proto: e.number, body: body}.frame())
		}
		echo := map[Family]uint8{IPv4: 8, IPv6: 128}[v]
		unreachable := map[Family]uint8{IPv4: 3, IPv6: 1}[v]
		tooBig := map[Family][2]uint8{IPv4: {3, 4}, IPv6: {2, 0}}[v]
		c.put("icmp-echo-"+v.short(), v, "an ICMP echo with data", RawSocket, ip{to: to}.icmp(echo, 0, []byte("\x00\x01\x00\x01"+c.token())).frame())
		c.put("icmp-unreachable-"+v.short(), v, "an ICMP error with data, about a packet that was never sent", RawSocket,
			ip{to: to}.icmp(unreachable, 3, slices.Concat(make([]byte, 4), c.from(to, v.of(netpolicy.Guest4, netpolicy.Guest6)).bytes())).frame())
		c.put("icmp-mtu-"+v.short(), v, "an ICMP message about path MTU, with data, from the guest", RawSocket,
			ip{to: to}.icmp(tooBig[0], tooBig[1], slices.Concat([]byte{0, 0, 5, 0}, c.from(to, v.of(netpolicy.Guest4, netpolicy.Guest6)).bytes())).frame())
	}
	c.put("icmp-timestamp", IPv4, "an ICMP timestamp", RawSocket, ip{to: simnet.Direct4}.icmp(13, 0, []byte("\x00\x01\x00\x01"+c.token())).frame())
	gw := netpolicy.Gateway4.As4()
	c.put("icmp-redirect-v4", IPv4, "an ICMP redirect to the gateway", Spoofing,
		ip{to: netpolicy.Gateway4}.icmp(5, 1, slices.Concat(gw[:], c.from(netpolicy.Gateway4, simnet.Attacker4).bytes())).frame())
	c.put("igmp", IPv4, "a membership report for a group", OtherWay, ip{to: netip.MustParseAddr("224.0.0.22"), proto: 2, hops: 1, body: []byte("\x22\x00\x00\x00\x00\x00\x00\x00" + c.token())}.frame())
	c.neighbours()
}

// neighbours adds messages of IPv6 neighbour discovery.
func (c kernelProbes) neighbours() {
	lladdr := slices.Concat([]byte{1, 1}, netpolicy.GuestMAC[:])
	target := slices.Concat([]byte{2, 1}, netpolicy.GuestMAC[:])
	gw, guest := netpolicy.Gateway6.As16(), netpolicy.Guest6.As16()
	all := netip.MustParseAddr("ff02::1")
	prefix := slices.Concat([]byte{3, 4, 64, 0xc0, 0, 0, 0x0e, 0x10, 0, 0, 0x0e, 0x10, 0, 0, 0, 0}, guest[:])
	for _, n := range []struct {
		id, title string
		to        netip.Addr
		kind      uint8
		rest      []byte
	}{
		{"router-solicitation", "a router solicitation", netip.MustParseAddr("ff02::2"), 133, slices.Concat(make([]byte, 4), lladdr)},
		{"router-advertisement", "a router advertisement that announces the guest", all, 134, slices.Concat([]byte{64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0}, lladdr, prefix)},
		{"neighbour-solicitation", "a neighbour solicitation for a public address", netip.MustParseAddr("ff02::1:ff00:66"), 135, slices.Concat(make([]byte, 4), gw[:], lladdr)},
		{"neighbour-advertisement", "a neighbour advertisement for the gateway's address", netpolicy.Gateway6, 136, slices.Concat([]byte{0x20, 0, 0, 0}, gw[:], target)},
		{"redirect", "a redirect", netpolicy.Gateway6, 137, slices.Concat(make([]byte, 4), guest[:], gw[:], target)},
		{"listener-report", "a listener report for a group", netip.MustParseAddr("ff02::16"), 143, slices.Concat([]byte{0, 0, 0, 1, 4, 0, 0, 0}, all.AsSlice())},
		{"node-information", "a node information query", netpolicy.Gateway6, 139, slices.Concat(make([]byte, 12), gw[:])},
	} {
		p := ip{to: n.to, hops: 255}
		c.put("icmp6-"+n.id, IPv6, n.title, NoIPv6, p.icmp(n.kind, 0, n.rest).frame())
	}
}

// segments adds unusual TCP segments and ports, to a host with an allowed port.
func (c kernelProbes) segments() {
	for _, v := range []Family{IPv4, IPv6} {
		to := v.of(simnet.Direct4, simnet.Direct6)
		for _, s := range []struct {
			id, title string
			flags     uint8
		}{
			{"ack", "a segment of no flow", tcpACK | tcpPSH}, {"syn-ack", "an unsolicited answer", tcpSYN | tcpACK}, {"syn-fin", "a begin and an end together", tcpSYN | tcpFIN},
			{"syn-rst", "a begin and a reset together", tcpSYN | tcpRST}, {"null", "no flags", 0}, {"xmas", "all flags", 0x3f}, {"rst", "a reset of no flow", tcpRST}, {"fin", "an end of no flow", tcpFIN},
		} {
			c.put("tcp-"+s.id+"-"+v.short(), v, "TCP: "+s.title, OtherWay, ip{to: to}.tcp(40002, 7000, s.flags, c.token()).frame())
		}
		bad := ip{to: to}.tcp(40003, 7000, tcpSYN, c.token())
		bad.body[12] = 0xf0
		c.put("tcp-header-"+v.short(), v, "TCP: a header that is longer than the segment", Fragments, bad.frame())
		c.put("source-port-53-"+v.short(), v, "a datagram from port 53 to the attacker", OtherWay, ip{to: c.victim(v)}.udp(53, 40000, c.token()).frame())
		c.put("source-port-443-"+v.short(), v, "a datagram from port 443, as if it answered", OtherWay, ip{to: c.victim(v)}.udp(443, 443, c.token()).frame())
		c.put("port-zero-"+v.short(), v, "a datagram to port 0", OtherWay, ip{to: to}.udp(40000, 0, c.token()).frame())
	}
	c.put("forged-reply", IPv4, "an answer of the resolver's, forged by the guest", Spoofing, ip{from: netpolicy.Gateway4, to: netpolicy.Guest4}.udp(53, 40000, c.token()).frame())
	c.put("reply-to-resolver", IPv4, "an answer to the resolver, as an upstream server would give it", Spoofing, ip{to: netpolicy.Gateway4}.udp(53, 40000, c.token()).frame())
}

// destinations adds forbidden addresses, which only a kernel can write into a packet.
func (c kernelProbes) destinations() {
	for _, d := range []struct {
		id, title, to string
		bypass        Bypass
	}{
		{"attacker", "the attacker", "93.184.66.66", AnyAddress}, {"metadata", "the metadata service", "169.254.169.254", Metadata}, {"lan", "the host in its network", "10.66.0.2", Rebinding},
		{"host", "the host", "93.184.1.2", ProxyPort}, {"hosts-resolver", "the host's resolver", "93.184.0.53", DNSTunnel}, {"cgnat", "carrier-grade NAT addresses", "100.64.0.1", Rebinding},
		{"loopback", "the loopback", "127.0.0.1", ProxyPort}, {"zero", "the unspecified address", "0.0.0.0", ProxyPort}, {"broadcast", "the broadcast address", "255.255.255.255", OtherWay},
		{"link-broadcast", "the link's broadcast address", "198.18.0.3", OtherWay}, {"multicast", "a multicast group", "224.0.0.251", OtherWay}, {"reserved", "a reserved address", "240.0.0.1", Rebinding},
		{"self", "the guest itself", "198.18.0.2", Spoofing}, {"synthetic-unknown", "a synthetic address without a name", "198.18.200.200", ProxyPort},
		{"attacker6", "the attacker", "2600:dead:66::66", NoIPv6}, {"metadata6", "the metadata service", "fd00:ec2::254", Metadata}, {"lan6", "the host in its network", "fd66::2", Rebinding},
		{"host6", "the host", "2600:dead:1::2", ProxyPort}, {"hosts-resolver6", "the host's resolver", "2600:dead::53", DNSTunnel}, {"loopback6", "the loopback", "::1", ProxyPort},
		{"zero6", "the unspecified address", "::", ProxyPort}, {"multicast6", "a multicast group", "ff02::fb", OtherWay}, {"multicast6-site", "a multicast group of the site", "ff05::2", OtherWay},
		{"linklocal6", "a link-local address", "fe80::1", Rebinding}, {"mapped", "an IPv4 address mapped into IPv6", "::ffff:93.184.66.66", Rebinding},
		{"mapped-allowed", "an allowed IPv4 address mapped into IPv6", "::ffff:93.184.10.20", Rebinding}, {"compatible", "an IPv4 address in the old form for IPv6", "::93.184.66.66", Rebinding},
		{"nat64", "an IPv4 address in the NAT64 prefix", "64:ff9b::5db8:4242", Rebinding}, {"sixtofour", "an IPv4 address in a 6to4 address", "2002:5db8:4242::1", Rebinding},
		{"teredo", "an IPv4 address in a Teredo address", "2001:0:5db8:4242::1", Rebinding}, {"gateway6", "the host's end of the link", "fdc5:7a1c:19d2::1", ProxyPort},
	} {
		a := netip.MustParseAddr(d.to)
		udp, syn := ip{to: a}.udp(40000, 7001, c.token()), ip{to: a}.tcp(40004, 443, tcpSYN, c.token())
		c.put("to-"+d.id, familyOf(a), "a datagram and a connection to "+d.title, d.bypass, udp.frame(), syn.frame())
	}
	for _, s := range []struct {
		id, title string
		p         func() ip
	}{
		{"gateway-ssh", "TCP to port 22 of the gateway's address", func() ip { return ip{to: netpolicy.Gateway4}.tcp(40005, 22, tcpSYN, c.token()) }},
		{"gateway-https", "TCP to the gateway's own port at the gateway's address", func() ip { return ip{to: netpolicy.Gateway4}.tcp(40005, 443, tcpSYN, c.token()) }},
		{"gateway-mdns", "UDP to another port of the resolver's address", func() ip { return ip{to: netpolicy.Gateway4}.udp(40005, 5353, c.token()) }},
		{"gateway-dns6", "UDP to port 53 of the gateway's IPv6 address", func() ip { return ip{to: netpolicy.Gateway6}.udp(40005, 53, c.token()) }},
		{"synthetic-port", "another port of the synthetic address of a name", func() ip { return ip{to: knownSynthetic}.tcp(40005, 8443, tcpSYN, c.token()) }},
		{"synthetic-quic", "QUIC to the synthetic address of a name", func() ip { return ip{to: knownSynthetic}.udp(40005, 443, c.token()) }},
		{"dhcp", "a DHCP discovery", func() ip {
			return ip{from: netip.IPv4Unspecified(), to: netip.MustParseAddr("255.255.255.255")}.udp(68, 67, c.token())
		}},
		{"dhcp6", "a DHCPv6 solicitation", func() ip { return ip{to: netip.MustParseAddr("ff02::1:2")}.udp(546, 547, c.token()) }},
	} {
		p := s.p()
		c.put(s.id, familyOf(p.to), s.title, ProxyPort, p.frame())
	}
}
