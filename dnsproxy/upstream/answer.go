package upstream

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// Answer has a name's addresses.
type Answer struct {
	RCode int // of the DNS; dns.RcodeSuccess with no addresses means that there are none of this type
	// Addrs are the distinct addresses in the server's order, at most MaxAddrs. The caller must not change them.
	Addrs []netip.Addr
	// Omitted is the number of further addresses.
	Omitted int
	// TTL is how long the answer is valid: the smallest TTL in the chain, less the time in the cache.
	TTL time.Duration
	// Chain are the names that the CNAMEs lead to, the last of which has the addresses. The caller must not change it.
	Chain  []string
	Server string // the server that answered, in the form that ParseServer reads
	// Latency is the duration of the lookup; 0 for a cached answer.
	Latency time.Duration
	Cached  bool
}

// Limits of one answer.
const (
	MaxAddrs = 64
	MaxChain = 8 // CNAMEs
)

// ErrChain means that the CNAMEs of a name form a loop or a chain that is too long.
var ErrChain = errors.New("the chain of CNAMEs loops or is too long")

// part is the part of an answer that one response contains.
type part struct {
	rcode   int
	addrs   []netip.Addr
	omitted int
	ttl     uint32 // seconds
	chain   []string
	// open is the name to look up next, if the chain ends without addresses and without a negative answer. Empty
	// otherwise.
	open string
	// settled is set when the server gave a lifetime for the negative answer (RFC 2308, section 5).
	settled bool
}

// read extracts the records that answer the question. It ignores records of other owners, classes and types, and the
// other sections, except for the SOA record that gives the lifetime of a negative answer.
func read(m *dns.Msg, q question) (part, error) {
	p := part{rcode: m.Rcode, ttl: 1<<31 - 1}
	name, aliases := q.name, cnames(m)
	for {
		p.take(m, name, q.qtype)
		if len(p.addrs) > 0 {
			return p, nil
		}
		c, ok := aliases[name]
		if !ok {
			break
		}
		name = canonical(c.Target)
		if len(p.chain) == MaxChain || name == q.name || slices.Contains(p.chain, name) {
			return p, fmt.Errorf("%w: %s leads over %s", ErrChain, q.name, brief(append(p.chain, name)))
		}
		p.chain = append(p.chain, name)
		p.ttl = min(p.ttl, seconds(c.Hdr.Ttl))
	}
	p.settle(m)
	if p.rcode == dns.RcodeSuccess && len(p.chain) > 0 && !p.settled {
		p.open = name
	}
	return p, nil
}

// cnames returns the first CNAME of each owner.
func cnames(m *dns.Msg) map[string]*dns.CNAME {
	var out map[string]*dns.CNAME
	for _, rr := range m.Answer {
		c, ok := rr.(*dns.CNAME)
		if !ok || c.Hdr.Class != dns.ClassINET {
			continue
		}
		if out == nil {
			out = map[string]*dns.CNAME{}
		}
		if owner := canonical(c.Hdr.Name); out[owner] == nil {
			out[owner] = c
		}
	}
	return out
}

// take adds the name's addresses in the response.
func (p *part) take(m *dns.Msg, name string, qtype uint16) {
	for _, rr := range m.Answer {
		h := rr.Header()
		if h.Rrtype != qtype || h.Class != dns.ClassINET || canonical(h.Name) != name {
			continue
		}
		a, ok := address(rr)
		switch {
		case !ok || slices.Contains(p.addrs, a):
			continue
		case len(p.addrs) == MaxAddrs:
			p.omitted++
			continue
		}
		p.addrs = append(p.addrs, a)
		p.ttl = min(p.ttl, seconds(h.Ttl))
	}
}

// settle reads the lifetime of a negative answer; 0 if the server gives none.
func (p *part) settle(m *dns.Msg) {
	for _, rr := range m.Ns {
		if soa, ok := rr.(*dns.SOA); ok && soa.Hdr.Class == dns.ClassINET {
			p.ttl = min(p.ttl, seconds(soa.Hdr.Ttl), seconds(soa.Minttl))
			p.settled = true
			return
		}
	}
	p.ttl = 0
}

func address(rr dns.RR) (netip.Addr, bool) {
	switch rr := rr.(type) {
	case *dns.A:
		a, ok := netip.AddrFromSlice(rr.A.To4())
		return a, ok
	case *dns.AAAA:
		a, ok := netip.AddrFromSlice(rr.AAAA.To16())
		return a, ok
	}
	return netip.Addr{}, false
}

// seconds reads a TTL; one with the highest bit set is 0 (RFC 2181, section 8).
func seconds(ttl uint32) uint32 {
	if ttl > 1<<31-1 {
		return 0
	}
	return ttl
}

// canonical returns the form of a name in which names are compared: ASCII in presentation form, with other bytes
// escaped.
func canonical(name string) string {
	return strings.ToLower(strings.TrimSuffix(name, "."))
}

// brief joins names for an error, as many as fit in a line.
func brief(names []string) string {
	s := strings.Join(names, ", ")
	if len(s) > 200 {
		s = s[:200] + "..."
	}
	return s
}
