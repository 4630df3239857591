package ocsf

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/custody-project/custody/audit"
)

// flowActivity returns the number of what happened to a flow. A guest's attempt has its own number: 115 is a connect
// that goes on in the background, whose outcome is still unknown.
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

func (d *doc) flow(f audit.Flow) {
	activity, status, c := flowActivity(f)
	d.head(4001, activity, string(f.State), status)
	if f.Errno != 0 {
		d.Int64("status_code", int64(f.Errno))
	}
	d.StrIf("status_detail", f.Reason)
	d.Join("message", "flow", string(f.State), f.Proto, string(f.Name), f.DstIP, f.Reason)
	d.secured(c, true)
	d.rule(f.Rule, f.Generation)
	if f.Proc != "" || f.PID != 0 {
		d.procActor(f.Proc, f.PID, f.Parent)
	}
	d.device(true)
	srcIP, srcPort := d.end("src_endpoint", endpoint{f.SrcIP, f.SrcPort, ""})
	dstIP, dstPort := d.end("dst_endpoint", endpoint{f.DstIP, f.DstPort, string(f.Name)})
	d.connection(f.ID, f.Proto, f.DstIP)
	d.traffic(f.BytesOut, f.BytesIn, f.PacketsOut, f.PacketsIn)
	d.ms("duration", f.DurationNS)
	d.UintIf("count", f.Count)
	d.see("unmapped.flow", "peer", seenIP, hostOf(f.Peer))
	d.see("unmapped.flow", "sni", seenHostname, string(f.SNI))

	d.unmapped()
	d.StrIf("peer", f.Peer)
	d.StrIf("sni", string(f.SNI))
	d.UintIf("dns_seq", f.DNSSeq)
	d.verdict(f.Verdict, f.Rule, f.Generation)
	d.misfit("src", f.SrcIP, f.SrcPort, srcIP, srcPort)
	d.misfit("dst", f.DstIP, f.DstPort, dstIP, dstPort)
	if f.Parent != "" && (d.e.Exec != nil || f.Proc == "" && f.PID == 0) {
		d.Str("parent", f.Parent)
	}
	if d.e.Observer == audit.Host && (f.Proc != "" || f.PID != 0) {
		d.Str("proc_observer", string(audit.Guest)) // only the guest can report which process had the ports
	}
}

// misfit writes an address or a port that has not the form for its attribute.
func (d *doc) misfit(end, ip string, port int, ipOK, portOK bool) {
	if !ipOK {
		d.StrIf(end+"_ip", ip)
	}
	if !portOK {
		d.Int(end+"_port", int64(port))
	}
}

// verdict writes what the policy said, as far as secured and rule had no place for it.
func (d *doc) verdict(v audit.Verdict, rule string, generation uint32) {
	d.StrIf("verdict", string(v))
	if !d.control {
		d.StrIf("rule", rule)
	}
	d.IntIf("generation", int64(generation))
}

// hostOf returns the address of an address and port.
func hostOf(hostport string) string {
	i := strings.LastIndexByte(hostport, ':')
	if i < 0 {
		return hostport
	}
	return strings.Trim(hostport[:i], "[]")
}

// rcode returns the number and the caption of a DNS response code by the names that records use (RFC 6895). fixed is
// set if the caption of 16 is no longer the wrong one.
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

func (d *doc) dns(q audit.DNS) {
	status := success
	if q.Verdict == audit.Deny || q.RCode != "NOERROR" {
		status = failure
	}
	id, caption := rcode(q.RCode, d.has(sinceBadVers))
	d.head(4003, 6, "", status)
	d.StrIf("status_detail", q.Reason)
	d.Join("message", "dns", string(q.Verdict), string(q.Name), q.Type, q.RCode, q.Reason)
	d.secured(decided(q.Verdict), true)
	d.rule(q.Rule, q.Generation)
	d.device(true)
	d.end("src_endpoint", endpoint{})
	if q.Upstream != "" {
		d.end("dst_endpoint", upstream(q.Upstream))
	}
	d.connection("", q.Proto, "")
	asked := d.hostname(string(q.Name))
	if asked {
		o := d.Obj("query")
		d.Str("hostname", string(q.Name))
		d.StrIf("type", q.Type)
		d.Const("class", "IN")
		d.End(o)
	}
	d.see("query", "hostname", seenHostname, string(q.Name))
	d.answers(q)
	d.Int("rcode_id", int64(id))
	d.Str("rcode", caption)
	d.Int("query_time", d.e.Time.UnixMilli()-q.LatencyNS/1e6)
	d.Int("response_time", d.e.Time.UnixMilli())
	d.ms("duration", q.LatencyNS)
	for _, n := range q.Chain {
		d.see("unmapped.dns", "chain", seenHostname, string(n))
	}

	d.unmapped()
	if !asked {
		d.Str("name", string(q.Name))
		d.StrIf("type", q.Type)
	}
	d.StrIf("upstream", q.Upstream)
	d.Texts("chain", q.Chain)
	d.Strs("dropped", q.Dropped)
	d.BoolIf("synthetic", q.Synthetic)
	d.BoolIf("cached", q.Cached)
	if len(q.Answers) == 0 {
		d.IntIf("ttl", int64(q.TTL))
	}
	d.verdict(q.Verdict, q.Rule, q.Generation)
}

// upstream reads the address of a server as in udp://1.2.3.4:53.
func upstream(s string) endpoint {
	_, at, _ := strings.Cut(s, "://")
	if a, err := netip.ParseAddrPort(at); err == nil {
		return endpoint{ip: a.Addr().String(), port: int(a.Port())}
	}
	return endpoint{host: s}
}

func (d *doc) answers(q audit.DNS) {
	a := d.Arr("answers")
	for _, r := range q.Answers {
		if !d.Room(len(r)) {
			break
		}
		e := d.Elem()
		d.Str("rdata", r)
		d.StrIf("type", q.Type)
		d.Const("class", "IN")
		d.Int("ttl", int64(q.TTL))
		d.End(e)
		if !q.Synthetic {
			d.see("answers", "rdata", seenIP, r)
		}
	}
	d.EndArr(a)
}

// method returns the activity of an HTTP method, and whether http_request.http_method can hold it.
func (d *doc) method(m string) (activity int, fits bool) {
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
		if d.has(sincePatch) {
			return 9, true
		}
		return other, d.has(sincePatchMethod)
	}
	return other, false
}

func (d *doc) http(h audit.HTTP) {
	activity, fits := d.method(string(h.Method))
	status := success
	if h.Verdict == audit.Deny || h.Status == 0 || h.Status >= 400 {
		status = failure
	}
	d.head(4002, activity, string(h.Method), status)
	d.StrIf("status_detail", h.Reason)
	d.Join("message", "http", string(h.Verdict), string(h.Method), string(h.Host), string(h.Path), h.Reason)
	d.secured(decided(h.Verdict), true)
	d.rule(h.Rule, h.Generation)
	d.device(true)
	d.end("src_endpoint", endpoint{})
	d.end("dst_endpoint", endpoint{host: string(h.Host)})
	d.connection(h.Flow, "tcp", "")
	d.request(h, fits)
	if h.Status != 0 || !d.has(sinceLooser) {
		d.response(h)
	}
	d.traffic(uint64(max(h.BytesOut, 0)), uint64(max(h.BytesIn, 0)), 0, 0)
	d.ms("duration", h.DurationNS)

	d.unmapped()
	if !fits {
		d.StrIf("method", string(h.Method))
	}
	if h.BytesOut < 0 {
		d.Int("bytes_out", h.BytesOut)
	}
	if h.BytesIn < 0 {
		d.Int("bytes_in", h.BytesIn)
	}
	d.StrIf("credential", h.Credential)
	d.IntIf("redacted", int64(h.Redacted))
	d.StrIf("llm", h.LLM)
	d.verdict(h.Verdict, h.Rule, h.Generation)
}

// request writes http_request. Whether it was TLS the record does not say, so the URL has no scheme.
func (d *doc) request(h audit.HTTP, fits bool) {
	o := d.Obj("http_request")
	if fits {
		d.Str("http_method", string(h.Method))
	}
	d.StrIf("version", h.Proto)
	if d.has(sinceBodyLength) && h.BytesOut > 0 {
		d.Int("body_length", h.BytesOut)
	}
	path, query, _ := strings.Cut(string(h.Path), "?")
	u := d.Obj("url")
	if h.Host != "" && d.hostname(string(h.Host)) {
		d.Str("hostname", string(h.Host))
	}
	d.Str("path", path)
	d.StrIf("query_string", query)
	whole := "//" + string(h.Host) + string(h.Path)
	d.Str("url_string", whole)
	d.End(u)
	d.End(o)
	d.see("http_request.url", "url_string", seenURL, whole)
}

func (d *doc) response(h audit.HTTP) {
	o := d.Obj("http_response")
	d.Int("code", int64(h.Status))
	if d.has(sinceBodyLength) && h.BytesIn > 0 {
		d.Int("body_length", h.BytesIn)
	}
	d.ms("latency", h.DurationNS)
	d.End(o)
}

func statusCode(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}
