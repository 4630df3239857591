package fence

import (
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/custody-project/custody/netpolicy"
)

// segment returns an IP packet with a TCP reset. It has an ACK, because a connection that is being opened ignores a
// reset without one.
func segment(src, dst netip.AddrPort, seq, ack uint32) []byte {
	tcp := &layers.TCP{SrcPort: layers.TCPPort(src.Port()), DstPort: layers.TCPPort(dst.Port()), Seq: seq, Ack: ack, RST: true, ACK: true}
	if src.Addr().Is4() {
		ip := ipv4(src.Addr(), dst.Addr(), layers.IPProtocolTCP)
		_ = tcp.SetNetworkLayerForChecksum(ip) // fails only for other layers
		return serialize(ip, tcp)
	}
	ip := ipv6(src.Addr(), dst.Addr(), layers.IPProtocolTCP)
	_ = tcp.SetNetworkLayerForChecksum(ip)
	return serialize(ip, tcp)
}

// prohibited returns a frame for the guest that quotes the denied packet: ICMP type 3, code 13 (RFC 1812, section
// 5.2.7.1), or ICMPv6 type 1, code 1 (RFC 4443, section 3.1).
func prohibited(q quoted, quote []byte) []byte {
	if q.src.Addr().Is4() {
		return ethernet(serialize(
			ipv4(netpolicy.Gateway4, q.src.Addr(), layers.IPProtocolICMPv4),
			&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4CodeCommAdminProhibited)},
			gopacket.Payload(quote)))
	}
	ip := ipv6(netpolicy.Gateway6, q.src.Addr(), layers.IPProtocolICMPv6)
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeDestinationUnreachable, layers.ICMPv6CodeAdminProhibited)}
	_ = icmp.SetNetworkLayerForChecksum(ip)
	unused := make([]byte, 4)
	return ethernet(serialize(ip, icmp, gopacket.Payload(append(unused, quote...))))
}

func ipv4(src, dst netip.Addr, proto layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, TTL: 64, Flags: layers.IPv4DontFragment, Protocol: proto, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
}

func ipv6(src, dst netip.Addr, proto layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: proto, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
}

// ethernet returns a frame from the gateway to the guest with the packet.
func ethernet(packet []byte) []byte {
	kind := layers.EthernetTypeIPv4
	if packet[0]>>4 == 6 {
		kind = layers.EthernetTypeIPv6
	}
	return serialize(
		&layers.Ethernet{SrcMAC: netpolicy.GatewayMAC[:], DstMAC: netpolicy.GuestMAC[:], EthernetType: kind},
		gopacket.Payload(packet))
}

// serialize cannot fail: its callers make all layers, from addresses of the right length.
func serialize(parts ...gopacket.SerializableLayer) []byte {
	b := gopacket.NewSerializeBuffer()
	_ = gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, parts...)
	return b.Bytes()
}
