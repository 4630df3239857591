package ecs

import (
	"net/netip"
	"strconv"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export"
)

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
	d.Texts("env", l.Env)
	d.StrIf("name", l.Name)
	d.StrIf("tenant", l.Tenant)
	d.StrIf("project", l.Project)
	d.StrIf("template", l.Template)
	d.StrIf("template_digest", l.TemplateDigest)
	d.StrIf("project_digest", l.ProjectDigest)
	d.StrIf("policy_digest", l.PolicyDigest)
	d.StrIf("ruleset_digest", l.RulesetDigest)
	d.StrIf("tier", l.Tier)
	d.StrIf("tier_note", l.TierNote)
	d.StrIf("mode", l.Mode)
	d.StrIf("version", l.Version)
	d.StrIf("host", l.Host)
	d.Strs("steps", l.Steps)
	d.Strs("secrets", l.Secrets)
	d.StrIf("status", string(l.Status))
}

func (d *doc) copied(c audit.Copy) {
	t := class{kind: "event", category: []string{"file"}, types: []string{"info"}, outcome: "success", action: "copy-" + c.Direction, reason: c.Reason}
	if c.Reason != "" {
		t.outcome = "failure"
	}
	d.head(t)
	d.Join("message", "copy", c.Direction, string(c.Op), string(c.Dir), c.Reason)

	d.custody("copy")
	d.StrIf("direction", c.Direction)
	d.StrIf("op", string(c.Op))
	d.StrIf("dir", string(c.Dir))
	d.IntIf("first", c.First)
	d.StrIf("salt", c.Salt)
	d.IntIf("count", c.Count)
	d.IntIf("bytes", c.Bytes)
	d.StrIf("root", c.Root)
	a := d.Arr("files")
	for _, f := range c.Files {
		if !d.Room(len(f.Path) + len(f.As) + len(f.Link)) {
			break
		}
		e := d.Elem()
		d.StrIf("path", string(f.Path))
		d.StrIf("as", string(f.As))
		d.StrIf("mode", f.Mode)
		d.Int("size", f.Size)
		d.StrIf("sha256", f.SHA256)
		d.StrIf("link", string(f.Link))
		d.End(e)
	}
	d.EndArr(a)
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
	d.Join("message", "gap", string(g.Stage), g.What, g.Cause)

	d.custody("gap")
	d.StrIf("stage", string(g.Stage))
	d.StrIf("what", g.What)
	d.UintIf("first", g.First)
	d.UintIf("last", g.Last)
	d.Uint("count", g.Count)
	d.IntIf("bytes", g.Bytes)
}

func (d *doc) finding(f audit.Finding) {
	d.head(class{kind: "alert", category: []string{"intrusion_detection"}, types: []string{"info"}, action: "finding",
		outcome: "success", reason: f.Detail})
	d.Join("message", "finding", string(f.Rule)+":", f.Detail)
	o := d.Obj("rule")
	d.StrIf("name", string(f.Rule))
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

// access writes an access to records. A login is an authentication, all else an API call.
func (d *doc) access(a audit.Access) {
	c := class{kind: "event", category: []string{"api"}, types: []string{"access", verdict(a.Verdict)},
		action: "access-" + a.Action, outcome: "success", reason: a.Reason}
	switch a.Action {
	case "login":
		c.category[0], c.types = "authentication", []string{"start"}
	case "logout":
		c.category[0], c.types = "authentication", []string{"end"}
	case "manage":
		c.types[0] = "admin"
	}
	if a.Verdict == audit.Deny {
		c.outcome = "failure"
	}
	d.head(c)
	d.Join("message", "access", a.Action, a.Who, string(a.About), a.Reason)
	u := d.Obj("user")
	d.StrIf("name", a.Who)
	d.Strs("roles", words(a.Role))
	d.End(u)
	ip, port := a.Remote, 0
	if p, err := netip.ParseAddrPort(a.Remote); err == nil {
		ip, port = p.Addr().String(), int(p.Port())
	}
	known := d.end("source", ip, port, "", "", 0, 0)
	if a.Status != 0 {
		o := d.Obj("http")
		r := d.Obj("response")
		d.Int("status_code", int64(a.Status))
		d.End(r)
		d.End(o)
	}

	d.custody("access")
	d.StrIf("via", a.Via)
	d.StrIf("tenant", a.Tenant)
	d.StrIf("route", a.Route)
	d.StrIf("about", string(a.About))
	d.StrIf("query", string(a.Query))
	if !known {
		d.StrIf("remote", a.Remote)
	}
	d.StrIf("verdict", string(a.Verdict))
	d.UintIf("count", a.Count)
}

// words is a list of one, or of none.
func words(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// foreign writes a record of a kind that this code does not know.
func (d *doc) foreign() {
	d.head(class{kind: "event", types: []string{"info"}, action: "record", outcome: "unknown"})
	if len(d.e.Body) > 0 {
		d.Str("message", string(d.e.Body))
	}
	d.custody("")
}
