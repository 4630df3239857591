package ecs

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/export"
)

// program writes what an execve says of a process into the object that is open.
func (d *doc) program(x *audit.Exec) {
	if x.Exe != "" {
		d.Str("name", base(string(x.Exe)))
		d.Str("executable", string(x.Exe))
	}
	d.Texts("args", x.Argv)
	if !x.Truncated {
		d.IntIf("args_count", int64(len(x.Argv)))
	}
	d.Command("command_line", x.Argv)
	d.StrIf("working_directory", string(x.Cwd))
	u := d.Obj("user")
	d.Const("id", strconv.Itoa(x.UID))
	d.End(u)
}

// parent writes process.parent.
func (d *doc) parent(proc string, pid int, x *audit.Exec) {
	o := d.Obj("parent")
	d.StrIf("entity_id", proc)
	d.IntIf("pid", int64(pid))
	if x != nil {
		d.program(x)
	}
	d.End(o)
}

// actor writes the process of the guest that did something, as the guest says.
func (d *doc) actor(proc string, pid int, parent string) {
	o := d.Obj("process")
	d.ids(proc, pid)
	if x := d.e.Exec; x != nil {
		d.program(x)
		d.parent(x.Parent, x.PPID, nil)
	} else {
		d.parent(parent, 0, nil)
	}
	d.End(o)
}

func (d *doc) ids(proc string, pid int) {
	d.StrIf("entity_id", proc)
	d.IntIf("pid", int64(pid))
}

func (d *doc) exec(x audit.Exec) {
	d.head(class{kind: "event", category: []string{"process"}, types: []string{"start"}, action: "exec", outcome: "success"})
	o := d.Obj("process")
	d.ids(x.Proc, x.PID)
	d.program(&x)
	d.parent(x.Parent, x.PPID, d.e.Parent)
	d.End(o)
	u := d.Obj("user")
	d.Const("id", strconv.Itoa(x.UID))
	d.End(u)

	d.custody("exec")
	d.BoolIf("truncated", x.Truncated)
	d.IntIf("argv_bytes", int64(x.ArgvBytes))
	d.StrIf("argv_sha256", x.ArgvSHA256)
	d.StrIf("llm", x.LLM)
	d.StrIf("tool_call", string(x.ToolCall))
}

func (d *doc) exit(x audit.Exit) {
	outcome := "success"
	switch {
	case x.Synthetic:
		outcome = "unknown"
	case x.Code != 0:
		outcome = "failure"
	}
	d.head(class{kind: "event", category: []string{"process"}, types: []string{"end"}, action: "exit",
		outcome: outcome, duration: x.DurationNS})
	o := d.Obj("process")
	d.ids(x.Proc, x.PID)
	d.Int("exit_code", int64(x.Code))
	d.Time("end", d.e.Time)
	if e := d.e.Exec; e != nil {
		d.program(e)
		d.parent(e.Parent, e.PPID, nil)
	}
	d.End(o)

	d.custody("exit")
	d.IntIf("signal", int64(x.Signal))
	d.BoolIf("synthetic", x.Synthetic)
}

func (d *doc) file(f audit.File) {
	typ := "info"
	switch f.Op {
	case audit.FileCreate:
		typ = "creation"
	case audit.FileWrite, audit.FileRename:
		typ = "change"
	case audit.FileRead:
		typ = "access"
	case audit.FileDelete:
		typ = "deletion"
	}
	d.head(class{kind: "event", category: []string{"file"}, types: []string{typ}, action: "file-" + string(f.Op), outcome: "success"})
	path := string(f.Path)
	if f.To != "" {
		path = string(f.To)
	}
	o := d.Obj("file")
	d.Str("path", path)
	d.Str("name", base(path))
	d.StrIf("directory", dir(path))
	if b := base(path); strings.LastIndexByte(b, '.') > 0 {
		d.StrIf("extension", b[strings.LastIndexByte(b, '.')+1:])
	}
	d.Int("size", f.Size)
	if f.SHA256 != "" {
		h := d.Obj("hash")
		d.Str("sha256", f.SHA256)
		d.End(h)
		d.seeHash(f.SHA256)
	}
	d.End(o)
	if f.Proc != "" || f.PID != 0 {
		d.actor(f.Proc, f.PID, f.Parent)
	}

	d.custody("file")
	if f.To != "" {
		d.Str("original_path", string(f.Path))
	}
	d.StrIf("unhashed", f.Unhashed)
	d.orphan(f.Proc, f.PID, f.Parent)
}

// orphan writes a parent that process had no place for.
func (d *doc) orphan(proc string, pid int, parent string) {
	if parent != "" && (d.e.Exec != nil || proc == "" && pid == 0) {
		d.Str("parent", parent)
	}
}

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
		d.Const("proc_observer", "guest") // who had the ports the guest alone can say
	}
}

// end writes source or destination, and says whether the address was one.
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

func (d *doc) llm(l audit.LLM) {
	outcome := "success"
	if l.Status >= 400 || l.Error != "" {
		outcome = "failure"
	}
	d.head(class{kind: "event", category: []string{"api"}, types: []string{"access", "allowed"}, action: "llm-call",
		outcome: outcome, reason: l.Incomplete, duration: l.DurationNS})
	d.Join("message", "llm", l.Provider, l.API, string(l.Model), string(l.StopReason), string(l.Error))
	if l.Status != 0 {
		o := d.Obj("http")
		r := d.Obj("response")
		d.Int("status_code", int64(l.Status))
		d.End(r)
		d.End(o)
	}
	if l.Error != "" {
		o := d.Obj("error")
		d.Str("message", string(l.Error))
		d.End(o)
	}
	d.end("destination", "", 0, string(l.Host), "", 0, 0)

	d.custody("llm")
	d.StrIf("id", l.ID)
	d.StrIf("flow", l.Flow)
	d.StrIf("provider", l.Provider)
	d.StrIf("api", l.API)
	d.StrIf("model", string(l.Model))
	d.StrIf("stop_reason", string(l.StopReason))
	d.tokens(l)
	d.Texts("tools", l.Tools)
	d.toolCalls(l.ToolCalls)
	d.BoolIf("stream", l.Stream)
	d.IntIf("retry", int64(l.Retry))
	d.StrIf("request_sha256", l.RequestSHA256)
	d.IntIf("first_token_ns", l.FirstTokenNS)
}

func (d *doc) tokens(l audit.LLM) {
	d.Int("input_tokens", l.InputTokens)
	d.Int("output_tokens", l.OutputTokens)
	d.IntIf("cache_read_tokens", l.CacheReadTokens)
	d.IntIf("cache_write_tokens", l.CacheWriteTokens)
	d.IntIf("reasoning_tokens", l.ReasoningTokens)
	d.IntIf("spent", l.Spent)
	d.IntIf("budget", l.Budget)
}

func (d *doc) toolCalls(calls []audit.ToolCall) {
	a := d.Arr("tool_calls")
	for _, c := range calls {
		if !d.Room(len(c.Arguments)) {
			break
		}
		e := d.Elem()
		d.StrIf("id", string(c.ID))
		d.StrIf("name", string(c.Name))
		d.StrIf("sha256", c.SHA256)
		d.StrIf("arguments", string(c.Arguments))
		d.BoolIf("truncated", c.Truncated)
		d.End(e)
	}
	d.EndArr(a)
}

func (d *doc) lifecycle(l audit.Lifecycle) {
	c := class{kind: "event", category: []string{"session"}, types: []string{"info"}, outcome: "success",
		action: string(d.e.Kind) + "-" + string(l.Phase), reason: l.Reason, duration: l.DurationNS}
	if d.e.Kind == audit.KindRun {
		c.category[0] = "host"
	}
	switch l.Phase {
	case audit.PhaseStart:
		c.types[0] = "start"
	case audit.PhaseEnd:
		c.types[0] = "end"
		if l.Status != audit.StatusDone || l.ExitCode != nil && *l.ExitCode != 0 {
			c.outcome = "failure"
		}
	}
	d.head(c)
	d.Join("message", string(d.e.Kind), l.Name, string(l.Phase), string(l.Status), l.Reason)
	o := d.Obj("process")
	if l.ExitCode != nil {
		d.Int("exit_code", int64(*l.ExitCode))
	}
	d.Texts("args", l.Argv)
	d.Command("command_line", l.Argv)
	d.End(o)

	d.custody("lifecycle")
	d.StrIf("phase", string(l.Phase))
	d.StrIf("name", l.Name)
	d.StrIf("tenant", l.Tenant)
	d.StrIf("project", l.Project)
	d.StrIf("template", l.Template)
	d.StrIf("template_digest", l.TemplateDigest)
	d.StrIf("policy_digest", l.PolicyDigest)
	d.StrIf("ruleset_digest", l.RulesetDigest)
	d.StrIf("tier", l.Tier)
	d.StrIf("tier_note", l.TierNote)
	d.StrIf("mode", l.Mode)
	d.StrIf("version", l.Version)
	d.StrIf("host", l.Host)
	d.Strs("steps", l.Steps)
	d.StrIf("status", string(l.Status))
}

func (d *doc) policy(p audit.Policy) {
	d.head(class{kind: "event", category: []string{"configuration"}, types: []string{"change"}, action: "policy", outcome: "success"})
	o := d.Obj("rule")
	d.Const("ruleset", "egress")
	d.StrIf("uuid", p.Digest)
	d.Const("version", strconv.FormatUint(uint64(p.Generation), 10))
	d.End(o)

	d.custody("policy")
	d.StrIf("previous", p.Previous)
	d.Texts("rules", p.Rules)
}

func (d *doc) probe(p audit.Probe) {
	c := class{kind: "event", category: []string{"intrusion_detection"}, types: []string{"allowed"}, action: "probe", outcome: "success"}
	if p.Blocked {
		c.types[0] = "denied"
	}
	if export.SeverityOf(*d.e) <= export.Error {
		c.kind, c.outcome = "alert", "failure"
	}
	d.head(c)
	d.Join("message", "probe", p.Name, p.Family, string(p.Detail))
	d.rule(p.Name, 0)

	d.custody("probe")
	d.StrIf("name", p.Name)
	d.StrIf("family", p.Family)
	d.Bool("blocked", p.Blocked)
	d.Bool("recorded", p.Recorded)
	d.StrIf("attacked", p.Run)
	d.UintIf("evidence", p.Seq)
}

func (d *doc) output(o audit.Output) {
	d.head(class{kind: "event", category: []string{"process"}, types: []string{"info"}, action: "output", outcome: "success"})
	d.Str("message", string(o.Text))

	d.custody("output")
	d.StrIf("stream", o.Stream)
	d.Int("offset", o.Offset)
}

func (d *doc) vm(v audit.VM) {
	typ := "change"
	switch v.Op {
	case "create", "restore", "boot":
		typ = "start"
	case "destroy":
		typ = "end"
	}
	d.head(class{kind: "event", category: []string{"host"}, types: []string{typ}, action: "vm-" + v.Op, outcome: "success",
		reason: v.Reason, duration: v.DurationNS})
	d.custody("vm")
	d.StrIf("driver", v.Driver)
	d.StrIf("tier", v.Tier)
}

func (d *doc) secret(s audit.Secret) {
	typ, outcome := "info", "success"
	switch s.Op {
	case audit.SecretMint:
		typ = "creation"
	case audit.SecretRenew:
		typ = "change"
	case audit.SecretRevoke, audit.SecretExpire:
		typ = "deletion"
	case audit.SecretRefuse:
		outcome = "failure"
	}
	d.head(class{kind: "event", category: []string{"iam"}, types: []string{typ}, action: "secret-" + string(s.Op),
		outcome: outcome, reason: s.Reason})
	d.Join("message", "secret", string(s.Op), s.Name, s.Reason)
	d.end("destination", "", 0, string(s.Host), "", 0, 0)

	d.custody("secret")
	d.StrIf("name", s.Name)
	d.StrIf("broker", s.Broker)
	d.StrIf("via", s.Via)
	d.StrIf("tag", s.Tag)
	d.StrIf("accessor_sha256", s.Accessor)
	d.IntIf("ttl_ns", s.TTLNS)
	if !s.Expires.IsZero() {
		d.Time("expires", s.Expires)
	}
	d.IntIf("leases", int64(s.Leases))
	d.StrIf("flow", s.Flow)
}

func (d *doc) gap(g audit.Gap) {
	d.head(class{kind: "event", types: []string{"error"}, action: "gap", outcome: "failure", reason: g.Cause})
	d.Join("message", "gap", g.Stage, g.What, g.Cause)

	d.custody("gap")
	d.StrIf("stage", g.Stage)
	d.StrIf("what", g.What)
	d.UintIf("first", g.First)
	d.UintIf("last", g.Last)
	d.Uint("count", g.Count)
	d.IntIf("bytes", g.Bytes)
}

func (d *doc) finding(f audit.Finding) {
	d.head(class{kind: "alert", category: []string{"intrusion_detection"}, types: []string{"info"}, action: "finding",
		outcome: "success", reason: f.Detail})
	d.Join("message", "finding", f.Rule+":", f.Detail)
	o := d.Obj("rule")
	d.StrIf("name", f.Rule)
	d.Const("ruleset", "findings")
	d.End(o)
	if f.Proc != "" {
		d.actor(f.Proc, 0, "")
	}

	d.custody("finding")
	d.StrIf("secret", f.Secret)
	d.UintIf("evidence", f.Seq)
	d.StrIf("action", f.Action)
}

// foreign writes a record of a kind that this code does not know.
func (d *doc) foreign() {
	d.head(class{kind: "event", types: []string{"info"}, action: "record", outcome: "unknown"})
	if len(d.e.Body) > 0 {
		d.Str("message", string(d.e.Body))
	}
	d.custody("")
}
