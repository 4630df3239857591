package ecs

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export/internal/wire"
)

func flowClass(f audit.Flow) (types []string, outcome string) {
	switch f.State {
	case audit.FlowOpen:
		return []string{"connection", "start", "allowed"}, "success"
	case audit.FlowClose:
		return []string{"connection", "end", "allowed"}, "success"
	case audit.FlowDeny:
		return []string{"connection", "denied"}, "failure"
	case audit.FlowRevoke:
		return []string{"connection", "end", "denied"}, "failure"
	}
	switch f.Errno {
	case 0:
		return []string{"connection", "info"}, "success"
	case 115: // the connect continues in the background
		return []string{"connection", "info"}, "unknown"
	}
	return []string{"connection", "info"}, "failure"
}

func flowEvent(d *doc, f audit.Flow) {
	types, outcome := flowClass(f)
	top := d.head(class{kind: "event", category: []string{"network"}, types: types, action: "flow-" + string(f.State),
		outcome: outcome, reason: f.Reason, duration: f.DurationNS})
	top.Join("message", "flow", string(f.State), f.Proto, string(f.Name), f.DstIP, f.Reason)
	srcOK := endpoint(top, &d.seen, "source", f.SrcIP, f.SrcPort, "", "", f.BytesOut, f.PacketsOut)
	dstOK := endpoint(top, &d.seen, "destination", f.DstIP, f.DstPort, string(f.Name), f.Peer, f.BytesIn, f.PacketsIn)
	network(top, f.Proto, "", f.DstIP, f.BytesOut+f.BytesIn, f.PacketsOut+f.PacketsIn)
	rule(top, f.Rule, f.Generation)
	if f.SNI != "" {
		t := top.Obj("tls")
		c := t.Obj("client")
		c.Str("server_name", string(f.SNI))
		c.End()
		t.End()
		d.seen.addHost(string(f.SNI))
	}
	if f.Proc != "" || f.PID != 0 {
		actor(top, d.e, f.Proc, f.PID, f.Parent)
	}

	left := d.custody("flow")
	left.StrIf("id", f.ID)
	if _, err := netip.ParseAddrPort(f.Peer); err != nil {
		left.StrIf("peer", f.Peer)
	}
	if !srcOK {
		left.StrIf("src_ip", f.SrcIP)
	}
	if !dstOK {
		left.StrIf("dst_ip", f.DstIP)
	}
	left.IntIf("errno", int64(f.Errno))
	left.StrIf("verdict", string(f.Verdict))
	left.UintIf("dns_seq", f.DNSSeq)
	left.UintIf("count", f.Count)
	orphan(left, d.e, f.Proc, f.PID, f.Parent)
	if d.e.Observer == audit.Host && f.State != audit.FlowAttempt && (f.Proc != "" || f.PID != 0) {
		left.Const("proc_observer", "guest") // the host observes processes only in their attempts
	}
}

// endpoint writes source or destination, and reports whether the address is valid.
func endpoint(in wire.Object, seen *related, key, ip string, port int, domain, peer string, bytes, packets uint64) bool {
	o := in.Obj(key)
	ok := seen.addIP(ip)
	if ok {
		o.Str("ip", ip)
		o.Str("address", ip)
	}
	o.IntIf("port", int64(port))
	o.StrIf("domain", domain)
	seen.addHost(domain)
	if p, err := netip.ParseAddrPort(peer); err == nil {
		n := o.Obj("nat")
		n.Str("ip", p.Addr().WithZone("").String())
		n.Int("port", int64(p.Port()))
		n.End()
		seen.addIP(p.Addr().WithZone("").String())
	}
	o.UintIf("bytes", bytes)
	o.UintIf("packets", packets)
	o.End()
	return ok
}

func network(in wire.Object, transport, protocol, ip string, bytes, packets uint64) {
	o := in.Obj("network")
	o.StrIf("transport", transport)
	o.StrIf("protocol", protocol)
	if a, err := netip.ParseAddr(ip); err == nil {
		if a.Is4() {
			o.Const("type", "ipv4")
		} else {
			o.Const("type", "ipv6")
		}
	}
	o.Const("direction", "egress")
	o.UintIf("bytes", bytes)
	o.UintIf("packets", packets)
	o.End()
}

// rule writes the rule of the policy that decided.
func rule(in wire.Object, rule string, generation uint32) {
	o := in.Obj("rule")
	o.StrIf("name", rule)
	if rule != "" || generation != 0 {
		o.Const("ruleset", "egress")
	}
	if generation != 0 {
		o.Const("version", strconv.FormatUint(uint64(generation), 10))
	}
	o.End()
}

func verdict(v audit.Verdict) string {
	if v == audit.Deny {
		return "denied"
	}
	return "allowed"
}

func inboundEvent(d *doc, c audit.Inbound) {
	t := class{kind: "event", category: []string{"network"}, action: "inbound-" + string(c.Op), outcome: "success", reason: c.Reason, duration: c.DurationNS}
	switch c.Op {
	case audit.InboundOpen:
		t.types = []string{"connection", "start"}
	case audit.InboundClose:
		t.types = []string{"connection", "end"}
	default:
		t.types, t.outcome = []string{"connection", "info"}, "failure"
	}
	top := d.head(t)
	top.Join("message", "connection to port", strconv.Itoa(c.Port), string(c.Op), c.Who, c.Reason)

	left := d.custody("inbound")
	left.StrIf("id", c.ID)
	left.StrIf("op", string(c.Op))
	left.Int("port", int64(c.Port))
	left.StrIf("who", c.Who)
	left.StrIf("via", c.Via)
	left.IntIf("bytes_in", c.BytesIn)
	left.IntIf("bytes_out", c.BytesOut)
}

func dnsEvent(d *doc, q audit.DNS) {
	outcome := "success"
	if q.Verdict == audit.Deny || q.RCode != "NOERROR" {
		outcome = "failure"
	}
	top := d.head(class{kind: "event", category: []string{"network"}, types: []string{"protocol", verdict(q.Verdict)},
		action: "dns-" + string(q.Verdict), outcome: outcome, reason: q.Reason, duration: q.LatencyNS})
	top.Join("message", "dns", string(q.Verdict), string(q.Name), q.Type, q.RCode, q.Reason)
	d.seen.addHost(string(q.Name))
	o := top.Obj("dns")
	o.Const("type", "answer")
	u := o.Obj("question")
	u.Str("name", string(q.Name))
	u.StrIf("type", q.Type)
	u.Const("class", "IN")
	u.End()
	o.StrIf("response_code", q.RCode)
	answers(o, &d.seen, q)
	o.End()
	network(top, q.Proto, "dns", "", 0, 0)
	rule(top, q.Rule, q.Generation)
	_, at, _ := strings.Cut(q.Upstream, "://")
	if p, err := netip.ParseAddrPort(at); err == nil {
		s := top.Obj("server")
		s.Str("ip", p.Addr().WithZone("").String())
		s.Int("port", int64(p.Port()))
		s.End()
	}

	left := d.custody("dns")
	left.StrIf("verdict", string(q.Verdict))
	left.StrIf("upstream", q.Upstream)
	left.Texts("chain", q.Chain)
	left.Strs("dropped", q.Dropped)
	left.BoolIf("synthetic", q.Synthetic)
	left.BoolIf("cached", q.Cached)
	if len(q.Answers) == 0 {
		left.IntIf("ttl", int64(q.TTL))
	}
}

func answers(in wire.Object, seen *related, q audit.DNS) {
	name := string(q.Name)
	if n := len(q.Chain); n > 0 {
		name = string(q.Chain[n-1])
	}
	a := in.Arr("answers")
	for _, r := range q.Answers {
		if !a.Room(len(r)) {
			break
		}
		e := a.Elem()
		e.Str("name", name)
		e.StrIf("type", q.Type)
		e.Const("class", "IN")
		e.Int("ttl", int64(q.TTL))
		e.Str("data", r)
		e.End()
	}
	a.End()
	r := in.Arr("resolved_ip")
	for _, ip := range q.Answers {
		if seen.addIP(ip) && r.Room(len(ip)) {
			r.Value(ip)
		}
	}
	r.End()
}

func httpEvent(d *doc, h audit.HTTP) {
	outcome := "success"
	if h.Verdict == audit.Deny || h.Status == 0 || h.Status >= 400 {
		outcome = "failure"
	}
	top := d.head(class{kind: "event", category: []string{"network", "web"}, types: []string{"access", verdict(h.Verdict)},
		action: "http-" + string(h.Verdict), outcome: outcome, reason: h.Reason, duration: h.DurationNS})
	top.Join("message", "http", string(h.Verdict), string(h.Method), string(h.Host), string(h.Path), h.Reason)
	o := top.Obj("http")
	o.StrIf("version", strings.TrimPrefix(h.Proto, "HTTP/"))
	q := o.Obj("request")
	q.StrIf("method", string(h.Method))
	body(q, h.BytesOut)
	q.End()
	r := o.Obj("response")
	r.IntIf("status_code", int64(h.Status))
	body(r, h.BytesIn)
	r.End()
	o.End()
	path, query, _ := strings.Cut(string(h.Path), "?")
	u := top.Obj("url")
	u.StrIf("domain", string(h.Host))
	u.StrIf("path", path)
	u.StrIf("query", query)
	u.Str("original", string(h.Path))
	u.End()
	endpoint(top, &d.seen, "destination", "", 0, string(h.Host), "", 0, 0)
	network(top, "tcp", "http", "", 0, 0)
	rule(top, h.Rule, h.Generation)

	left := d.custody("http")
	left.StrIf("verdict", string(h.Verdict))
	left.StrIf("flow", h.Flow)
	left.StrIf("credential", h.Credential)
	left.IntIf("redacted", int64(h.Redacted))
	left.StrIf("llm", h.LLM)
}

func body(in wire.Object, n int64) {
	o := in.Obj("body")
	o.IntIf("bytes", n)
	o.End()
}
