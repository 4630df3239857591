package redteam

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/custody-project/custody/redteam/simnet"
)

// rebindingProbes are the probes of names that resolve to private addresses.
type rebindingProbes struct{ *catalogue }

// all adds the probes of names that a rule allows and that resolve to forbidden addresses: through the
// gateway, which must refuse them, and directly, where the resolver must withhold the address.
func (c rebindingProbes) all() {
	kinds := simnet.Rebinding()
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		if kind == "public" || kind == "many" || kind == "mixed" {
			continue // also resolves to a host that the policy allows
		}
		title := "a name that resolves to " + rebound[kind]
		c.rebind("gateway-"+kind, title+", through the gateway", Rebinding, kind, simnet.Rebind, kinds[kind])
		c.rebind("direct-"+kind, title+", directly", Rebinding, kind, simnet.RebindDirect, kinds[kind])
	}
	inside := []netip.Addr{simnet.SiteLAN4, simnet.SiteLAN6, simnet.Metadata4, simnet.Metadata6}
	c.rebind("gateway-cname", "a CNAME into the attacker's zone, which resolves to the host's network, through the gateway", Rebinding, "cname", simnet.Rebind, inside)
	c.rebind("direct-cname", "a CNAME into the attacker's zone, which resolves to the host's network, directly", Rebinding, "cname", simnet.RebindDirect, inside)
	c.mixed()
}

var rebound = map[string]string{
	"private": "private addresses", "loopback": "loopback addresses", "linklocal": "link-local addresses and the metadata service", "cgnat": "carrier-grade NAT addresses",
	"ula": "unique local addresses", "nat64": "private addresses in the NAT64 prefix", "mapped": "private addresses as IPv4-mapped IPv6 addresses",
	"compatible": "a private address in an IPv4-compatible IPv6 address", "sixtofour": "a private address in a 6to4 address", "teredo": "a private address in a Teredo address",
	"unspecified": "the unspecified address", "multicast": "multicast groups", "broadcast": "the broadcast address",
	"benchmark": "the sandbox's own range", "guestlink": "the sandbox's own link", "host": "the host's public addresses",
}

// rebind adds a probe of a name below a zone.
func (c rebindingProbes) rebind(id, title string, bypass Bypass, kind, zone string, to []netip.Addr) {
	p := Probe{ID: "rebind/" + id, Title: title, Bypass: bypass, allowed: asks, proof: withheld}
	name := kind + "-" + c.token() + "." + zone
	if zone == simnet.Rebind {
		p.task = &task{Do: "talk", Name: name, Port: 443, TLS: &tlsTask{SNI: name}, Send: get(c.token(), name)}
		p.check = onlySynthetic
	} else {
		p.task = &task{Do: "name", Name: name, Host: name, Ports: []int{7000, 443}, Send: once(c.token())}
		p.check = noAddressOf(to)
	}
	four, six := slices.ContainsFunc(to, netip.Addr.Is4), slices.ContainsFunc(to, netip.Addr.Is6)
	if !six {
		p.Family = IPv4
	} else if !four {
		p.Family = IPv6
	}
	for _, a := range to {
		p.targets = append(p.targets, target{"", netip.AddrPortFrom(a.Unmap(), 0)})
	}
	c.add(p)
}

// noAddressOf fails a response with one of the addresses.
func noAddressOf(list []netip.Addr) check {
	return func(r report) string {
		for _, s := range r.Addrs {
			if a, err := netip.ParseAddr(s); err == nil && slices.ContainsFunc(list, func(b netip.Addr) bool { return a.Unmap() == b.Unmap() }) {
				return "the resolver returned the address " + s
			}
		}
		return ""
	}
}

// mixed adds names that resolve to an allowed server and to other addresses, or first to it and later to others.
func (c rebindingProbes) mixed() {
	private := []netip.Addr{simnet.SiteLAN4, simnet.SiteLAN6}
	for _, m := range []struct {
		id, title, kind string
		bypass          Bypass
	}{
		{"mixed", "a name that resolves to a public address and to private ones", "mixed", Rebinding},
		{"flip", "a name with TTL 0 that first resolves to a public address, and then to the host's network", "flip", TTLZero},
	} {
		c.rebind("gateway-"+m.id, m.title+", through the gateway", m.bypass, m.kind, simnet.Rebind, private)
		p := c.last()
		p.allowed, p.task.Turns, p.task.Pause, p.Family = reaches, 2, 11000, ""
		c.rebind("direct-"+m.id, m.title+", directly", m.bypass, m.kind, simnet.RebindDirect, private)
		p = c.last()
		p.allowed, p.task.Ports, p.task.Turns, p.task.Pause, p.Family = reaches, []int{7000}, 2, 11000, "" // longer than an answer with a TTL of 0 is kept
	}
	many := simnet.Rebinding()["many"]
	beyond := many[len(many)-1]
	c.rebind("direct-many", "a name with thousands of addresses, most of which the resolver withholds", Shared, "many", simnet.RebindDirect, nil)
	p := c.last()
	p.allowed, p.proof, p.task.Ports, p.task.Timeout = reaches, asked, nil, 3
	p.check = func(r report) string {
		if len(r.Addrs) > 64 {
			return "the resolver returned all addresses"
		}
		return ""
	}
	t := c.talkTo(IPv4, "tcp", beyond, 7000)
	c.add(Probe{ID: "rebind/direct-many-beyond", Family: IPv4, Title: "an address that the resolver withheld from such a name", Bypass: Shared, task: &task{
		Do: "after", After: "rebind/direct-many", Then: t, Host: beyond.String(), Port: 7000,
	}})
	token := c.token()
	c.add(Probe{ID: "rebind/synthetic-as-answer", Family: IPv4, Title: "the synthetic address of one name, with another name in TLS", Bypass: Shared, allowed: asks, task: &task{
		Do: "talk", Name: "same-" + token + "." + simnet.Wild, Port: 443, TLS: &tlsTask{SNI: "other-" + token + "." + simnet.Wild}, Send: get(token, simnet.Wild),
	}})
}
