package ocsf

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export/internal/wire"
)

// flowActivity returns the number of a flow's activity. A guest's attempt is special: 115 is a connect
// that continues in the background, with an unknown outcome.
func flowActivity(f audit.Flow) (activity int, status int, c control) {
	switch f.State {
	case audit.FlowOpen:
		return 1, success, allowed
	case audit.FlowClose:
		return 2, success, allowed
	case audit.FlowDeny:
		return 5, failure, blocked
	case audit.FlowRevoke:
		return 3, failure, revoked
	case audit.FlowAttempt:
		switch f.Errno {
		case 0:
			return 1, success, logged
		case 115:
			return other, unknown, logged
		}
		return 4, failure, logged
	}
	return other, unknown, logged
}

func flowEvent(d *doc, f audit.Flow) {
	activity, status, c := flowActivity(f)
	top := d.head(4001, activity, string(f.State), status)
	if f.Errno != 0 {
		top.IntText("status_code", int64(f.Errno))
	}
	top.StrIf("status_detail", f.Reason)
	top.Join("message", "flow", string(f.State), f.Proto, string(f.Name), f.DstIP, f.Reason)
	d.secured(c, true)
	d.rule(f.Rule, f.Generation)
	if f.Proc != "" || f.PID != 0 {
		procActor(top, d.e, d.v, f.Proc, f.PID, f.Parent)
	}
	d.device(true)
	srcIP, srcPort := d.end("src_endpoint", endpoint{f.SrcIP, f.SrcPort, ""})
	dstIP, dstPort := d.end("dst_endpoint", endpoint{f.DstIP, f.DstPort, string(f.Name)})
	connection(top, f.ID, f.Proto, f.DstIP)
	traffic(top, f.BytesOut, f.BytesIn, f.PacketsOut, f.PacketsIn)
	ms(top, "duration", f.DurationNS)
	top.UintIf("count", f.Count)
	d.seen.add("unmapped.flow", "peer", seenIP, hostOf(f.Peer))
	d.seen.add("unmapped.flow", "sni", seenHostname, string(f.SNI))

	left := d.unmapped()
	left.StrIf("peer", f.Peer)
	left.StrIf("sni", string(f.SNI))
	left.UintIf("dns_seq", f.DNSSeq)
	d.verdict(left, f.Verdict, f.Rule, f.Generation)
	misfit(left, "src", f.SrcIP, f.SrcPort, srcIP, srcPort)
	misfit(left, "dst", f.DstIP, f.DstPort, dstIP, dstPort)
	if f.Parent != "" && (d.e.Exec != nil || f.Proc == "" && f.PID == 0) {
		left.Str("parent", f.Parent)
	}
	if d.e.Observer == audit.Host && f.State != audit.FlowAttempt && (f.Proc != "" || f.PID != 0) {
		left.Str("proc_observer", string(audit.Guest)) // the host observes processes only in their attempts
	}
}

// misfit writes an address or a port that is invalid for its attribute.
func misfit(in wire.Object, end, ip string, port int, ipOK, portOK bool) {
	if !ipOK {
		in.StrIf(end+"_ip", ip)
	}
	if !portOK {
		in.Int(end+"_port", int64(port))
	}
}

// verdict writes the parts of the policy's verdict that secured and rule did not.
func (d *doc) verdict(in wire.Object, v audit.Verdict, rule string, generation uint32) {
	in.StrIf("verdict", string(v))
	if !d.control {
		in.StrIf("rule", rule)
	}
	in.IntIf("generation", int64(generation))
}

// hostOf returns the address in an address and port.
func hostOf(hostport string) string {
	i := strings.LastIndexByte(hostport, ':')
	if i < 0 {
		return hostport
	}
	return strings.Trim(hostport[:i], "[]")
}

// rcode returns the number and the caption of a DNS response code by its name in records (RFC 6895). fixed is
// set if the schema's caption of 16 is correct.
func rcode(name string, fixed bool) (id int, caption string) {
	switch name {
	case "NOERROR":
		return 0, "NoError"
	case "FORMERR":
		return 1, "FormError"
	case "SERVFAIL":
		return 2, "ServError"
	case "NXDOMAIN":
		return 3, "NXDomain"
	case "NOTIMP":
		return 4, "NotImp"
	case "REFUSED":
		return 5, "Refused"
	case "YXDOMAIN":
		return 6, "YXDomain"
	case "YXRRSET":
		return 7, "YXRRSet"
	case "NXRRSET":
		return 8, "NXRRSet"
	case "NOTAUTH":
		return 9, "NotAuth"
	case "NOTZONE":
		return 10, "NotZone"
	case "BADVERS", "BADSIG":
		if fixed {
			return 16, "BADVERS"
		}
		return 16, "BADSIG_VERS"
	}
	return other, name
}

func decided(v audit.Verdict) control {
	if v == audit.Deny {
		return blocked
	}
	return allowed
}

func dnsEvent(d *doc, q audit.DNS) {
	status := success
	if q.Verdict == audit.Deny || q.RCode != "NOERROR" {
		status = failure
	}
	id, caption := rcode(q.RCode, d.v.has(sinceBadVers))
	top := d.head(4003, 6, "", status)
	top.StrIf("status_detail", q.Reason)
	top.Join("message", "dns", string(q.Verdict), string(q.Name), q.Type, q.RCode, q.Reason)
	d.secured(decided(q.Verdict), true)
	d.rule(q.Rule, q.Generation)
	d.device(true)
	d.end("src_endpoint", endpoint{})
	if q.Upstream != "" {
		d.end("dst_endpoint", upstream(q.Upstream))
	}
	connection(top, "", q.Proto, "")
	asked := d.v.hostname(string(q.Name))
	if asked {
		o := top.Obj("query")
		o.Str("hostname", string(q.Name))
		o.StrIf("type", q.Type)
		o.Const("class", "IN")
		o.End()
	}
	d.seen.add("query", "hostname", seenHostname, string(q.Name))
	answers(top, &d.seen, q)
	top.Int("rcode_id", int64(id))
	top.Str("rcode", caption)
	top.Int("query_time", d.e.Time.UnixMilli()-q.LatencyNS/1e6)
	top.Int("response_time", d.e.Time.UnixMilli())
	ms(top, "duration", q.LatencyNS)
	for _, n := range q.Chain {
		d.seen.add("unmapped.dns", "chain", seenHostname, string(n))
	}

	left := d.unmapped()
	if !asked {
		left.Str("name", string(q.Name))
		left.StrIf("type", q.Type)
	}
	left.StrIf("upstream", q.Upstream)
	left.Texts("chain", q.Chain)
	left.Strs("dropped", q.Dropped)
	left.BoolIf("synthetic", q.Synthetic)
	left.BoolIf("cached", q.Cached)
	if len(q.Answers) == 0 {
		left.IntIf("ttl", int64(q.TTL))
	}
	d.verdict(left, q.Verdict, q.Rule, q.Generation)
}

// upstream parses the address of a server such as udp://1.2.3.4:53.
func upstream(s string) endpoint {
	_, at, _ := strings.Cut(s, "://")
	if a, err := netip.ParseAddrPort(at); err == nil {
		return endpoint{ip: a.Addr().String(), port: int(a.Port())}
	}
	return endpoint{host: s}
}

func answers(in wire.Object, seen *observables, q audit.DNS) {
	a := in.Arr("answers")
	for _, r := range q.Answers {
		if !a.Room(len(r)) {
			break
		}
		e := a.Elem()
		e.Str("rdata", r)
		e.StrIf("type", q.Type)
		e.Const("class", "IN")
		e.Int("ttl", int64(q.TTL))
		e.End()
		if !q.Synthetic {
			seen.add("answers", "rdata", seenIP, r)
		}
	}
	a.End()
}

// method returns the activity of an HTTP method, and whether http_request.http_method supports it.
func (v minor) method(m string) (activity int, fits bool) {
	switch m {
	case "CONNECT":
		return 1, true
	case "DELETE":
		return 2, true
	case "GET":
		return 3, true
	case "HEAD":
		return 4, true
	case "OPTIONS":
		return 5, true
	case "POST":
		return 6, true
	case "PUT":
		return 7, true
	case "TRACE":
		return 8, true
	case "PATCH":
		if v.has(sincePatch) {
			return 9, true
		}
		return other, v.has(sincePatchMethod)
	}
	return other, false
}

func httpEvent(d *doc, h audit.HTTP) {
	activity, fits := d.v.method(string(h.Method))
	status := success
	if h.Verdict == audit.Deny || h.Status == 0 || h.Status >= 400 {
		status = failure
	}
	top := d.head(4002, activity, string(h.Method), status)
	top.StrIf("status_detail", h.Reason)
	top.Join("message", "http", string(h.Verdict), string(h.Method), string(h.Host), string(h.Path), h.Reason)
	d.secured(decided(h.Verdict), true)
	d.rule(h.Rule, h.Generation)
	d.device(true)
	d.end("src_endpoint", endpoint{})
	d.end("dst_endpoint", endpoint{host: string(h.Host)})
	connection(top, h.Flow, "tcp", "")
	request(top, d.v, &d.seen, h, fits)
	if h.Status != 0 || !d.v.has(sinceLooser) {
		response(top, d.v, h)
	}
	traffic(top, uint64(max(h.BytesOut, 0)), uint64(max(h.BytesIn, 0)), 0, 0)
	ms(top, "duration", h.DurationNS)

	left := d.unmapped()
	if !fits {
		left.StrIf("method", string(h.Method))
	}
	if h.BytesOut < 0 {
		left.Int("bytes_out", h.BytesOut)
	}
	if h.BytesIn < 0 {
		left.Int("bytes_in", h.BytesIn)
	}
	left.StrIf("credential", h.Credential)
	left.IntIf("redacted", int64(h.Redacted))
	left.StrIf("llm", h.LLM)
	d.verdict(left, h.Verdict, h.Rule, h.Generation)
}

// request writes http_request. The record does not state whether TLS was used, so the URL has no scheme.
func request(in wire.Object, v minor, seen *observables, h audit.HTTP, fits bool) {
	o := in.Obj("http_request")
	if fits {
		o.Str("http_method", string(h.Method))
	}
	o.StrIf("version", h.Proto)
	if v.has(sinceBodyLength) && h.BytesOut > 0 {
		o.Int("body_length", h.BytesOut)
	}
	path, query, _ := strings.Cut(string(h.Path), "?")
	u := o.Obj("url")
	if h.Host != "" && v.hostname(string(h.Host)) {
		u.Str("hostname", string(h.Host))
	}
	u.Str("path", path)
	u.StrIf("query_string", query)
	whole := "//" + string(h.Host) + string(h.Path)
	u.Str("url_string", whole)
	u.End()
	o.End()
	seen.add("http_request.url", "url_string", seenURL, whole)
}

func response(in wire.Object, v minor, h audit.HTTP) {
	o := in.Obj("http_response")
	o.Int("code", int64(h.Status))
	if v.has(sinceBodyLength) && h.BytesIn > 0 {
		o.Int("body_length", h.BytesIn)
	}
	ms(o, "latency", h.DurationNS)
	o.End()
}

func statusCode(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}
