package redteam

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/custody-project/custody/audit"
)

// Family is the version of IP that a probe uses, "" if it does not matter.
type Family string

// The families.
const (
	IPv4 Family = "ipv4"
	IPv6 Family = "ipv6"
)

// Probe is one attempt to bypass egress control. IDs are stable: the ID of a removed probe is not reused.
type Probe struct {
	ID     string `json:"id"` // GROUP/WHAT, with -v4 or -v6 where there are both
	Family Family `json:"family,omitempty"`
	Title  string `json:"title"`  // what is attempted
	Bypass Bypass `json:"bypass"` // the known bypass that it is a variant of

	// Control marks a probe that must succeed. It shows that the policy blocked the others.
	Control bool `json:"control,omitempty"`

	scene   scene
	token   string   // is part of all data that the probe sends
	task    *task    // what the guest's script does, nil in scenes without a script
	frames  [][]byte // what the guest's kernel sends on its network card
	held    int      // number of frames that are first fragments of a datagram that might be allowed
	config  string   // the project file, in the scene refused
	targets []target // destinations at which its packets would be observed
	allowed reach    // which of its traffic may reach the network's servers
	check   check    // check of the response, in addition to those of every response; may be nil
	step    string   // in the scene secrets: the probe's step
	binds   []secret // in the scene secrets: the secrets of the step
	about   []secret // the secrets that it tries to leak; default: binds
	outer   outer    // additional check of observations outside; may be nil
	proof   evidence // the records that account for it
}

// Bypass is a class of published bypasses of egress control.
type Bypass string

// The bypasses, each found in another sandbox.
const (
	DNSTunnel    Bypass = "DNS tunnel"
	DNSOverTCP   Bypass = "DNS over TCP"
	DoH          Bypass = "DoH on 443"
	DoT          Bypass = "DoT on 853"
	ResolveFirst Bypass = "resolved before the deny"
	Rebinding    Bypass = "rebinding"
	TTLZero      Bypass = "TTL 0"
	AnyAddress   Bypass = "SNI to any address"
	HostHeader   Bypass = "Host header"
	LeadingCRLF  Bypass = "CRLF before Host"
	Fronting     Bypass = "fronting"
	Shared       Bypass = "shared addresses"
	ECH          Bypass = "ECH"
	QUIC         Bypass = "QUIC"
	LateSNI      Bypass = "SNI beyond the first segment"
	NoIPv6       Bypass = "IPv6 unhandled"
	Metadata     Bypass = "metadata service"
	Spoofing     Bypass = "spoofed source"
	RawSocket    Bypass = "raw sockets"
	Fragments    Bypass = "fragments"
	ProxyPort    Bypass = "the proxy's own port"
	Outliving    Bypass = "flows outliving a revoke"
	FailOpen     Bypass = "fail-open"
	OtherWay     Bypass = "another protocol or port"
	Smuggling    Bypass = "request smuggling"
	Steering     Bypass = "steering an injected credential"
	SecondAuth   Bypass = "a second auth header"
	Reflection   Bypass = "reflection in answers"
	MaskOpen     Bypass = "mask failing open"
	Environ      Bypass = "environ after unset"
	Links        Bypass = "symlinks in copy"
	Elsewhere    Bypass = "credential to another host"
	AfterStep    Bypass = "credential after its step"
	SplitWrites  Bypass = "secret split across chunks"
	Encodings    Bypass = "secret in another encoding"
	Positive     Bypass = "-" // of controls
)

// Bypasses returns all bypasses, without Positive.
func Bypasses() []Bypass {
	return []Bypass{
		DNSTunnel, DNSOverTCP, DoH, DoT, ResolveFirst, Rebinding, TTLZero, AnyAddress, HostHeader, LeadingCRLF, Fronting, Shared,
		ECH, QUIC, LateSNI, NoIPv6, Metadata, Spoofing, RawSocket, Fragments, ProxyPort, Outliving, FailOpen,
		Steering, SecondAuth, Reflection, MaskOpen, Environ, Links, Elsewhere, AfterStep, SplitWrites, Encodings,
	}
}

// scene is the kind of run in which a probe is made; see suite.go.
type scene string

const (
	open        scene = "open"    // a policy with rules of each kind
	closed      scene = "closed"  // a policy without rules
	live        scene = "live"    // a policy that is narrowed while flows are open
	crash       scene = "crash"   // custody is killed while flows are open
	refused     scene = "refused" // an invalid policy
	kernel      scene = "kernel"  // no VM: frames are written to the fence's TAP
	withSecrets scene = "secrets" // steps with credentials
	outside     scene = "outside" // no sandbox: the suite itself sends, to test the watchers
)

// target is a destination of packets. Port 0 means any port, and proto "" any protocol.
type target struct {
	proto string
	to    netip.AddrPort
}

func (t target) is(proto string, to netip.AddrPort) bool {
	return t.to.Addr() == to.Addr().Unmap() && (t.to.Port() == 0 || t.to.Port() == to.Port()) && (t.proto == "" || t.proto == proto)
}

// reach is the part of a probe's traffic that the policy allows.
type reach int

const (
	nothing reach = iota
	asks          // its name may reach the network's resolver
	reaches       // also, its token may reach a server that the policy allows
)

// check returns why a report means that the probe succeeded, "" if it does not.
type check func(report) string

// outer returns why observations outside the sandbox mean that a probe succeeded, "" if they do not.
type outer func(t *trial, p Probe, said report) string

// evidence reports whether a record accounts for a probe's outcome.
type evidence func(b *about, r *audit.Record) bool

// catalogue builds the list of probes. Each group of probes is a separate type, which adds them to the catalogue.
type catalogue struct {
	nonce string // part of each token; differs from suite to suite
	list  []Probe
}

// Probes returns all probes. The nonce, a few lower-case letters and digits, distinguishes the traffic of concurrent
// suites.
func Probes(nonce string) []Probe {
	c := &catalogue{nonce: nonce}
	for _, group := range []func(){
		controls{c}.all, nameProbes{c}.all, addressProbes{c}.all, helloProbes{c}.all, hostProbes{c}.all, requestProbes{c}.all,
		rebindingProbes{c}.all, policyProbes{c}.narrowing, policyProbes{c}.configs, secretProbes{c}.all, kernelProbes{c}.all,
	} {
		group()
	}
	return c.list
}

// Match returns the probes whose ID a pattern matches (path.Match, "" for all), with the controls of their scenes.
func Match(list []Probe, pattern string) ([]Probe, error) {
	scenes := map[scene]bool{}
	wanted := map[string]bool{}
	for _, p := range list {
		ok, err := path.Match(pattern, p.ID)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", pattern, err)
		}
		if ok || pattern == "" {
			wanted[p.ID], scenes[p.scene] = true, true
		}
	}
	if len(wanted) == 0 {
		return nil, fmt.Errorf("no probe matches %q", pattern)
	}
	scenes[outside] = true
	return slices.DeleteFunc(slices.Clone(list), func(p Probe) bool { return !wanted[p.ID] && !(p.Control && scenes[p.scene]) }), nil
}

// next returns the number of the next probe.
func (c *catalogue) next() int { return len(c.list) + 1 }

// token returns the token of the next probe.
func (c *catalogue) token() string { return fmt.Sprintf("p%s%03d", c.nonce, c.next()) }

// victim returns an address of the attacker that only the next probe targets.
func (c *catalogue) victim(v Family) netip.Addr {
	n := c.next()
	if v == IPv6 {
		return netip.AddrFrom16([16]byte{0x26, 0x00, 0xbe, 0xef, 14: byte(n >> 8), 15: byte(n)})
	}
	return netip.AddrFrom4([4]byte{93, 200, byte(n >> 8), byte(n)})
}

// add adds a probe, with its token and the target of its task.
func (c *catalogue) add(p Probe) {
	p.token = c.token()
	if p.scene == "" {
		p.scene = open
	}
	if p.proof == nil {
		p.proof = denied
	}
	if t := p.task; t != nil {
		t.ID = p.ID
		if a, err := netip.ParseAddr(t.Host); err == nil {
			p.targets = append(p.targets, target{"", netip.AddrPortFrom(a.WithZone("").Unmap(), uint16(t.Port))})
		}
	}
	if p.scene == withSecrets && p.step == "" {
		p.step = fmt.Sprintf("t%03d", c.next())
	}
	if p.about == nil {
		p.about = p.binds
	}
	c.list = append(c.list, p)
}

// last returns the latest probe.
func (c *catalogue) last() *Probe { return &c.list[len(c.list)-1] }

// both adds a probe for each version of IP.
func (c *catalogue) both(id, title string, bypass Bypass, make func(v Family) Probe) {
	for _, v := range []Family{IPv4, IPv6} {
		p := make(v)
		p.ID, p.Family, p.Title, p.Bypass = id+"-"+v.short(), v, title, bypass
		c.add(p)
	}
}

func (v Family) short() string { return strings.Replace(string(v), "ip", "", 1) }

func (v Family) number() int {
	if v == IPv6 {
		return 6
	}
	return 4
}

// of returns four for IPv4 and six for IPv6.
func (v Family) of(four, six netip.Addr) netip.Addr {
	if v == IPv6 {
		return six
	}
	return four
}
