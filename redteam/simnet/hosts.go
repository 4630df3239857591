package simnet

import (
	"net/netip"
	"slices"
	"strings"
)

// Host is a name of the network with its services.
type Host struct {
	Name  string // "*." at its start matches any label
	Addrs []netip.Addr
	Ports []string // such as tcp/443
	What  string
}

var (
	webPorts  = []string{"tcp/80", "tcp/443"}
	echoPorts = []string{"tcp/7000", "udp/7001"}
)

var hosts = []Host{
	{Allowed, []netip.Addr{Allowed4, Allowed6}, webPorts, "web server, with a git repository at /repo.git"},
	{Fronted, []netip.Addr{Allowed4, Allowed6}, webPorts, "another website of the same server"},
	{API, []netip.Addr{API4, API6}, webPorts, "web server, for rules with http"},
	{LLM, []netip.Addr{LLM4, LLM6}, []string{"tcp/443"}, "LLM API; its key is in WORLD_LLM_KEY"},
	{Plain, []netip.Addr{Allowed4, Allowed6}, []string{"tcp/80"}, "web server, for rules with HTTP in cleartext"},
	{Direct, []netip.Addr{Direct4, Direct6}, slices.Concat(echoPorts, webPorts), "echo server, for rules with mode direct"},
	{Quiet, []netip.Addr{Quiet4, Quiet6}, echoPorts, "another echo server"},
	{"*." + Wild, []netip.Addr{Allowed4, Allowed6}, webPorts, "any name below it is a web server"},
	{Attacker, []netip.Addr{Attacker4, Attacker6}, webPorts, "the attacker, as is every other address"},
	{"*." + Attacker, []netip.Addr{Attacker4, Attacker6}, webPorts, "a query for it reveals the name to the attacker"},
}

// Hosts returns the names of the network, except those below Rebind and RebindDirect.
func Hosts() []Host { return slices.Clone(hosts) }

// hostOf finds a name among hosts.
func hostOf(name string) (Host, bool) {
	i := slices.IndexFunc(hosts, func(h Host) bool {
		parent, any := strings.CutPrefix(h.Name, "*")
		return h.Name == name || any && strings.HasSuffix(name, parent) && len(name) > len(parent)
	})
	if i < 0 {
		return Host{}, false
	}
	return hosts[i], true
}
