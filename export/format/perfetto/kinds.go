package perfetto

import (
	"fmt"
	"strings"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export/internal/wire"
)

func (m *model) lifecycle(r audit.Record, at int64) {
	l := r.Lifecycle
	key, lane, name := "run", laneRun, "run "+m.run.ID
	if r.Kind == audit.KindStep {
		key, lane, name = "step "+l.Name, laneSteps, l.Name
	}
	if l.Phase == audit.PhaseStart {
		e := m.of(r, lane, "", at, name)
		e.say("command", wire.CommandLine(l.Argv))
		e.say("env", wire.CommandLine(l.Env))
		e.say("project", l.Project)
		e.say("template", l.Template)
		e.say("tier", l.Tier)
		e.say("mode", l.Mode)
		m.begin(key, e)
		return
	}
	e := m.end(key, at, r.Seq)
	if e == nil { // the record lacks its start
		e = m.of(r, lane, "", at, name)
		e.lasted(l.DurationNS)
	}
	e.say("status", string(l.Status))
	e.say("reason", l.Reason)
	if l.ExitCode != nil {
		e.say("exit code", fmt.Sprint(*l.ExitCode))
	}
}

func (m *model) exec(r audit.Record, at int64) {
	x := r.Exec
	p := m.process(x.Proc, x.Parent, x.PID, "process")
	p.name = fmt.Sprintf("%s [%d]", wire.Base(string(x.Exe)), x.PID)
	e := m.of(r, laneProcs, p.key, at, wire.CommandLine(x.Argv))
	e.say("exe", string(x.Exe))
	e.say("cwd", string(x.Cwd))
	e.count("uid", int64(x.UID))
	m.begin(p.key, e)
	if x.LLM != "" {
		e.say("asked for by", x.LLM)
		m.arrow("llm "+x.LLM, e)
	}
}

func (m *model) exit(r audit.Record, at int64) {
	x := r.Exit
	p := m.process(x.Proc, "", x.PID, "process")
	e := m.end(p.key, at, r.Seq)
	if e == nil {
		e = m.of(r, laneProcs, p.key, at, "program whose start is not in the record")
		e.lasted(x.DurationNS)
	}
	e.say("exit code", fmt.Sprint(x.Code))
	e.count("signal", int64(x.Signal))
	if x.Synthetic {
		e.say("exit", "not seen: the run ended")
	}
}

func (m *model) file(r audit.Record, at int64) {
	f := r.File
	p := m.process(f.Proc, f.Parent, f.PID, "process")
	e := m.of(r, laneProcs, p.key, at, string(f.Op)+" "+string(f.Path))
	e.say("to", string(f.To))
	e.say("sha256", f.SHA256)
	e.count("size", f.Size)
}

// attempt is a guest's claim that it tried to connect.
func (m *model) attempt(r audit.Record, at int64) {
	f := r.Flow
	p := m.process(f.Proc, f.Parent, f.PID, "process")
	e := m.of(r, laneProcs, p.key, at, "connect "+f.Proto+" "+address(f))
	e.count("errno", int64(f.Errno))
}

func address(f *audit.Flow) string {
	name := string(f.Name)
	if name == "" {
		name = f.DstIP
	}
	return fmt.Sprintf("%s:%d", name, f.DstPort)
}

func (m *model) flow(r audit.Record, at int64) {
	f := r.Flow
	key := "flow " + f.ID
	var e *event
	switch {
	case f.State == audit.FlowOpen:
		e = m.of(r, laneFlows, "", at, f.Proto+" "+address(f))
		if f.ID != "" {
			m.begin(key, e)
			m.anchors[key] = e
		}
	case f.State == audit.FlowDeny:
		e = m.of(r, laneFlows, "", at, "denied: "+f.Proto+" "+address(f))
		m.end(key, at, r.Seq) // the flow was allowed and then requested another server
	default: // close, revoke
		if e = m.end(key, at, r.Seq); e == nil {
			e = m.of(r, laneFlows, "", at, f.Proto+" "+address(f))
			e.lasted(f.DurationNS)
			m.anchors[key] = e
		}
		e.say("end", string(f.State))
	}
	e.say("verdict", string(f.Verdict))
	e.say("rule", f.Rule)
	e.say("reason", f.Reason)
	e.say("peer", f.Peer)
	e.count("bytes out", int64(min(f.BytesOut, 1<<62)))
	e.count("bytes in", int64(min(f.BytesIn, 1<<62)))
	e.count("denials", int64(min(f.Count, 1<<62)))
	if f.DNSSeq != 0 && f.State != audit.FlowClose && f.State != audit.FlowRevoke {
		m.arrowFrom(f.DNSSeq, e)
	}
}

func (m *model) dns(r audit.Record, at int64) {
	d := r.DNS
	name := d.Type + " " + string(d.Name)
	if d.Verdict == audit.Deny {
		name = "denied: " + name
	}
	e := m.of(r, laneNames, "", at, name)
	e.lasted(d.LatencyNS)
	e.say("rcode", d.RCode)
	e.say("answers", strings.Join(d.Answers, " "))
	e.say("rule", d.Rule)
	e.say("reason", d.Reason)
}

func (m *model) http(r audit.Record, at int64) {
	h := r.HTTP
	name := string(h.Method) + " " + string(h.Host) + string(h.Path)
	if h.Verdict == audit.Deny {
		name = "denied: " + name
	}
	e := m.of(r, laneRequests, "", at, name)
	e.lasted(h.DurationNS)
	e.count("status", int64(h.Status))
	e.say("rule", h.Rule)
	e.say("reason", h.Reason)
	e.say("credential", h.Credential)
	if h.Flow != "" {
		m.arrow("flow "+h.Flow, e)
	}
	if h.LLM != "" {
		m.anchors["request of "+h.LLM] = e
	}
}

func (m *model) llm(r audit.Record, at int64) {
	c := r.LLM
	e := m.of(r, laneModel, "", at, c.Provider+" "+string(c.Model))
	e.lasted(c.DurationNS)
	e.say("call", c.ID)
	e.count("tokens in", c.InputTokens)
	e.count("tokens out", c.OutputTokens)
	e.count("tool calls", int64(len(c.ToolCalls)))
	e.say("stop reason", string(c.StopReason))
	e.say("error", string(c.Error))
	m.anchors["llm "+c.ID] = e
	m.arrow("request of "+c.ID, e)
}

// secret draws a credential's life. An event about a step's whole lease applies to all of its credentials.
func (m *model) secret(r audit.Record, at int64) {
	s := r.Secret
	name := s.Name
	if name == "" {
		name = "lease"
	}
	track := name
	if r.Step != "" {
		track += " of " + r.Step
	}
	key := "secret " + track
	var e *event
	switch s.Op {
	case audit.SecretMint:
		e = m.of(r, laneSecrets, track, at, name)
		m.begin(key, e)
		m.lives[r.Step] = append(m.lives[r.Step], e)
	case audit.SecretRevoke, audit.SecretExpire:
		e = m.of(r, laneSecrets, track, at, string(s.Op))
		m.end(key, at, r.Seq)
		if s.Name == "" {
			m.over(r, at)
		}
	default: // deliver, use, renew, refuse
		e = m.of(r, laneSecrets, track, at, string(s.Op))
	}
	e.say("broker", s.Broker)
	e.say("via", s.Via)
	e.say("host", string(s.Host))
	e.say("expires", until(s.Expires))
	e.say("reason", s.Reason)
	if s.Op == audit.SecretUse && s.Flow != "" {
		m.arrow("flow "+s.Flow, e)
	}
}

// over ends the lives of all of a step's credentials.
func (m *model) over(r audit.Record, at int64) {
	for _, e := range m.lives[r.Step] {
		m.end("secret "+e.track, at, r.Seq)
	}
	delete(m.lives, r.Step)
}

func (m *model) vm(r audit.Record, at int64) {
	v := r.VM
	if v.Op == "thaw" {
		if e := m.end("freeze", at, r.Seq); e != nil {
			e.say("reason", v.Reason)
			return
		}
	}
	e := m.of(r, laneSandbox, "", at, v.Op)
	e.say("driver", v.Driver)
	e.say("tier", v.Tier)
	e.say("reason", v.Reason)
	switch {
	case v.Op == "freeze":
		m.begin("freeze", e)
	case v.DurationNS > 0:
		e.lasted(v.DurationNS)
	}
}
