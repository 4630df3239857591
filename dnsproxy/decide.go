package dnsproxy

import (
	"context"
	"net/netip"
	"time"

	"github.com/miekg/dns"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/netpolicy"
)

// Reasons for which queries are refused, in addition to netpolicy's.
const (
	reasonClass    = "only class IN is answered"
	reasonName     = "not a host name"
	reasonType     = "only A, AAAA, HTTPS and SVCB are answered"
	reasonBusy     = "too many queries wait for upstream servers"
	reasonUpstream = "upstream: "
	reasonNames    = "no address for the name: "
	reasonChanged  = "the policy has changed and no longer allows this"
	reasonOpen     = "the path to the address could not be opened: "
	reasonSecret   = "the name contains a secret"
)

// take decides on a query and posts the event. It returns false if a worker got the query or the query has ended.
func (s *session) take(ctx context.Context, p *pending) bool {
	s.count.questions.Add(1)
	g := s.cfg.Live.Current()
	ev := s.begin(p, g)
	switch {
	case p.flawed != nil:
		p.silent = p.flawed.rcode == drop
		return s.deny(ctx, p, ev, max(p.flawed.rcode, 0), noInfo, p.flawed.reason)
	case p.class != dns.ClassINET:
		return s.deny(ctx, p, ev, dns.RcodeRefused, dns.ExtendedErrorCodeNotSupported, reasonClass)
	}
	v := netpolicy.Verdict{Reason: reasonName}
	if p.host {
		v = netpolicy.Decide(g.Policy, netpolicy.Question{Name: p.name})
	}
	p.rule = v.RuleName()
	ev.Rule = p.rule
	if err := s.report(ctx, p.name, v); err != nil {
		return s.unrecorded(p)
	}
	switch {
	case !v.Allow:
		return s.deny(ctx, p, ev, dns.RcodeRefused, dns.ExtendedErrorCodeBlocked, string(v.Reason))
	case s.cfg.Secret != nil && s.cfg.Secret(p.name):
		return s.deny(ctx, p, ev, dns.RcodeRefused, dns.ExtendedErrorCodeBlocked, reasonSecret)
	case p.qtype == dns.TypeHTTPS, p.qtype == dns.TypeSVCB, p.qtype == dns.TypeAAAA && v.Rule.Mode != netpolicy.Direct:
		return s.post(ctx, p, ev)
	case p.qtype != dns.TypeA && p.qtype != dns.TypeAAAA:
		return s.deny(ctx, p, ev, dns.RcodeRefused, dns.ExtendedErrorCodeNotSupported, reasonType)
	case v.Rule.Mode == netpolicy.Direct:
		return s.direct(ctx, p, ev)
	}
	return s.synthetic(ctx, p, ev)
}

// begin resets p, and returns an event for an empty answer.
func (s *session) begin(p *pending, g netpolicy.Generation) *audit.DNS {
	p.reply, p.silent, p.open, p.rule, p.under = reply{}, false, nil, netpolicy.Default, g
	ev := &audit.DNS{
		Name: audit.Text(p.name), Proto: p.proto(),
		Verdict: audit.Allow, Rule: netpolicy.Default, Generation: g.Number,
	}
	if len(p.question) > 0 {
		ev.Type = dns.Type(p.qtype).String()
	}
	return ev
}

// synthetic answers with the name's synthetic address.
func (s *session) synthetic(ctx context.Context, p *pending, ev *audit.DNS) bool {
	addr, err := s.cfg.Names.Synthetic(p.name)
	if err != nil {
		return s.fail(ctx, p, ev, reasonNames+err.Error())
	}
	p.open, p.via, p.life = []netip.Addr{addr}, netpolicy.Gateway, 0
	p.reply.addrs, p.reply.ttl = p.open, uint32(s.cfg.SyntheticTTL.Seconds())
	ev.Answers, ev.TTL, ev.Synthetic = []string{addr.String()}, p.reply.ttl, true
	return s.post(ctx, p, ev)
}

// deny refuses the query.
func (s *session) deny(ctx context.Context, p *pending, ev *audit.DNS, rcode int, info uint16, reason string) bool {
	s.count.denied.Add(1)
	ev.Verdict, ev.Reason = audit.Deny, reason
	p.reply.rcode, p.reply.info = rcode, info
	return s.post(ctx, p, ev)
}

// fail answers that the lookup of an allowed name failed.
func (s *session) fail(ctx context.Context, p *pending, ev *audit.DNS, reason string) bool {
	ev.Reason = reason[:min(len(reason), maxReason)]
	p.open = nil
	p.reply = reply{rcode: dns.RcodeServerFailure, info: dns.ExtendedErrorCodeNetworkError}
	return s.post(ctx, p, ev)
}

// maxReason bounds, in bytes, the length of errors in the record that contain data of other parties.
const maxReason = 500

// post posts the event. If that fails, the query gets no answer.
func (s *session) post(ctx context.Context, p *pending, ev *audit.DNS) bool {
	ev.RCode = dns.RcodeToString[p.reply.rcode]
	seq, err := s.cfg.Recorder.Post(ctx, audit.Event{Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindDNS, DNS: ev})
	if err != nil {
		return s.unrecorded(p)
	}
	p.seq = seq
	return true
}

// unrecorded ends a query whose event the recorder did not accept.
func (s *session) unrecorded(p *pending) bool {
	s.count.unrecorded.Add(1)
	p.free()
	return false
}
