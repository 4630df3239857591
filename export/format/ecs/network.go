package ecs

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/custody-project/custody/audit"
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
	case 115: // it goes on in the background
		return []string{"connection", "info"}, "unknown"
	}
	return []string{"connection", "info"}, "failure"
}

func (d *doc) flow(f audit.Flow) {
	types, outcome := flowClass(f)
	d.head(class{kind: "event", category: []string{"network"}, types: types, action: "flow-" + string(f.State),
		outcome: outcome, reason: f.Reason, duration: f.DurationNS})
	d.Join("message", "flow", string(f.State), f.Proto, string(f.Name), f.DstIP, f.Reason)
	srcOK := d.end("source", f.SrcIP, f.SrcPort, "", "", f.BytesOut, f.PacketsOut)
	dstOK := d.end("destination", f.DstIP, f.DstPort, string(f.Name), f.Peer, f.BytesIn, f.PacketsIn)
	d.network(f.Proto, "", f.DstIP, f.BytesOut+f.BytesIn, f.PacketsOut+f.PacketsIn)
	d.rule(f.Rule, f.Generation)
	if f.SNI != "" {
		t := d.Obj("tls")
		c := d.Obj("client")
		d.Str("server_name", string(f.SNI))
		d.End(c)
		d.End(t)
		d.seeHost(string(f.SNI))
	}
	if f.Proc != "" || f.PID != 0 {
		d.actor(f.Proc, f.PID, f.Parent)
	}

	d.custody("flow")
	d.StrIf("id", f.ID)
	if _, err := netip.ParseAddrPort(f.Peer); err != nil {
		d.StrIf("peer", f.Peer)
	}
	if !srcOK {
		d.StrIf("src_ip", f.SrcIP)
	}
	if !dstOK {
		d.StrIf("dst_ip", f.DstIP)
	}
	d.IntIf("errno", int64(f.Errno))
	d.StrIf("verdict", string(f.Verdict))
	d.UintIf("dns_seq", f.DNSSeq)
	d.UintIf("count", f.Count)
	d.orphan(f.Proc, f.PID, f.Parent)
	if d.e.Observer == audit.Host && (f.Proc != "" || f.PID != 0) {
		d.Const("proc_observer", "guest") // only the guest can report which process had the ports
	}
}

// end writes source or destination, and reports whether the address was one.
func (d *doc) end(key, ip string, port int, domain, peer string, bytes, packets uint64) bool {
	o := d.Obj(key)
	ok := d.seeIP(ip)
	if ok {
		d.Str("ip", ip)
		d.Str("address", ip)
	}
	d.IntIf("port", int64(port))
	d.StrIf("domain", domain)
	d.seeHost(domain)
	if p, err := netip.ParseAddrPort(peer); err == nil {
		n := d.Obj("nat")
		d.Str("ip", p.Addr().WithZone("").String())
		d.Int("port", int64(p.Port()))
		d.End(n)
		d.seeIP(p.Addr().WithZone("").String())
	}
	d.UintIf("bytes", bytes)
	d.UintIf("packets", packets)
	d.End(o)
	return ok
}

func (d *doc) network(transport, protocol, ip string, bytes, packets uint64) {
	o := d.Obj("network")
	d.StrIf("transport", transport)
	d.StrIf("protocol", protocol)
	if a, err := netip.ParseAddr(ip); err == nil {
		if a.Is4() {
			d.Const("type", "ipv4")
		} else {
			d.Const("type", "ipv6")
		}
	}
	d.Const("direction", "egress")
	d.UintIf("bytes", bytes)
	d.UintIf("packets", packets)
	d.End(o)
}

// rule writes the rule of the policy that decided.
func (d *doc) rule(rule string, generation uint32) {
	o := d.Obj("rule")
	d.StrIf("name", rule)
	if rule != "" || generation != 0 {
		d.Const("ruleset", "egress")
	}
	if generation != 0 {
		d.Const("version", strconv.FormatUint(uint64(generation), 10))
	}
	d.End(o)
}

func verdict(v audit.Verdict) string {
	if v == audit.Deny {
		return "denied"
	}
	return "allowed"
}

func (d *doc) dns(q audit.DNS) {
	outcome := "success"
	if q.Verdict == audit.Deny || q.RCode != "NOERROR" {
		outcome = "failure"
	}
	d.head(class{kind: "event", category: []string{"network"}, types: []string{"protocol", verdict(q.Verdict)},
		action: "dns-" + string(q.Verdict), outcome: outcome, reason: q.Reason, duration: q.LatencyNS})
	d.Join("message", "dns", string(q.Verdict), string(q.Name), q.Type, q.RCode, q.Reason)
	d.seeHost(string(q.Name))
	o := d.Obj("dns")
	d.Const("type", "answer")
	u := d.Obj("question")
	d.Str("name", string(q.Name))
	d.StrIf("type", q.Type)
	d.Const("class", "IN")
	d.End(u)
	d.StrIf("response_code", q.RCode)
	d.answers(q)
	d.End(o)
	d.network(q.Proto, "dns", "", 0, 0)
	d.rule(q.Rule, q.Generation)
	_, at, _ := strings.Cut(q.Upstream, "://")
	if p, err := netip.ParseAddrPort(at); err == nil {
		s := d.Obj("server")
		d.Str("ip", p.Addr().WithZone("").String())
		d.Int("port", int64(p.Port()))
		d.End(s)
	}

	d.custody("dns")
	d.StrIf("verdict", string(q.Verdict))
	d.StrIf("upstream", q.Upstream)
	d.Texts("chain", q.Chain)
	d.Strs("dropped", q.Dropped)
	d.BoolIf("synthetic", q.Synthetic)
	d.BoolIf("cached", q.Cached)
	if len(q.Answers) == 0 {
		d.IntIf("ttl", int64(q.TTL))
	}
}

func (d *doc) answers(q audit.DNS) {
	name := string(q.Name)
	if n := len(q.Chain); n > 0 {
		name = string(q.Chain[n-1])
	}
	a := d.Arr("answers")
	for _, r := range q.Answers {
		if !d.Room(len(r)) {
			break
		}
		e := d.Elem()
		d.Str("name", name)
		d.StrIf("type", q.Type)
		d.Const("class", "IN")
		d.Int("ttl", int64(q.TTL))
		d.Str("data", r)
		d.End(e)
	}
	d.EndArr(a)
	r := d.Arr("resolved_ip")
	for _, ip := range q.Answers {
		if d.seeIP(ip) && d.Room(len(ip)) {
			d.Value(ip)
		}
	}
	d.EndArr(r)
}

func (d *doc) http(h audit.HTTP) {
	outcome := "success"
	if h.Verdict == audit.Deny || h.Status == 0 || h.Status >= 400 {
		outcome = "failure"
	}
	d.head(class{kind: "event", category: []string{"network", "web"}, types: []string{"access", verdict(h.Verdict)},
		action: "http-" + string(h.Verdict), outcome: outcome, reason: h.Reason, duration: h.DurationNS})
	d.Join("message", "http", string(h.Verdict), string(h.Method), string(h.Host), string(h.Path), h.Reason)
	o := d.Obj("http")
	d.StrIf("version", strings.TrimPrefix(h.Proto, "HTTP/"))
	q := d.Obj("request")
	d.StrIf("method", string(h.Method))
	d.body(h.BytesOut)
	d.End(q)
	r := d.Obj("response")
	d.IntIf("status_code", int64(h.Status))
	d.body(h.BytesIn)
	d.End(r)
	d.End(o)
	path, query, _ := strings.Cut(string(h.Path), "?")
	u := d.Obj("url")
	d.StrIf("domain", string(h.Host))
	d.StrIf("path", path)
	d.StrIf("query", query)
	d.Str("original", string(h.Path))
	d.End(u)
	d.end("destination", "", 0, string(h.Host), "", 0, 0)
	d.network("tcp", "http", "", 0, 0)
	d.rule(h.Rule, h.Generation)

	d.custody("http")
	d.StrIf("verdict", string(h.Verdict))
	d.StrIf("flow", h.Flow)
	d.StrIf("credential", h.Credential)
	d.IntIf("redacted", int64(h.Redacted))
	d.StrIf("llm", h.LLM)
}

func (d *doc) body(n int64) {
	o := d.Obj("body")
	d.IntIf("bytes", n)
	d.End(o)
}
