package gateway

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/miekg/dns"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/dnsproxy/upstream"
	"github.com/custody-project/custody/netpolicy"
)

// maxPeers bounds the addresses of a name that are tried.
const maxPeers = 6

// resolution finds the addresses of a destination that a policy allows.
type resolution struct {
	to      destination
	current netpolicy.Generation
	verdict netpolicy.Verdict
}

// lookup is the result of one query for the name's addresses.
type lookup struct {
	kind   string
	answer upstream.Answer
	err    error
}

// lookupGrace is how long the gateway waits for the second lookup after the first one has found addresses (RFC 8305,
// section 3).
const lookupGrace = 50 * time.Millisecond

// peers returns the addresses to which the policy lets the name resolve, in the order in which to try them.
func (r resolution) peers(ctx context.Context) ([]netip.AddrPort, *refusal) {
	var four, six []netip.Addr
	var why netpolicy.Reason
	var err error
	for _, l := range r.lookUp(ctx) {
		good, bad, no := r.sift(l.answer.Addrs)
		why = cmp.Or(no, why)
		err = errors.Join(err, l.err)
		if e := r.record(ctx, l, bad, no); e != nil {
			return nil, &refusal{503, alertInternalError, "the record cannot be written, so all traffic is denied"}
		}
		if l.kind == "A" {
			four = good
		} else {
			six = good
		}
	}
	peers := r.ordered(six, four)
	switch {
	case len(peers) > 0:
		return peers, nil
	case why != "":
		return nil, denied("%s has no allowed address: %s", r.to.name, why)
	case len(four)+len(six) > 0:
		return nil, failed("no address of %s can be reached from this host", r.to.name)
	case err != nil:
		return nil, failed("the addresses of %s could not be found: the host's DNS servers do not answer correctly", r.to.name)
	}
	return nil, failed("%s has no address", r.to.name)
}

// lookUp looks up both kinds of addresses concurrently.
func (r resolution) lookUp(ctx context.Context) []lookup {
	ctx, cancel := context.WithTimeout(ctx, r.to.g.limits.Resolve)
	defer cancel()
	results := make(chan lookup, 2)
	for _, qtype := range []uint16{dns.TypeAAAA, dns.TypeA} {
		go func() {
			a, err := r.to.g.cfg.Resolver.Resolve(ctx, r.to.name, qtype)
			results <- lookup{dns.TypeToString[qtype], a, err}
		}()
	}
	list := []lookup{<-results}
	if len(list[0].answer.Addrs) > 0 {
		defer time.AfterFunc(lookupGrace, cancel).Stop()
	}
	return append(list, <-results)
}

// sift separates the allowed addresses from the others, and returns why the last of those is not allowed.
func (r resolution) sift(addrs []netip.Addr) (good []netip.Addr, bad []string, why netpolicy.Reason) {
	for _, a := range addrs {
		if v := r.to.decidePeer(r.current.Policy, a); v.Allow {
			good = append(good, a.Unmap())
		} else {
			bad, why = append(bad, a.String()), v.Reason
		}
	}
	return good, bad, why
}

// record records the host's DNS lookup, if a server was queried or returned addresses that are not allowed.
func (r resolution) record(ctx context.Context, l lookup, bad []string, why netpolicy.Reason) error {
	if l.answer.Cached && len(bad) == 0 {
		return nil
	}
	d := &audit.DNS{
		Name: audit.Text(r.to.name), Type: l.kind, RCode: dns.RcodeToString[l.answer.RCode], TTL: uint32(l.answer.TTL / time.Second),
		Verdict: audit.Allow, Rule: r.verdict.RuleName(), Reason: string(why), Dropped: bad, Upstream: l.answer.Server,
		Cached: l.answer.Cached, LatencyNS: int64(l.answer.Latency), Generation: r.current.Number,
	}
	for _, a := range l.answer.Addrs {
		d.Answers = append(d.Answers, a.String())
	}
	for _, name := range l.answer.Chain {
		d.Chain = append(d.Chain, audit.Text(name))
	}
	if len(bad) > 0 && len(bad) == len(l.answer.Addrs) {
		d.Verdict = audit.Deny
	}
	switch {
	case errors.Is(l.err, context.Canceled):
		return nil // the lookup of the other kind was faster
	case l.err != nil:
		d.RCode, d.Reason = "SERVFAIL", l.err.Error()
	}
	_, err := r.to.g.post(ctx, audit.Event{Kind: audit.KindDNS, DNS: d})
	return err
}

// ordered interleaves both kinds of addresses, IPv6 first (RFC 8305, section 4), and omits those to which the host has
// no route.
func (r resolution) ordered(six, four []netip.Addr) []netip.AddrPort {
	var list []netip.AddrPort
	for i := range max(len(six), len(four)) {
		for _, kind := range [][]netip.Addr{six, four} {
			if i < len(kind) && len(list) < maxPeers && routed(kind[i]) {
				list = append(list, netip.AddrPortFrom(kind[i], r.to.port))
			}
		}
	}
	return list
}

// routed reports whether the host has a route to an address. It connects a UDP socket, which sends no packet.
func routed(a netip.Addr) bool {
	s, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 9)))
	if err != nil {
		return false
	}
	s.Close()
	return true
}
