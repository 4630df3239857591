package dnsproxy

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/miekg/dns"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/dnsproxy/upstream"
	"github.com/custody-project/custody/netpolicy"
)

// direct answers with the name's real addresses, from the cache or through a worker.
func (s *session) direct(ctx context.Context, p *pending, ev *audit.DNS) bool {
	if a, ok := s.cached(p.name, p.qtype); ok {
		return s.resolved(ctx, p, ev, a)
	}
	select {
	case s.jobs <- p:
		return false
	default:
	}
	s.count.overloaded.Add(1)
	return s.fail(ctx, p, ev, reasonBusy)
}

// work runs one worker.
func (s *session) work(ctx context.Context) {
	for p := range s.jobs {
		if s.resolve(ctx, p) {
			s.out <- p
		}
	}
}

// resolve resolves the name upstream. Because the query may have waited, resolve decides on it again with the policy in
// force.
func (s *session) resolve(ctx context.Context, p *pending) bool {
	g := s.cfg.Live.Current()
	v := netpolicy.Decide(g.Policy, netpolicy.Question{Name: p.name, Via: netpolicy.Direct})
	ev := s.begin(p, g)
	p.rule = v.RuleName()
	ev.Rule = p.rule
	if !v.Allow {
		return s.deny(ctx, p, ev, dns.RcodeRefused, dns.ExtendedErrorCodeBlocked, string(v.Reason))
	}
	a, err := s.cfg.Upstream.Resolve(ctx, p.name, p.qtype)
	if err != nil {
		return s.fail(ctx, p, ev, reasonUpstream+err.Error())
	}
	return s.resolved(ctx, p, ev, a)
}

// resolved answers with the addresses of the upstream answer that the policy allows.
func (s *session) resolved(ctx context.Context, p *pending, ev *audit.DNS, a upstream.Answer) bool {
	ev.Upstream, ev.Cached, ev.LatencyNS = a.Server, a.Cached, int64(a.Latency)
	for _, name := range a.Chain {
		ev.Chain = append(ev.Chain, audit.Text(name))
	}
	if a.RCode != dns.RcodeSuccess && a.RCode != dns.RcodeNameError {
		return s.fail(ctx, p, ev, reasonUpstream+dns.RcodeToString[a.RCode])
	}
	given, dropped := s.sift(p, a.Addrs)
	ev.Dropped = listDropped(dropped, len(a.Addrs)-len(given)-len(dropped)+a.Omitted)
	if len(given) == 0 && len(dropped) > 0 {
		return s.deny(ctx, p, ev, dns.RcodeRefused, dns.ExtendedErrorCodeBlocked, string(netpolicy.SpecialRange))
	}
	p.reply.rcode = a.RCode
	if len(given) > 0 {
		ttl := min(max(a.TTL, s.cfg.MinTTL), s.cfg.MaxTTL).Truncate(time.Second)
		p.reply.addrs, p.reply.ttl = given, uint32(ttl.Seconds())
		p.open, p.via, p.life = given, netpolicy.Direct, ttl+s.cfg.Grace
		ev.TTL = p.reply.ttl
		for _, addr := range given {
			ev.Answers = append(ev.Answers, addr.String())
		}
	}
	return s.post(ctx, p, ev)
}

// sift separates the addresses that the guest may receive, at most MaxAddrs, from the others.
func (s *session) sift(p *pending, addrs []netip.Addr) (given, dropped []netip.Addr) {
	for _, a := range addrs {
		switch {
		case !s.may(p.under.Policy, p, a):
			dropped = append(dropped, a)
		case len(given) < s.cfg.MaxAddrs:
			given = append(given, a)
		}
	}
	return given, dropped
}

// may reports whether the guest may receive an address for the name: it has the requested type, the policy allows it,
// and, if it is an address of the host, a rule names it.
func (s *session) may(policy *netpolicy.Policy, p *pending, a netip.Addr) bool {
	if a.Is4() != (p.qtype == dns.TypeA) || a.Is4In6() {
		return false
	}
	if !netpolicy.Decide(policy, netpolicy.Question{Name: p.name, Addr: a, Via: netpolicy.Direct}).Allow {
		return false
	}
	return !s.cfg.Self(a) || slices.ContainsFunc(policy.Match(p.name), func(r *netpolicy.Rule) bool {
		return slices.ContainsFunc(r.Addresses, func(n netip.Prefix) bool { return n.Contains(a) })
	})
}

// maxListed bounds the dropped addresses that the record lists.
const maxListed = 32

// listDropped lists dropped addresses, and the number of further ones.
func listDropped(dropped []netip.Addr, more int) []string {
	var out []string
	for i, a := range dropped {
		if i == maxListed {
			more += len(dropped) - i
			break
		}
		out = append(out, a.String())
	}
	if more > 0 {
		out = append(out, "and "+strconv.Itoa(more)+" more")
	}
	return out
}
