package ocsf

import (
	"strconv"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export/internal/wire"
)

func lifecycleEvent(d *doc, l audit.Lifecycle) {
	activity, status := other, success
	switch l.Phase {
	case audit.PhaseStart:
		activity = 3
	case audit.PhaseEnd:
		activity = 4
		if l.Status != audit.StatusDone || l.ExitCode != nil && *l.ExitCode != 0 {
			status = failure
		}
	}
	name := l.Name
	if name == "" && d.e.Start != nil {
		name = d.e.Start.Project
	}
	if name == "" {
		name = l.Project
	}
	top := d.head(6002, activity, string(l.Phase), status)
	if l.ExitCode != nil {
		top.IntText("status_code", int64(*l.ExitCode))
	}
	top.StrIf("status_detail", l.Reason)
	top.Join("message", string(d.e.Kind), name, string(l.Phase), string(l.Status), l.Reason)
	app(top, d.e, d.v, name, l.Version)
	d.device(true)
	ms(top, "duration", l.DurationNS)

	left := d.unmapped()
	left.StrIf("phase", string(l.Phase))
	left.StrIf("name", l.Name)
	left.Texts("argv", l.Argv)
	left.Texts("env", l.Env)
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
	left.StrIf("host", l.Host)
	left.Strs("steps", l.Steps)
	left.Strs("secrets", l.Secrets)
	left.StrIf("status", string(l.Status))
}

func vmEvent(d *doc, v audit.VM) {
	activity := other
	switch v.Op {
	case "create", "restore", "boot":
		activity = 3
	case "destroy":
		activity = 4
	}
	name := "sandbox"
	if v.Driver != "" {
		name = v.Driver
	}
	top := d.head(6002, activity, v.Op, success)
	top.StrIf("status_detail", v.Reason)
	top.Join("message", "vm", v.Op, v.Reason)
	app(top, d.e, d.v, name, "")
	d.device(true)
	ms(top, "duration", v.DurationNS)

	left := d.unmapped()
	left.StrIf("op", v.Op)
	left.StrIf("driver", v.Driver)
	left.StrIf("tier", v.Tier)
}

// secretActivity maps an operation on a credential to an API activity.
func secretActivity(op audit.SecretOp) (activity, status int, c control) {
	switch op {
	case audit.SecretMint:
		return 1, success, allowed
	case audit.SecretDeliver, audit.SecretUse:
		return 2, success, allowed
	case audit.SecretRenew:
		return 3, success, allowed
	case audit.SecretRevoke:
		return 4, success, logged
	case audit.SecretRefuse:
		return other, failure, rejected
	}
	return other, success, logged
}

func secretEvent(d *doc, s audit.Secret) {
	activity, status, c := secretActivity(s.Op)
	top := d.head(6003, activity, string(s.Op), status)
	top.StrIf("status_detail", s.Reason)
	top.Join("message", "secret", string(s.Op), s.Name, s.Reason)
	d.secured(c, false)
	stepActor(top, d.e, d.v)
	if d.v.has(sinceControl) {
		d.device(true)
	}
	d.end("src_endpoint", endpoint{})
	if s.Host != "" {
		d.end("dst_endpoint", endpoint{host: string(s.Host)})
	}
	o := top.Obj("api")
	o.Str("operation", string(s.Op))
	if s.Broker != "" {
		v := o.Obj("service")
		v.Str("name", s.Broker)
		v.End()
	}
	o.End()
	if s.Name != "" {
		a := top.Arr("resources")
		r := a.Elem()
		r.Str("name", s.Name)
		r.StrIf("uid", s.Accessor)
		r.Const("type", "credential")
		r.End()
		a.End()
	}

	left := d.unmapped()
	left.StrIf("via", s.Via)
	left.StrIf("tag", s.Tag)
	if s.Name == "" {
		left.StrIf("accessor_sha256", s.Accessor)
	}
	left.IntIf("ttl_ns", s.TTLNS)
	if !s.Expires.IsZero() {
		left.Time("expires", s.Expires)
	}
	left.IntIf("leases", int64(s.Leases))
	left.StrIf("flow", s.Flow)
}

func llmEvent(d *doc, l audit.LLM) {
	status := success
	if l.Status >= 400 || l.Error != "" {
		status = failure
	}
	top := d.head(6003, 1, "", status)
	top.StrIf("status_code", statusCode(l.Status))
	top.StrIf("status_detail", string(l.Error))
	top.Join("message", "llm", l.Provider, l.API, string(l.Model), string(l.StopReason), string(l.Error))
	d.secured(allowed, false)
	stepActor(top, d.e, d.v)
	if d.v.has(sinceControl) {
		d.device(true)
	}
	d.end("src_endpoint", endpoint{})
	d.end("dst_endpoint", endpoint{host: string(l.Host)})
	call(top, l)
	ms(top, "duration", l.DurationNS)
	if d.v.has(sinceAI) {
		d.ai = true
		model(top, l)
	}

	left := d.unmapped()
	llmRest(left, d.v, l)
}

func call(in wire.Object, l audit.LLM) {
	o := in.Obj("api")
	o.Str("operation", l.API)
	s := o.Obj("service")
	s.Str("name", l.Provider)
	s.End()
	q := o.Obj("request")
	q.Str("uid", l.ID)
	q.End()
	r := o.Obj("response")
	r.IntIf("code", int64(l.Status))
	r.StrIf("error", string(l.Error))
	r.StrIf("message", string(l.StopReason))
	r.End()
	o.End()
}

// model writes the profile ai_operation.
func model(in wire.Object, l audit.LLM) {
	if l.Model != "" {
		o := in.Obj("ai_model")
		o.Str("ai_provider", l.Provider)
		o.Str("name", string(l.Model))
		o.End()
	}
	o := in.Obj("message_context")
	o.StrIf("uid", l.ID)
	s := o.Obj("service")
	s.Str("name", l.Provider)
	s.End()
	o.Int("prompt_tokens", l.InputTokens)
	o.Int("completion_tokens", l.OutputTokens)
	o.Int("total_tokens", l.InputTokens+l.OutputTokens)
	o.End()
}

func llmRest(in wire.Object, v minor, l audit.LLM) {
	if !v.has(sinceAI) {
		in.StrIf("model", string(l.Model))
		in.Int("input_tokens", l.InputTokens)
		in.Int("output_tokens", l.OutputTokens)
	}
	in.StrIf("flow", l.Flow)
	in.IntIf("cache_read_tokens", l.CacheReadTokens)
	in.IntIf("cache_write_tokens", l.CacheWriteTokens)
	in.IntIf("reasoning_tokens", l.ReasoningTokens)
	in.Texts("tools", l.Tools)
	a := in.Arr("tool_calls")
	for _, c := range l.ToolCalls {
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
	in.BoolIf("stream", l.Stream)
	in.IntIf("retry", int64(l.Retry))
	in.StrIf("request_sha256", l.RequestSHA256)
	in.StrIf("incomplete", l.Incomplete)
	in.IntIf("first_token_ns", l.FirstTokenNS)
	in.IntIf("spent", l.Spent)
	in.IntIf("budget", l.Budget)
}

func inboundEvent(d *doc, c audit.Inbound) {
	status := success
	if c.Op == audit.InboundRefuse {
		status = failure
	}
	top := d.head(6002, other, "inbound "+string(c.Op), status)
	top.StrIf("status_detail", c.Reason)
	top.Join("message", "connection to port", strconv.Itoa(c.Port), string(c.Op), c.Who, c.Reason)
	app(top, d.e, d.v, "sandbox", "")
	d.device(true)

	left := d.unmapped()
	left.StrIf("id", c.ID)
	left.StrIf("op", string(c.Op))
	left.Int("port", int64(c.Port))
	left.StrIf("who", c.Who)
	left.StrIf("via", c.Via)
	left.IntIf("bytes_in", c.BytesIn)
	left.IntIf("bytes_out", c.BytesOut)
	left.IntIf("duration_ns", c.DurationNS)
}

func copyEvent(d *doc, c audit.Copy) {
	status := success
	if c.Reason != "" {
		status = failure
	}
	top := d.head(6002, other, "copy "+c.Direction, status)
	top.StrIf("status_detail", c.Reason)
	top.Join("message", "copy", c.Direction, string(c.Op), string(c.Dir), c.Reason)
	app(top, d.e, d.v, "sandbox", "")
	d.device(true)

	left := d.unmapped()
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
	top := d.head(5019, 1, "", success)
	top.Join("message", "policy generation", strconv.FormatUint(uint64(p.Generation), 10))
	d.device(d.v.has(sinceControl))
	if d.v.has(sinceState) {
		top.Int("state_id", 2)
		top.Const("state", "Enabled")
	}
	if d.v.has(sinceControl) {
		d.control = true
		confidence(top, d.e)
		o := top.Obj("policy")
		o.Const("name", "egress")
		o.StrIf("uid", p.Digest)
		o.IntText("version", int64(p.Generation))
		o.Bool("is_applied", true)
		if d.v.has(sincePolicyData) {
			policyData(o, p)
		}
		o.End()
	}

	left := d.unmapped()
	left.IntIf("generation", int64(p.Generation))
	if !d.v.has(sinceControl) {
		left.StrIf("digest", p.Digest)
	}
	left.StrIf("previous", p.Previous)
	if !d.v.has(sincePolicyData) {
		left.Texts("rules", p.Rules)
	}
}

func policyData(in wire.Object, p audit.Policy) {
	o := in.Obj("data")
	o.Texts("rules", p.Rules)
	o.End()
}
