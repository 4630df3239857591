package ocsf

import (
	"strconv"

	"github.com/custody-project/custody/audit"
)

func (d *doc) lifecycle(l audit.Lifecycle) {
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
	d.head(6002, activity, string(l.Phase), status)
	if l.ExitCode != nil {
		d.Int64("status_code", int64(*l.ExitCode))
	}
	d.StrIf("status_detail", l.Reason)
	d.Join("message", string(d.e.Kind), name, string(l.Phase), string(l.Status), l.Reason)
	d.app(name, l.Version)
	d.device(true)
	d.ms("duration", l.DurationNS)

	d.unmapped()
	d.StrIf("phase", string(l.Phase))
	d.StrIf("name", l.Name)
	d.Texts("argv", l.Argv)
	d.Texts("env", l.Env)
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
	d.StrIf("host", l.Host)
	d.Strs("steps", l.Steps)
	d.Strs("secrets", l.Secrets)
	d.StrIf("status", string(l.Status))
}

func (d *doc) vm(v audit.VM) {
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
	d.head(6002, activity, v.Op, success)
	d.StrIf("status_detail", v.Reason)
	d.Join("message", "vm", v.Op, v.Reason)
	d.app(name, "")
	d.device(true)
	d.ms("duration", v.DurationNS)

	d.unmapped()
	d.StrIf("op", v.Op)
	d.StrIf("driver", v.Driver)
	d.StrIf("tier", v.Tier)
}

// secretActivity returns an operation on a credential as the activity of an API.
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

func (d *doc) secret(s audit.Secret) {
	activity, status, c := secretActivity(s.Op)
	d.head(6003, activity, string(s.Op), status)
	d.StrIf("status_detail", s.Reason)
	d.Join("message", "secret", string(s.Op), s.Name, s.Reason)
	d.secured(c, false)
	d.stepActor()
	if d.has(sinceControl) {
		d.device(true)
	}
	d.end("src_endpoint", endpoint{})
	if s.Host != "" {
		d.end("dst_endpoint", endpoint{host: string(s.Host)})
	}
	o := d.Obj("api")
	d.Str("operation", string(s.Op))
	if s.Broker != "" {
		v := d.Obj("service")
		d.Str("name", s.Broker)
		d.End(v)
	}
	d.End(o)
	if s.Name != "" {
		a := d.Arr("resources")
		r := d.Elem()
		d.Str("name", s.Name)
		d.StrIf("uid", s.Accessor)
		d.Const("type", "credential")
		d.End(r)
		d.EndArr(a)
	}

	d.unmapped()
	d.StrIf("via", s.Via)
	d.StrIf("tag", s.Tag)
	if s.Name == "" {
		d.StrIf("accessor_sha256", s.Accessor)
	}
	d.IntIf("ttl_ns", s.TTLNS)
	if !s.Expires.IsZero() {
		d.Time("expires", s.Expires)
	}
	d.IntIf("leases", int64(s.Leases))
	d.StrIf("flow", s.Flow)
}

func (d *doc) llm(l audit.LLM) {
	status := success
	if l.Status >= 400 || l.Error != "" {
		status = failure
	}
	d.head(6003, 1, "", status)
	d.StrIf("status_code", statusCode(l.Status))
	d.StrIf("status_detail", string(l.Error))
	d.Join("message", "llm", l.Provider, l.API, string(l.Model), string(l.StopReason), string(l.Error))
	d.secured(allowed, false)
	d.stepActor()
	if d.has(sinceControl) {
		d.device(true)
	}
	d.end("src_endpoint", endpoint{})
	d.end("dst_endpoint", endpoint{host: string(l.Host)})
	d.call(l)
	d.ms("duration", l.DurationNS)
	if d.has(sinceAI) {
		d.model(l)
	}

	d.unmapped()
	d.llmRest(l)
}

func (d *doc) call(l audit.LLM) {
	o := d.Obj("api")
	d.Str("operation", l.API)
	s := d.Obj("service")
	d.Str("name", l.Provider)
	d.End(s)
	q := d.Obj("request")
	d.Str("uid", l.ID)
	d.End(q)
	r := d.Obj("response")
	d.IntIf("code", int64(l.Status))
	d.StrIf("error", string(l.Error))
	d.StrIf("message", string(l.StopReason))
	d.End(r)
	d.End(o)
}

// model writes the profile ai_operation.
func (d *doc) model(l audit.LLM) {
	d.ai = true
	if l.Model != "" {
		o := d.Obj("ai_model")
		d.Str("ai_provider", l.Provider)
		d.Str("name", string(l.Model))
		d.End(o)
	}
	o := d.Obj("message_context")
	d.StrIf("uid", l.ID)
	s := d.Obj("service")
	d.Str("name", l.Provider)
	d.End(s)
	d.Int("prompt_tokens", l.InputTokens)
	d.Int("completion_tokens", l.OutputTokens)
	d.Int("total_tokens", l.InputTokens+l.OutputTokens)
	d.End(o)
}

func (d *doc) llmRest(l audit.LLM) {
	if !d.has(sinceAI) {
		d.StrIf("model", string(l.Model))
		d.Int("input_tokens", l.InputTokens)
		d.Int("output_tokens", l.OutputTokens)
	}
	d.StrIf("flow", l.Flow)
	d.IntIf("cache_read_tokens", l.CacheReadTokens)
	d.IntIf("cache_write_tokens", l.CacheWriteTokens)
	d.IntIf("reasoning_tokens", l.ReasoningTokens)
	d.Texts("tools", l.Tools)
	a := d.Arr("tool_calls")
	for _, c := range l.ToolCalls {
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
	d.BoolIf("stream", l.Stream)
	d.IntIf("retry", int64(l.Retry))
	d.StrIf("request_sha256", l.RequestSHA256)
	d.StrIf("incomplete", l.Incomplete)
	d.IntIf("first_token_ns", l.FirstTokenNS)
	d.IntIf("spent", l.Spent)
	d.IntIf("budget", l.Budget)
}

func (d *doc) copied(c audit.Copy) {
	status := success
	if c.Reason != "" {
		status = failure
	}
	d.head(6002, other, "copy "+c.Direction, status)
	d.StrIf("status_detail", c.Reason)
	d.Join("message", "copy", c.Direction, string(c.Op), string(c.Dir), c.Reason)
	d.app("sandbox", "")
	d.device(true)

	d.unmapped()
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
	d.head(5019, 1, "", success)
	d.Join("message", "policy generation", strconv.FormatUint(uint64(p.Generation), 10))
	d.device(d.has(sinceControl))
	if d.has(sinceState) {
		d.Int("state_id", 2)
		d.Const("state", "Enabled")
	}
	if d.has(sinceControl) {
		d.control = true
		d.confidence()
		o := d.Obj("policy")
		d.Const("name", "egress")
		d.StrIf("uid", p.Digest)
		d.version(p.Generation)
		d.Bool("is_applied", true)
		if d.has(sincePolicyData) {
			d.policyData(p)
		}
		d.End(o)
	}

	d.unmapped()
	d.IntIf("generation", int64(p.Generation))
	if !d.has(sinceControl) {
		d.StrIf("digest", p.Digest)
	}
	d.StrIf("previous", p.Previous)
	if !d.has(sincePolicyData) {
		d.Texts("rules", p.Rules)
	}
}

func (d *doc) policyData(p audit.Policy) {
	o := d.Obj("data")
	d.Texts("rules", p.Rules)
	d.End(o)
}
