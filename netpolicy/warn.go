package netpolicy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// Warning describes a valid rule that a reviewer should check.
type Warning struct {
	Rule    *Rule
	Message string
	Hint    string // what to write instead, or what to consider
}

// Warnings returns the wide parts of a policy, in the order of its rules. The policy can be used in any case.
func Warnings(p *Policy) []Warning {
	var all []Warning
	for i := range p.Rules() {
		r := &p.rules[i]
		warn := func(hint, format string, args ...any) {
			all = append(all, Warning{r, fmt.Sprintf(format, args...), hint})
		}
		if prefix, ok := r.Pattern.Prefix(); ok {
			warnRange(prefix, warn)
		} else {
			warnName(r, warn)
		}
		warnPorts(r, warn)
		warnHTTP(r, warn)
		warnAddresses(r, warn)
		p.warnAround(r, warn)
	}
	return all
}

// Widest ranges without a warning, in bits.
const (
	narrow4 = 24
	narrow6 = 48
)

type warnFunc func(hint, format string, args ...any)

func warnRange(prefix netip.Prefix, warn warnFunc) {
	if prefix.Addr().Is4() && prefix.Bits() < narrow4 || !prefix.Addr().Is4() && prefix.Bits() < narrow6 {
		warn("give the addresses that are needed, or names", "%s is a wide range: all its hosts can be reached", prefix)
	} else {
		warn("prefer a name: its addresses are resolved and checked", "no name is checked for %s: any server that answers there is reached", prefix)
	}
}

func warnName(r *Rule, warn warnFunc) {
	name, below := r.Pattern.Name()
	if below {
		switch registrable, err := publicsuffix.EffectiveTLDPlusOne(name); {
		case err != nil: // the name is a public suffix itself
			warn("name the hosts that are needed", "anyone can have a host below %s", name)
		case isShared(name):
			warn("name the hosts that are needed", "customers of %s have hosts below it", name)
		case registrable == name:
			warn("name the hosts that are needed, or a domain further down", "every host below %s is allowed, future ones too", name)
		}
		if r.Credential != "" {
			warn("name the host that needs it", "the credential %s is sent to any host below %s", r.Credential, name)
		}
	}
	if r.Mode == Direct {
		warn("use mode gateway where the traffic is TLS or HTTP", "it is not checked that a direct stream to %s is for that name: others at its addresses can be reached", r.Pattern)
	}
	if slices.ContainsFunc(resolvers, func(s string) bool { return under(name, s) }) {
		warn("remove it: the sandbox has a resolver", "%s answers DNS over HTTPS: it resolves any name, which can contain any data", name)
	}
}

func under(name, domain string) bool { return name == domain || strings.HasSuffix(name, "."+domain) }

// isShared reports whether different owners have hosts at or below a name. The public suffix list has many such names,
// but not those of which only some branches are delegated. A name below a suffix of the list has a single owner.
func isShared(name string) bool {
	_, registry := publicsuffix.PublicSuffix(name)
	return slices.ContainsFunc(shared, func(s string) bool { return under(s, name) || registry && under(name, s) })
}

var (
	shared = []string{
		"amazonaws.com", "awsapprunner.com", "azure.com", "windows.net", "googleusercontent.com", "fastly.net", "digitaloceanspaces.com",
		"r2.cloudflarestorage.com", "backblazeb2.com", "gitpod.io", "sharepoint.com", "atlassian.net",
	}
	resolvers = []string{
		"dns.google", "dns.google.com", "cloudflare-dns.com", "one.one.one.one", "dns.quad9.net", "dns.adguard.com", "dns.adguard-dns.com", "dns.nextdns.io",
		"doh.opendns.com", "doh.cleanbrowsing.org", "dns.mullvad.net", "dns0.eu", "doh.dns.sb", "dns.controld.com",
	}
)

func warnPorts(r *Rule, warn warnFunc) {
	for _, p := range r.Ports {
		switch {
		case p.Number == 53 && r.Mode == Direct:
			warn("remove it: the sandbox has a resolver", "%s to %s can resolve any name, which can contain any data", p, r.Pattern)
		case p.Number == 853:
			warn("remove it: the sandbox has a resolver", "%s is DNS over TLS or QUIC: it resolves any name, which can contain any data", p)
		}
	}
}

func warnHTTP(r *Rule, warn warnFunc) {
	if h := r.HTTP; h != nil {
		if len(h.Methods) == 0 && len(h.Paths) == 0 {
			warn("give the methods and paths that are needed", "requests to %s are recorded, and all allowed", r.Pattern)
		}
		for _, m := range h.Methods {
			if !slices.Contains(methods, m) {
				warn("check the spelling, or keep it if the server has such a method", "%s is not a registered HTTP method", m)
			}
		}
	}
	if r.Credential != "" && r.hasPort(Port{"tcp", 80}) {
		warn("remove tcp/80", "the credential %s can be sent without TLS", r.Credential)
	}
}

// metadata are the addresses of clouds' metadata services, which have credentials.
var metadata = []netip.Addr{
	netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("169.254.170.2"), netip.MustParseAddr("100.100.100.200"),
	netip.MustParseAddr("168.63.129.16"), netip.MustParseAddr("192.0.0.192"), netip.MustParseAddr("fd00:ec2::254"),
}

func warnAddresses(r *Rule, warn warnFunc) {
	named := r.Addresses
	if prefix, ok := r.Pattern.Prefix(); ok {
		named = []netip.Prefix{prefix}
	}
	for _, n := range named {
		special, is := Special(n.Addr())
		switch {
		case !is || n.Bits() < special.Bits():
			if len(r.Addresses) > 0 && !slices.ContainsFunc(specialRanges, func(s netip.Prefix) bool { return s.Overlaps(n) && n.Bits() >= s.Bits() }) {
				warn("give special ranges as such, or remove it", "%s contains no range with a special purpose, so it has no effect", n)
			}
		case slices.ContainsFunc(metadata, func(a netip.Addr) bool { return n.Contains(a) && r.AllowsAddr(a) }):
			warn("leave out the cloud's metadata", "%s contains a cloud's metadata service, which has credentials", n)
		case special == netip.MustParsePrefix("127.0.0.0/8") || n == netip.MustParsePrefix("::1/128"):
			warn("name another address", "%s is the host that custody runs on", n)
		default:
			warn("check that no service there relies on the network alone for its security", "%s is not part of the internet", n)
		}
	}
}

// warnAround checks a rule in combination with the others.
func (p *Policy) warnAround(r *Rule, warn warnFunc) {
	if r.Mode != Direct {
		return
	}
	_, isRange := r.Pattern.Prefix()
	if !isRange && !r.Pattern.below {
		return
	}
	for i := range p.rules {
		o := &p.rules[i]
		name, _ := o.Pattern.Name()
		if o.HTTP == nil || !slices.ContainsFunc(o.Ports, r.hasPort) || !isRange && !under(name, r.Pattern.name) {
			continue
		}
		warn("give the direct rule other ports, or fewer names and addresses",
			"it bypasses the http rule for %s%s, if that host has an address that this rule reaches", o.Pattern, o.place())
	}
}
