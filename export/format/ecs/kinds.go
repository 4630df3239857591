package ecs

import (
	"net/netip"
	"strconv"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/internal/wire"
)

func llmEvent(d *doc, l audit.LLM) {
	outcome := "success"
	if l.Status >= 400 || l.Error != "" {
		outcome = "failure"
	}
	top := d.head(class{kind: "event", category: []string{"api"}, types: []string{"access", "allowed"}, action: "llm-call",
		outcome: outcome, reason: l.Incomplete, duration: l.DurationNS})
	top.Join("message", "llm", l.Provider, l.API, string(l.Model), string(l.StopReason), string(l.Error))
	if l.Status != 0 {
		o := top.Obj("http")
		r := o.Obj("response")
		r.Int("status_code", int64(l.Status))
		r.End()
		o.End()
	}
	if l.Error != "" {
		o := top.Obj("error")
		o.Str("message", string(l.Error))
		o.End()
	}
	endpoint(top, &d.seen, "destination", "", 0, string(l.Host), "", 0, 0)

	left := d.custody("llm")
	left.StrIf("id", l.ID)
	left.StrIf("flow", l.Flow)
	left.StrIf("provider", l.Provider)
	left.StrIf("api", l.API)
	left.StrIf("model", string(l.Model))
	left.StrIf("stop_reason", string(l.StopReason))
	tokens(left, l)
	left.Texts("tools", l.Tools)
	toolCalls(left, l.ToolCalls)
	left.BoolIf("stream", l.Stream)
	left.IntIf("retry", int64(l.Retry))
	left.StrIf("request_sha256", l.RequestSHA256)
	left.IntIf("first_token_ns", l.FirstTokenNS)
}

func tokens(in wire.Object, l audit.LLM) {
	in.Int("input_tokens", l.InputTokens)
	in.Int("output_tokens", l.OutputTokens)
	in.IntIf("cache_read_tokens", l.CacheReadTokens)
	in.IntIf("cache_write_tokens", l.CacheWriteTokens)
	in.IntIf("reasoning_tokens", l.ReasoningTokens)
	in.IntIf("spent", l.Spent)
	in.IntIf("budget", l.Budget)
}

func toolCalls(in wire.Object, calls []audit.ToolCall) {
	a := in.Arr("tool_calls")
	for _, c := range calls {
		if !a.Room(len(c.Arguments)) {
			break
		}
		e := a.Elem()
		e.StrIf("id", string(c.ID))
		e.StrIf("name", string(c.Name))
		e.StrIf("sha256", c.SHA256)
		e.StrIf("arguments", string(c.Arguments))
		e.BoolIf("truncated", c.Truncated)
		e.End()
	}
	a.End()
}

func lifecycleEvent(d *doc, l audit.Lifecycle) {
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
	top := d.head(c)
	top.Join("message", string(d.e.Kind), l.Name, string(l.Phase), string(l.Status), l.Reason)
	o := top.Obj("process")
	if l.ExitCode != nil {
		o.Int("exit_code", int64(*l.ExitCode))
	}
	o.Texts("args", l.Argv)
	o.Command("command_line", l.Argv)
	o.End()

	left := d.custody("lifecycle")
	left.StrIf("phase", string(l.Phase))
	left.Texts("env", l.Env)
	left.StrIf("name", l.Name)
	left.StrIf("tenant", l.Tenant)
	left.StrIf("project", l.Project)
	left.StrIf("template", l.Template)
	left.StrIf("template_digest", l.TemplateDigest)
	left.StrIf("project_digest", l.ProjectDigest)
	left.UintIf("project_version", l.ProjectVersion)
	left.StrIf("project_author", l.ProjectAuthor)
	left.StrIf("narrowing_digest", l.NarrowingDigest)
	if p := l.Parent; p != nil {
		o := left.Obj("parent")
		o.Str("op", p.Op)
		o.Str("run", p.Run)
		o.Uint("seq", p.Seq)
		o.Str("root", p.Root)
		o.Str("manifest", p.Manifest)
		o.End()
	}
	left.StrIf("policy_digest", l.PolicyDigest)
	left.StrIf("ruleset_digest", l.RulesetDigest)
	left.StrIf("tier", l.Tier)
	left.StrIf("tier_note", l.TierNote)
	left.StrIf("mode", l.Mode)
	left.StrIf("version", l.Version)
	left.StrIf("host", l.Host)
	left.Strs("steps", l.Steps)
	left.Strs("secrets", l.Secrets)
	left.StrIf("status", string(l.Status))
}

func copyEvent(d *doc, c audit.Copy) {
	t := class{kind: "event", category: []string{"file"}, types: []string{"info"}, outcome: "success", action: "copy-" + c.Direction, reason: c.Reason}
	if c.Reason != "" {
		t.outcome = "failure"
	}
	top := d.head(t)
	top.Join("message", "copy", c.Direction, string(c.Op), string(c.Dir), c.Reason)

	left := d.custody("copy")
	left.StrIf("direction", c.Direction)
	left.StrIf("op", string(c.Op))
	left.StrIf("dir", string(c.Dir))
	left.IntIf("first", c.First)
	left.StrIf("salt", c.Salt)
	left.IntIf("count", c.Count)
	left.IntIf("bytes", c.Bytes)
	left.StrIf("root", c.Root)
	a := left.Arr("files")
	for _, f := range c.Files {
		if !a.Room(len(f.Path) + len(f.As) + len(f.Link)) {
			break
		}
		e := a.Elem()
		e.StrIf("path", string(f.Path))
		e.StrIf("as", string(f.As))
		e.StrIf("mode", f.Mode)
		e.Int("size", f.Size)
		e.StrIf("sha256", f.SHA256)
		e.StrIf("link", string(f.Link))
		e.End()
	}
	a.End()
}

func policyEvent(d *doc, p audit.Policy) {
	top := d.head(class{kind: "event", category: []string{"configuration"}, types: []string{"change"}, action: "policy", outcome: "success"})
	o := top.Obj("rule")
	o.Const("ruleset", "egress")
	o.StrIf("uuid", p.Digest)
	o.Const("version", strconv.FormatUint(uint64(p.Generation), 10))
	o.End()

	left := d.custody("policy")
	left.StrIf("previous", p.Previous)
	left.Texts("rules", p.Rules)
}

func probeEvent(d *doc, p audit.Probe) {
	c := class{kind: "event", category: []string{"intrusion_detection"}, types: []string{"allowed"}, action: "probe", outcome: "success"}
	if p.Blocked {
		c.types[0] = "denied"
	}
	if export.SeverityOf(*d.e) <= export.Error {
		c.kind, c.outcome = "alert", "failure"
	}
	top := d.head(c)
	top.Join("message", "probe", p.Name, p.Family, string(p.Detail))
	rule(top, p.Name, 0)

	left := d.custody("probe")
	left.StrIf("name", p.Name)
	left.StrIf("family", p.Family)
	left.Bool("blocked", p.Blocked)
	left.Bool("recorded", p.Recorded)
	left.StrIf("attacked", p.Run)
	left.UintIf("evidence", p.Seq)
}

func outputEvent(d *doc, o audit.Output) {
	top := d.head(class{kind: "event", category: []string{"process"}, types: []string{"info"}, action: "output", outcome: "success"})
	top.Str("message", string(o.Text))

	left := d.custody("output")
	left.StrIf("stream", o.Stream)
	left.Int("offset", o.Offset)
}

func vmEvent(d *doc, v audit.VM) {
	typ := "change"
	switch v.Op {
	case "create", "restore", "boot":
		typ = "start"
	case "destroy":
		typ = "end"
	}
	d.head(class{kind: "event", category: []string{"host"}, types: []string{typ}, action: "vm-" + v.Op, outcome: "success",
		reason: v.Reason, duration: v.DurationNS})
	left := d.custody("vm")
	left.StrIf("driver", v.Driver)
	left.StrIf("tier", v.Tier)
}

func secretEvent(d *doc, s audit.Secret) {
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
	top := d.head(class{kind: "event", category: []string{"iam"}, types: []string{typ}, action: "secret-" + string(s.Op),
		outcome: outcome, reason: s.Reason})
	top.Join("message", "secret", string(s.Op), s.Name, s.Reason)
	endpoint(top, &d.seen, "destination", "", 0, string(s.Host), "", 0, 0)

	left := d.custody("secret")
	left.StrIf("name", s.Name)
	left.StrIf("broker", s.Broker)
	left.StrIf("via", s.Via)
	left.StrIf("tag", s.Tag)
	left.StrIf("accessor_sha256", s.Accessor)
	left.IntIf("ttl_ns", s.TTLNS)
	if !s.Expires.IsZero() {
		left.Time("expires", s.Expires)
	}
	left.IntIf("leases", int64(s.Leases))
	left.StrIf("flow", s.Flow)
}

func gapEvent(d *doc, g audit.Gap) {
	top := d.head(class{kind: "event", types: []string{"error"}, action: "gap", outcome: "failure", reason: g.Cause})
	top.Join("message", "gap", string(g.Stage), g.What, g.Cause)

	left := d.custody("gap")
	left.StrIf("stage", string(g.Stage))
	left.StrIf("what", g.What)
	left.UintIf("first", g.First)
	left.UintIf("last", g.Last)
	left.Uint("count", g.Count)
	left.IntIf("bytes", g.Bytes)
}

func findingEvent(d *doc, f audit.Finding) {
	top := d.head(class{kind: "alert", category: []string{"intrusion_detection"}, types: []string{"info"}, action: "finding",
		outcome: "success", reason: f.Detail})
	top.Join("message", "finding", string(f.Rule)+":", f.Detail)
	o := top.Obj("rule")
	o.StrIf("name", string(f.Rule))
	o.Const("ruleset", "findings")
	o.End()
	if f.Proc != "" {
		actor(top, d.e, f.Proc, 0, "")
	}

	left := d.custody("finding")
	left.StrIf("secret", f.Secret)
	left.UintIf("evidence", f.Seq)
	left.StrIf("action", f.Action)
}

// accessEvent writes an access to records. A login is an authentication, everything else an API call.
func accessEvent(d *doc, a audit.Access) {
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
	top := d.head(c)
	top.Join("message", "access", a.Action, a.Who, string(a.About), a.Reason)
	u := top.Obj("user")
	u.StrIf("name", a.Who)
	u.Strs("roles", words(a.Role))
	u.End()
	ip, port := a.Remote, 0
	if p, err := netip.ParseAddrPort(a.Remote); err == nil {
		ip, port = p.Addr().String(), int(p.Port())
	}
	known := endpoint(top, &d.seen, "source", ip, port, "", "", 0, 0)
	if a.Status != 0 {
		o := top.Obj("http")
		r := o.Obj("response")
		r.Int("status_code", int64(a.Status))
		r.End()
		o.End()
	}

	left := d.custody("access")
	left.StrIf("via", a.Via)
	left.StrIf("tenant", a.Tenant)
	left.StrIf("route", a.Route)
	left.StrIf("about", string(a.About))
	left.StrIf("query", string(a.Query))
	if !known {
		left.StrIf("remote", a.Remote)
	}
	left.StrIf("verdict", string(a.Verdict))
	left.UintIf("count", a.Count)
	left.StrIf("project", a.Project)
	left.UintIf("project_version", a.ProjectVersion)
	left.StrIf("project_digest", a.ProjectDigest)
}

// words returns a list of one word, or an empty list.
func words(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// foreign writes a record of an unknown kind.
func (d *doc) foreign() {
	d.head(class{kind: "event", types: []string{"info"}, action: "record", outcome: "unknown"})
	if len(d.e.Body) > 0 {
		d.w.Root().Str("message", string(d.e.Body))
	}
	d.custody("")
}
