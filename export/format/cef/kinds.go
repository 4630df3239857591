package cef

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export"
)

func execEvent(l *line, e *export.Event, x audit.Exec) {
	begin(l, e, "exec", "Process started", "success")
	l.str("dproc", string(x.Exe))
	l.intIf("dpid", int64(x.PID))
	l.int("duid", int64(x.UID))
	l.intIf("spid", int64(x.PPID))
	if p := e.Parent; p != nil {
		l.str("sproc", string(p.Exe))
	}
	if len(x.Argv) > 0 {
		l.fixed("cs6Label", "commandLine")
		l.words("cs6", x.Argv)
	}
	l.str("custodyProc", x.Proc)
	l.str("custodyParent", x.Parent)
	l.str("custodyCwd", string(x.Cwd))
	l.yes("custodyArgvTruncated", x.Truncated)
	l.intIf("custodyArgvBytes", int64(x.ArgvBytes))
	l.str("custodyArgvSha256", x.ArgvSHA256)
	l.str("custodyLlm", x.LLM)
	l.str("custodyToolCall", string(x.ToolCall))
}

func exitEvent(l *line, e *export.Event, x audit.Exit) {
	outcome := "success"
	if x.Code != 0 {
		outcome = "failure"
	}
	begin(l, e, "exit", "Process ended", outcome)
	l.intIf("dpid", int64(x.PID))
	if started := e.Exec; started != nil {
		l.str("dproc", string(started.Exe))
		l.int("duid", int64(started.UID))
	}
	l.customInt("cn2", "exitCode", int64(x.Code))
	l.duration(x.DurationNS)
	l.str("custodyProc", x.Proc)
	l.intIf("custodySignal", int64(x.Signal))
	l.yes("custodySynthetic", x.Synthetic)
}

func fileEvent(l *line, e *export.Event, f audit.File) {
	name := "File operation"
	switch f.Op {
	case audit.FileCreate:
		name = "File created"
	case audit.FileWrite:
		name = "File written"
	case audit.FileRead:
		name = "File read"
	case audit.FileRename:
		name = "File renamed"
	case audit.FileDelete:
		name = "File deleted"
	case audit.FileChroot:
		name = "Root directory changed"
	case audit.FileStat:
		name = "File described"
	case audit.FileList:
		name = "Directory listed"
	case audit.FilePack:
		name = "Directory packed"
	case audit.FileWatch:
		name = "Directory watched"
	case audit.FileUnpack:
		name = "Archive unpacked"
	}
	outcome := "success"
	if f.Error != "" {
		outcome = "failure"
	}
	begin(l, e, "file:"+string(f.Op), name, outcome)
	l.str("act", string(f.Op))
	path := string(f.Path)
	if f.To != "" {
		l.str("oldFilePath", path)
		path = string(f.To)
	}
	l.str("filePath", path)
	l.str("fname", path[strings.LastIndexByte(path, '/')+1:])
	l.int("fsize", f.Size)
	l.str("fileHash", f.SHA256)
	l.str("fileId", f.Inode)
	l.str("custodyDevice", f.Device)
	l.str("custodySource", string(f.Source))
	process(l, e, f.Proc, f.PID, f.Parent)
	l.str("custodyUnhashed", f.Unhashed)
	l.list("custodySecrets", f.Secrets)
	l.str("custodyCaller", string(f.Caller))
	l.intIf("custodyOffset", f.Offset)
	l.str("custodyError", string(f.Error))
}

func flowName(s audit.FlowState) (name, outcome string) {
	switch s {
	case audit.FlowOpen:
		return "Flow opened", "success"
	case audit.FlowClose:
		return "Flow closed", "success"
	case audit.FlowDeny:
		return "Flow denied", "failure"
	case audit.FlowRevoke:
		return "Flow revoked", "failure"
	case audit.FlowAttempt:
		return "Flow attempted", ""
	}
	return "Flow", ""
}

// flowEvent writes a flow. In CEF, "in" is the traffic from source to destination, and "out" the traffic back.
func flowEvent(l *line, e *export.Event, f audit.Flow) {
	name, outcome := flowName(f.State)
	begin(l, e, "flow:"+string(f.State), name, outcome)
	l.str("act", string(f.State))
	l.fixed("deviceDirection", "1")
	l.str("proto", f.Proto)
	l.end(f.SrcIP, "src", "c6a2", "Source IPv6 Address", "custodySrcIp")
	l.intIf("spt", int64(f.SrcPort))
	l.end(f.DstIP, "dst", "c6a3", "Destination IPv6 Address", "custodyDstIp")
	l.intIf("dpt", int64(f.DstPort))
	l.str("dhost", string(f.Name))
	l.uintIf("in", f.BytesOut)
	l.uintIf("out", f.BytesIn)
	l.uintIf("cnt", f.Count)
	l.rule(f.Rule, f.Reason, f.Generation)
	if f.Errno != 0 {
		l.customInt("cn2", "errno", int64(f.Errno))
	}
	l.duration(f.DurationNS)
	if p, err := netip.ParseAddrPort(f.Peer); err == nil && p.Addr().Is4() {
		l.str("destinationTranslatedAddress", p.Addr().String())
		l.int("destinationTranslatedPort", int64(p.Port()))
	} else {
		l.str("custodyPeer", f.Peer)
	}
	process(l, e, f.Proc, f.PID, f.Parent)
	l.str("custodyFlow", f.ID)
	l.str("custodyVerdict", string(f.Verdict))
	l.uintIf("custodyDnsSeq", f.DNSSeq)
	l.str("custodySni", string(f.SNI))
	l.uintIf("custodyPacketsOut", f.PacketsOut)
	l.uintIf("custodyPacketsIn", f.PacketsIn)
	if e.Observer == audit.Host && f.State != audit.FlowAttempt && (f.Proc != "" || f.PID != 0) {
		l.fixed("custodyProcObserver", "guest") // the host observes processes only in their attempts
	}
}

func verdict(v audit.Verdict) (word, outcome string) {
	if v == audit.Deny {
		return "denied", "failure"
	}
	return "allowed", "success"
}

func inboundEvent(l *line, e *export.Event, c audit.Inbound) {
	outcome := "success"
	if c.Op == audit.InboundRefuse {
		outcome = "failure"
	}
	begin(l, e, "inbound:"+string(c.Op), "Connection to a port of the sandbox", outcome)
	l.str("act", string(c.Op))
	l.str("reason", c.Reason)
	l.str("suser", c.Who)
	l.intIf("dpt", int64(c.Port))
	l.intIf("in", c.BytesIn)
	l.intIf("out", c.BytesOut)
	l.str("custodyInboundId", c.ID)
	l.str("custodyInboundVia", c.Via)
	l.duration(c.DurationNS)
}

func dnsEvent(l *line, e *export.Event, q audit.DNS) {
	word, outcome := verdict(q.Verdict)
	if q.RCode != "NOERROR" {
		outcome = "failure"
	}
	begin(l, e, "dns:"+string(q.Verdict), "DNS question "+word, outcome)
	l.str("act", string(q.Verdict))
	l.fixed("app", "dns")
	l.str("proto", q.Proto)
	l.str("dhost", string(q.Name))
	l.rule(q.Rule, q.Reason, q.Generation)
	l.duration(q.LatencyNS)
	l.str("custodyDnsType", q.Type)
	l.str("custodyDnsRcode", q.RCode)
	l.list("custodyDnsAnswers", q.Answers)
	l.words("custodyDnsChain", q.Chain)
	l.intIf("custodyDnsTtl", int64(q.TTL))
	l.yes("custodyDnsSynthetic", q.Synthetic)
	l.list("custodyDnsDropped", q.Dropped)
	l.str("custodyDnsUpstream", q.Upstream)
	l.yes("custodyDnsCached", q.Cached)
}

func (l *line) list(key string, list []string) {
	texts := make([]audit.Text, len(list))
	for i, s := range list {
		texts[i] = audit.Text(s)
	}
	l.words(key, texts)
}

func httpEvent(l *line, e *export.Event, h audit.HTTP) {
	word, outcome := verdict(h.Verdict)
	if h.Status == 0 || h.Status >= 400 {
		outcome = "failure"
	}
	begin(l, e, "http:"+string(h.Verdict), "HTTP request "+word, outcome)
	l.str("act", string(h.Verdict))
	l.fixed("app", "http")
	l.str("requestMethod", string(h.Method))
	l.str("request", "//"+string(h.Host)+string(h.Path))
	l.str("dhost", string(h.Host))
	l.intIf("in", h.BytesOut)
	l.intIf("out", h.BytesIn)
	l.rule(h.Rule, h.Reason, h.Generation)
	if h.Status != 0 {
		l.customInt("cn2", "status", int64(h.Status))
	}
	l.duration(h.DurationNS)
	l.str("custodyFlow", h.Flow)
	l.str("custodyHttpVersion", h.Proto)
	l.str("custodyCredential", h.Credential)
	l.intIf("custodyRedacted", int64(h.Redacted))
	l.str("custodyLlm", h.LLM)
}

func llmEvent(l *line, e *export.Event, m audit.LLM) {
	outcome := "success"
	if m.Status >= 400 || m.Error != "" {
		outcome = "failure"
	}
	begin(l, e, "llm", "Language model called", outcome)
	l.str("app", m.Provider)
	l.str("dhost", string(m.Host))
	l.str("reason", m.Incomplete)
	if m.Status != 0 {
		l.customInt("cn2", "status", int64(m.Status))
	}
	l.duration(m.DurationNS)
	l.str("custodyLlm", m.ID)
	l.str("custodyFlow", m.Flow)
	l.str("custodyLlmProvider", m.Provider)
	l.str("custodyLlmApi", m.API)
	l.str("custodyLlmModel", string(m.Model))
	l.int("custodyLlmInputTokens", m.InputTokens)
	l.int("custodyLlmOutputTokens", m.OutputTokens)
	l.intIf("custodyLlmCacheReadTokens", m.CacheReadTokens)
	l.intIf("custodyLlmCacheWriteTokens", m.CacheWriteTokens)
	l.intIf("custodyLlmReasoningTokens", m.ReasoningTokens)
	l.words("custodyLlmTools", m.Tools)
	l.words("custodyLlmToolCalls", toolCalls(m.ToolCalls))
	l.str("custodyLlmStopReason", string(m.StopReason))
	l.str("custodyLlmError", string(m.Error))
	l.yes("custodyLlmStream", m.Stream)
	l.intIf("custodyLlmRetry", int64(m.Retry))
	l.str("custodyLlmRequestSha256", m.RequestSHA256)
	l.intIf("custodyLlmFirstTokenNs", m.FirstTokenNS)
	l.intIf("custodyLlmSpent", m.Spent)
	l.intIf("custodyLlmBudget", m.Budget)
}

// toolCalls returns id, name, digest and arguments of each call, and whether these were cut, as words.
func toolCalls(calls []audit.ToolCall) (words []audit.Text) {
	for _, c := range calls {
		cut := audit.Text("whole")
		if c.Truncated {
			cut = "truncated"
		}
		words = append(words, c.ID, c.Name, audit.Text(c.SHA256), c.Arguments, cut)
	}
	return words
}

func lifecycleEvent(l *line, e *export.Event, c audit.Lifecycle) {
	outcome := "success"
	if c.Phase == audit.PhaseEnd && (c.Status != audit.StatusDone || c.ExitCode != nil && *c.ExitCode != 0) {
		outcome = "failure"
	}
	kind := string(e.Kind)
	begin(l, e, kind+":"+string(c.Phase), upper(kind)+" "+string(c.Phase), outcome)
	l.str("act", string(c.Phase))
	l.str("reason", c.Reason)
	if c.ExitCode != nil {
		l.customInt("cn2", "exitCode", int64(*c.ExitCode))
	}
	l.duration(c.DurationNS)
	if len(c.Argv) > 0 {
		l.fixed("cs6Label", "commandLine")
		l.words("cs6", c.Argv)
	}
	l.words("custodyEnv", c.Env)
	l.str("custodyName", c.Name)
	l.str("custodyStatus", string(c.Status))
	l.str("custodyTenant", c.Tenant)
	l.str("custodyRunProject", c.Project)
	l.str("custodyTemplate", c.Template)
	l.str("custodyTemplateDigest", c.TemplateDigest)
	l.str("custodyProjectDigest", c.ProjectDigest)
	l.uintIf("custodyProjectVersion", c.ProjectVersion)
	l.str("custodyProjectAuthor", c.ProjectAuthor)
	l.str("custodyNarrowingDigest", c.NarrowingDigest)
	if p := c.Parent; p != nil {
		l.str("custodyParentOp", p.Op)
		l.str("custodyParentRun", p.Run)
		l.uintIf("custodyParentSeq", p.Seq)
		l.str("custodyParentRoot", p.Root)
		l.str("custodyParentManifest", p.Manifest)
	}
	l.str("custodyPolicyDigest", c.PolicyDigest)
	l.str("custodyRulesetDigest", c.RulesetDigest)
	l.str("custodyRunTier", c.Tier)
	l.str("custodyTierNote", c.TierNote)
	l.str("custodyMode", c.Mode)
	l.str("custodyVersion", c.Version)
	l.str("custodyHost", c.Host)
	l.list("custodySteps", c.Steps)
	l.list("custodySecrets", c.Secrets)
}

func copyEvent(l *line, e *export.Event, c audit.Copy) {
	outcome := "success"
	if c.Reason != "" {
		outcome = "failure"
	}
	begin(l, e, "copy:"+c.Direction, "Files copied "+c.Direction, outcome)
	l.str("act", string(c.Op))
	l.str("reason", c.Reason)
	l.str("filePath", string(c.Dir))
	l.str("custodyCopyDirection", c.Direction)
	l.intIf("custodyCopyFirst", c.First)
	l.str("custodyCopySalt", c.Salt)
	l.intIf("custodyCopyCount", c.Count)
	l.intIf("custodyCopyBytes", c.Bytes)
	l.str("custodyCopyRoot", c.Root)
	var words []audit.Text
	for _, f := range c.Files {
		words = append(words, f.Path, f.As, audit.Text(f.Mode), audit.Text(strconv.FormatInt(f.Size, 10)), audit.Text(f.SHA256), f.Link)
	}
	l.words("custodyCopyFiles", words)
}

func policyEvent(l *line, e *export.Event, p audit.Policy) {
	begin(l, e, "policy", "Policy changed", "success")
	l.customInt("cn1", "generation", int64(p.Generation))
	l.str("custodyPolicyDigest", p.Digest)
	l.str("custodyPolicyPrevious", p.Previous)
	l.words("custodyPolicyRules", p.Rules)
}

func probeEvent(l *line, e *export.Event, p audit.Probe) {
	act, outcome := "escaped", "failure"
	if p.Blocked {
		act, outcome = "blocked", "success"
	}
	if strings.HasPrefix(p.Name, "control/") && !p.Blocked {
		act, outcome = "passed", "success"
	}
	begin(l, e, "probe", "Escape attempted", outcome)
	l.fixed("act", act)
	l.custom("cs1", "rule", p.Name)
	l.str("msg", string(p.Detail))
	l.str("custodyProbeFamily", p.Family)
	l.fixed("custodyProbeBlocked", strconv.FormatBool(p.Blocked))
	l.fixed("custodyProbeRecorded", strconv.FormatBool(p.Recorded))
	l.str("custodyProbeAttacked", p.Run)
	l.uintIf("custodyEvidence", p.Seq)
}

func outputEvent(l *line, e *export.Event, o audit.Output) {
	begin(l, e, "output", "Output written", "success")
	l.str("custodyOutputStream", o.Stream)
	l.int("custodyOutputOffset", o.Offset)
	l.str("custodyOutputText", string(o.Text))
}

func vmEvent(l *line, e *export.Event, v audit.VM) {
	begin(l, e, "vm:"+v.Op, "Virtual machine "+v.Op, "success")
	l.str("act", v.Op)
	l.str("reason", v.Reason)
	l.duration(v.DurationNS)
	l.str("custodyVmDriver", v.Driver)
	l.str("custodyVmTier", v.Tier)
}

func secretEvent(l *line, e *export.Event, s audit.Secret) {
	outcome := "success"
	if s.Op == audit.SecretRefuse {
		outcome = "failure"
	}
	begin(l, e, "secret:"+string(s.Op), "Credential "+string(s.Op), outcome)
	l.str("act", string(s.Op))
	l.str("reason", s.Reason)
	l.str("dhost", string(s.Host))
	l.str("custodySecret", s.Name)
	l.str("custodySecretBroker", s.Broker)
	l.str("custodySecretVia", s.Via)
	l.str("custodySecretTag", s.Tag)
	l.str("custodySecretAccessorSha256", s.Accessor)
	l.intIf("custodySecretTtlNs", s.TTLNS)
	if !s.Expires.IsZero() {
		l.time("custodySecretExpires", s.Expires)
	}
	l.intIf("custodySecretLeases", int64(s.Leases))
	l.str("custodyFlow", s.Flow)
}

func gapEvent(l *line, e *export.Event, g audit.Gap) {
	begin(l, e, "gap:"+string(g.Stage), "Events lost", "failure")
	l.str("reason", g.Cause)
	l.str("custodyGapStage", string(g.Stage))
	l.str("custodyGapWhat", g.What)
	l.uintIf("custodyGapFirst", g.First)
	l.uintIf("custodyGapLast", g.Last)
	l.uint("custodyGapCount", g.Count)
	l.intIf("custodyGapBytes", g.Bytes)
}

func findingEvent(l *line, e *export.Event, f audit.Finding) {
	begin(l, e, "finding:"+string(f.Rule), "Finding", "")
	l.str("act", f.Action)
	l.custom("cs1", "rule", string(f.Rule))
	l.str("msg", f.Detail)
	process(l, e, f.Proc, 0, "")
	l.str("custodySecret", f.Secret)
	l.uintIf("custodyEvidence", f.Seq)
}

func accessEvent(l *line, e *export.Event, a audit.Access) {
	word, outcome := verdict(a.Verdict)
	begin(l, e, "access:"+a.Action, "Access "+word, outcome)
	l.str("act", a.Action)
	l.str("suser", a.Who)
	l.str("spriv", a.Role)
	ip := a.Remote
	if p, err := netip.ParseAddrPort(a.Remote); err == nil {
		ip = p.Addr().String()
		l.intIf("spt", int64(p.Port()))
	}
	if ip != "" {
		l.end(ip, "src", "c6a2", "Source IPv6 Address", "custodyAccessRemote")
	}
	l.str("reason", a.Reason)
	if a.Status != 0 {
		l.customInt("cn2", "status", int64(a.Status))
	}
	l.uintIf("cnt", a.Count)
	l.str("custodyAccessVia", a.Via)
	l.str("custodyAccessTenant", a.Tenant)
	l.str("custodyAccessRoute", a.Route)
	l.str("custodyAccessAbout", string(a.About))
	l.str("custodyAccessQuery", string(a.Query))
	l.str("custodyAccessProject", a.Project)
	l.uintIf("custodyAccessProjectVersion", a.ProjectVersion)
	l.str("custodyAccessProjectDigest", a.ProjectDigest)
	l.str("custodyVerdict", string(a.Verdict))
}
