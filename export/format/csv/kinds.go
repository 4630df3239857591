package csv

import (
	"fmt"
	"strings"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export/internal/wire"
)

// record fills in the payload's values. A record without its payload, or of an unknown kind,
// is in detail unchanged.
func (l *line) record(r audit.Record, body []byte) {
	switch {
	case r.Lifecycle != nil:
		l.lifecycle(r.Lifecycle)
	case r.Exec != nil:
		x := r.Exec
		l.subject, l.detail, l.proc, l.pid = string(x.Exe), wire.CommandLine(x.Argv), x.Proc, x.PID
		l.reason = words("cwd", string(x.Cwd), "uid", fmt.Sprint(x.UID), "asked for by llm", x.LLM)
	case r.Exit != nil:
		x := r.Exit
		l.proc, l.pid, l.code, l.duration = x.Proc, x.PID, &x.Code, x.DurationNS
		if x.Signal != 0 {
			l.detail = fmt.Sprintf("signal %d", x.Signal)
		}
		if x.Synthetic {
			l.detail = "no exit was seen"
		}
	case r.File != nil:
		f := r.File
		l.action, l.subject, l.proc, l.pid, l.sha256 = string(f.Op), string(f.Path), f.Proc, f.PID, f.SHA256
		l.detail, l.reason = words("to", string(f.To), "source", string(f.Source), "size", fmt.Sprint(f.Size), "inode", f.Inode, "device", f.Device, "secrets", strings.Join(f.Secrets, ","), "caller", string(f.Caller)), f.Unhashed
		if f.Error != "" {
			l.reason = string(f.Error)
		}
	case r.Flow != nil:
		l.flow(r.Flow)
	case r.DNS != nil:
		d := r.DNS
		l.action, l.verdict, l.subject, l.host, l.rule, l.reason = d.RCode, string(d.Verdict), d.Type+" "+string(d.Name), string(d.Name), d.Rule, d.Reason
		l.detail, l.duration = strings.Join(d.Answers, " "), d.LatencyNS
	case r.HTTP != nil:
		h := r.HTTP
		l.action, l.verdict, l.subject, l.host = string(h.Method), string(h.Verdict), string(h.Host)+string(h.Path), string(h.Host)
		l.detail, l.rule, l.reason, l.secret = words("status", fmt.Sprint(h.Status), "llm", h.LLM), h.Rule, h.Reason, h.Credential
		l.bytesOut, l.bytesIn, l.duration = positive(h.BytesOut), positive(h.BytesIn), h.DurationNS
	case r.LLM != nil:
		l.llm(r.LLM)
	default:
		l.rest(r, body)
	}
}

func (l *line) rest(r audit.Record, body []byte) {
	switch {
	case r.Policy != nil:
		p := r.Policy
		l.subject, l.detail = fmt.Sprintf("generation %d", p.Generation), words("digest", p.Digest, "before", p.Previous)
	case r.Inbound != nil:
		c := r.Inbound
		l.action, l.subject, l.detail, l.reason = string(c.Op), fmt.Sprintf("port %d", c.Port), words("who", c.Who, "via", c.Via, "id", c.ID), c.Reason
		l.bytesIn, l.bytesOut, l.duration = positive(c.BytesIn), positive(c.BytesOut), c.DurationNS
	case r.Probe != nil:
		p := r.Probe
		l.action, l.subject, l.detail = blocked(p.Blocked), p.Name, words("family", p.Family, "run", p.Run, "seq", fmt.Sprint(p.Seq), "saw", string(p.Detail))
	case r.Output != nil:
		l.action, l.subject, l.detail = r.Output.Stream, fmt.Sprintf("offset %d", r.Output.Offset), string(r.Output.Text)
	case r.VM != nil:
		l.action, l.subject, l.reason, l.duration = r.VM.Op, r.VM.Driver, r.VM.Reason, r.VM.DurationNS
	case r.Copy != nil:
		c := r.Copy
		l.action, l.subject, l.reason, l.sha256 = c.Direction+" "+string(c.Op), string(c.Dir), c.Reason, c.Root
		l.detail = copied(c)
	case r.Secret != nil:
		s := r.Secret
		l.action, l.subject, l.secret, l.host, l.reason = string(s.Op), s.Name, s.Name, string(s.Host), s.Reason
		l.detail = words("broker", s.Broker, "via", s.Via, "tag", s.Tag, "expires", clock(s.Expires))
	case r.Gap != nil:
		g := r.Gap
		l.action, l.subject, l.reason = string(g.Stage), g.What, g.Cause
		l.detail = fmt.Sprintf("lost %d events, %d bytes; seqs %d to %d", g.Count, g.Bytes, g.First, g.Last)
	case r.Finding != nil:
		f := r.Finding
		l.action, l.subject, l.detail, l.rule, l.secret, l.proc = f.Action, string(f.Rule), f.Detail, string(f.Rule), f.Secret, f.Proc
		if f.Seq != 0 {
			l.reason = fmt.Sprintf("seq %d shows it", f.Seq)
		}
	case r.Access != nil:
		a := r.Access
		l.action, l.verdict, l.subject, l.reason, l.address = a.Action, string(a.Verdict), a.Who, a.Reason, a.Remote
		l.detail = words("route", a.Route, "about", string(a.About), "query", string(a.Query), "tenant", a.Tenant, "role", a.Role, "via", a.Via)
	case r.Note != nil:
		l.note(r.Note)
	default:
		l.detail = string(body)
	}
}

func (l *line) note(n *audit.Note) {
	l.action, l.subject, l.reason, l.address = "add", n.Who, string(n.Text), n.Remote
	if n.Withdraws != "" {
		l.action = "withdraw"
	}
	seq := ""
	if n.Seq != 0 {
		seq = fmt.Sprint(n.Seq)
	}
	l.detail = words("about", n.About, "seq", seq, "leaf", n.Leaf, "tags", strings.Join(n.Tags, " "), "withdraws", n.Withdraws,
		"tenant", n.Tenant, "role", n.Role, "via", n.Via)
}

func (l *line) lifecycle(c *audit.Lifecycle) {
	l.action, l.subject, l.reason, l.code, l.duration = string(c.Phase), c.Name, c.Reason, c.ExitCode, c.DurationNS
	if c.Phase == audit.PhaseEnd {
		l.detail = words("status", string(c.Status))
		return
	}
	parent := ""
	if p := c.Parent; p != nil {
		parent = fmt.Sprintf("%s of %s at seq %d, manifest %s", p.Op, p.Run, p.Seq, p.Manifest)
	}
	l.detail = words("parent", parent, "command", wire.CommandLine(c.Argv), "env", wire.CommandLine(c.Env), "project", c.Project, "template", c.Template, "tier", c.Tier, "mode", c.Mode, "policy", c.PolicyDigest)
}

func (l *line) flow(f *audit.Flow) {
	l.action, l.verdict, l.rule, l.reason = string(f.State), string(f.Verdict), f.Rule, f.Reason
	l.host, l.address, l.port, l.proc, l.pid = string(f.Name), f.DstIP, f.DstPort, f.Proc, f.PID
	l.bytesOut, l.bytesIn, l.duration = f.BytesOut, f.BytesIn, f.DurationNS
	name := string(f.Name)
	if name == "" {
		name = f.DstIP
	}
	l.subject = fmt.Sprintf("%s %s:%d", f.Proto, name, f.DstPort)
	errno := ""
	if f.Errno != 0 {
		errno = fmt.Sprint(f.Errno)
	}
	l.detail = words("flow", f.ID, "from", f.SrcIP, "peer", f.Peer, "sni", string(f.SNI), "errno", errno)
	if f.Count > 1 {
		l.detail = strings.TrimSpace(l.detail + fmt.Sprintf(" %d like it", f.Count))
	}
}

func (l *line) llm(c *audit.LLM) {
	l.action, l.subject, l.host, l.duration = c.Provider+" "+c.API, string(c.Model), string(c.Host), c.DurationNS
	l.detail = fmt.Sprintf("call %s, status %d, %d tokens in, %d out, %d tool calls", c.ID, c.Status, c.InputTokens, c.OutputTokens, len(c.ToolCalls))
	l.reason = words("", string(c.Error), "", c.Incomplete)
}

func blocked(b bool) string {
	if b {
		return "blocked"
	}
	return "not blocked"
}

func positive(n int64) uint64 { return uint64(max(n, 0)) }

// copied describes the files of a list, or the totals of an end.
func copied(c *audit.Copy) string {
	if c.Op == audit.CopyEnd {
		return words("files", fmt.Sprint(c.Count), "bytes", fmt.Sprint(c.Bytes))
	}
	var pairs []string
	for _, f := range c.Files {
		pairs = append(pairs, "", string(f.Path), "as", string(f.As), "link", string(f.Link), "mode", f.Mode, "size", fmt.Sprint(f.Size), "sha256", f.SHA256)
	}
	return words(pairs...)
}

// words joins names and values; it omits those without a value.
func words(pairs ...string) string {
	var all []string
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			continue
		}
		if pairs[i] != "" {
			all = append(all, pairs[i])
		}
		all = append(all, pairs[i+1])
	}
	return strings.Join(all, " ")
}
