package export

import (
	"strings"

	"github.com/custody-project/custody/audit"
)

// SeverityOf returns the severity of an event. docs/mapping.md has the table.
func SeverityOf(e Event) Severity {
	if e.Wrong() {
		return Alert
	}
	if e.Erased {
		return Notice
	}
	switch e.Kind {
	case audit.KindFinding:
		return ofFinding(e.Finding)
	case audit.KindProbe:
		return ofProbe(e.Probe)
	case audit.KindGap:
		return ofGap(e.Gap)
	case audit.KindFlow, audit.KindDNS, audit.KindHTTP:
		return ofVerdict(e)
	case audit.KindRun, audit.KindStep:
		return ofEnd(e.Lifecycle)
	case audit.KindVM:
		return ofVM(e.VM)
	case audit.KindSecret:
		return ofSecret(e.Secret)
	case audit.KindLLM:
		if l := e.LLM; l != nil && (l.Status >= 400 || l.Error != "" || l.Incomplete != "") {
			return Notice
		}
	case audit.KindAccess:
		return ofAccess(e.Access)
	case audit.KindInbound:
		if e.Inbound != nil && e.Inbound.Op == audit.InboundRefuse {
			return Notice
		}
	case audit.KindCopy:
		if e.Copy != nil && e.Copy.Reason != "" {
			return Warning
		}
	}
	if info, ok := e.Kind.Info(); ok {
		return info.Severity
	}
	return Info
}

// ofFinding: a finding with a reaction is an alert.
func ofFinding(f *audit.Finding) Severity {
	if f != nil && f.Action != "" {
		return Alert
	}
	return Error
}

// ofProbe: a successful escape is the worst. If a control failed,
// the other probes prove nothing.
func ofProbe(p *audit.Probe) Severity {
	if p == nil {
		return Error
	}
	control := strings.HasPrefix(p.Name, "control/")
	switch {
	case !control && !p.Blocked:
		return Alert
	case control && p.Blocked, !p.Recorded:
		return Error
	}
	return Info
}

// ofGap: lost events are an error, at any stage; lost hashes and bytes a warning.
func ofGap(g *audit.Gap) Severity {
	if g != nil && g.Count > 0 && g.Stage != audit.StageGuestQueue {
		return Error
	}
	return Warning
}

func ofVerdict(e Event) Severity {
	var v audit.Verdict
	switch {
	case e.Flow != nil && e.Flow.State == audit.FlowRevoke:
		return Warning
	case e.Flow != nil:
		v = e.Flow.Verdict
	case e.DNS != nil:
		v = e.DNS.Verdict
	case e.HTTP != nil:
		v = e.HTTP.Verdict
	}
	if v == audit.Deny {
		return Warning
	}
	return Info
}

func ofEnd(l *audit.Lifecycle) Severity {
	switch {
	case l == nil || l.Phase != audit.PhaseEnd:
		return Info
	case l.Status == audit.StatusFailed, l.Status == audit.StatusInterrupted, l.Status == audit.StatusTimeout:
		return Warning
	case l.Status == audit.StatusCancelled, l.ExitCode != nil && *l.ExitCode != 0:
		return Notice
	}
	return Info
}

func ofVM(v *audit.VM) Severity {
	if v == nil {
		return Info
	}
	switch v.Op {
	case "freeze", "silent":
		return Warning
	case "thaw":
		return Notice
	}
	return Info
}

func ofSecret(s *audit.Secret) Severity {
	if s == nil {
		return Info
	}
	switch s.Op {
	case audit.SecretRefuse:
		return Warning
	case audit.SecretExpire:
		return Notice
	}
	return Info
}

// ofAccess: first refused accesses, then those that export records or change permissions.
func ofAccess(a *audit.Access) Severity {
	switch {
	case a == nil:
		return Info
	case a.Verdict == audit.Deny:
		return Warning
	case a.Action == "export" || a.Action == "manage":
		return Notice
	}
	return Info
}
