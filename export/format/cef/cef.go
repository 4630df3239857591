// Package cef writes events in the Common Event Format, version 0, as defined in "Implementing ArcSight
// Common Event Format". docs/mapping.md has the tables.
//
//	CEF:0|Custody|Custody|1.0.0|flow:deny|Flow denied|6|rt=1795215451722 act=deny src=198.18.0.2 ...
//
// An event is one line, for any bytes of a guest: in the header pipe and backslash are
// escaped, in values backslash and equals sign; line feed and carriage return of values become \n
// and \r; every other control character, and every byte that is not UTF-8, becomes its number, as
// in \x1b, with its backslash escaped. Values are cut to the lengths of the dictionary;
// custodyTruncated then lists the keys with the lengths of the complete values.
//
// Values without a key in the dictionary have custom keys, which begin with custody.
package cef

import (
	"net/netip"
	"strings"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export"
)

type format struct{}

// New returns the format. It is safe for concurrent use.
func New() export.Format { return format{} }

// Name implements export.Format.
func (format) Name() string { return "cef" }

// Append implements export.Format. It never fails.
func (format) Append(dst []byte, e export.Event) ([]byte, error) {
	l := line{b: dst, left: maxLine}
	event(&l, &e)
	return l.finish(), nil
}

// or returns what p points to, or the zero value: a record without its payload is exported too.
func or[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// event writes the line of an event: the function of its kind maps the payload.
func event(l *line, e *export.Event) {
	if e.Erased {
		begin(l, e, "erased", "Record erased", "success")
		return
	}
	switch e.Kind {
	case audit.KindRun, audit.KindStep:
		lifecycleEvent(l, e, or(e.Lifecycle))
	case audit.KindExec:
		execEvent(l, e, or(e.Record.Exec))
	case audit.KindExit:
		exitEvent(l, e, or(e.Exit))
	case audit.KindFile:
		fileEvent(l, e, or(e.File))
	case audit.KindFlow:
		flowEvent(l, e, or(e.Flow))
	case audit.KindInbound:
		inboundEvent(l, e, or(e.Inbound))
	case audit.KindDNS:
		dnsEvent(l, e, or(e.DNS))
	case audit.KindHTTP:
		httpEvent(l, e, or(e.HTTP))
	case audit.KindLLM:
		llmEvent(l, e, or(e.LLM))
	case audit.KindPolicy:
		policyEvent(l, e, or(e.Policy))
	case audit.KindProbe:
		probeEvent(l, e, or(e.Probe))
	case audit.KindOutput:
		outputEvent(l, e, or(e.Output))
	case audit.KindVM:
		vmEvent(l, e, or(e.VM))
	case audit.KindCopy:
		copyEvent(l, e, or(e.Copy))
	case audit.KindSecret:
		secretEvent(l, e, or(e.Secret))
	case audit.KindGap:
		gapEvent(l, e, or(e.Gap))
	case audit.KindFinding:
		findingEvent(l, e, or(e.Finding))
	case audit.KindAccess:
		accessEvent(l, e, or(e.Access))
	case audit.KindNote:
		noteEvent(l, e, or(e.Note))
	default:
		begin(l, e, "record", "Record", "")
		l.str("custodyRecord", string(e.Body))
	}
}

// begin writes the header and the fields of every event: time, place and observer.
func begin(l *line, e *export.Event, signature, name, outcome string) {
	version := "-"
	if s := e.Start; s != nil && s.Version != "" {
		version = s.Version
	}
	l.header(version, signature, name, severity(export.SeverityOf(*e)))
	l.int("rt", e.Time.UnixMilli())
	l.str("externalId", e.ID())
	l.str("cat", string(e.Kind))
	if outcome != "" {
		l.fixed("outcome", outcome)
	}
	l.str("deviceExternalId", e.Host)
	if e.Start != nil {
		l.str("dvchost", e.Start.Host)
	}
	l.custom("cs2", "run", e.Run)
	l.custom("cs3", "step", e.Step)
	l.custom("cs4", "observer", string(e.Observer))
	l.custom("cs5", "tenant", e.Tenant)
	l.uint("custodySeq", e.Seq)
	l.time("custodyTime", e.Time)
	if m := e.Mark; m != nil {
		l.str("custodyVerification", string(m.State))
		l.str("custodyVerificationText", m.Text)
	}
	if g := e.Guest; g != nil {
		l.time("custodyGuestTime", g.Time)
		l.int("custodyGuestOffsetNs", g.OffsetNS)
	}
	if s := e.Start; s != nil {
		l.str("custodyProject", s.Project)
		l.str("custodyTier", s.Tier)
	}
}

// process writes the process of the guest that caused the event, as the guest claims.
func process(l *line, e *export.Event, proc string, pid int, parent string) {
	l.intIf("spid", int64(pid))
	l.str("custodyProc", proc)
	l.str("custodyParent", parent)
	if x := e.Exec; x != nil {
		l.str("sproc", string(x.Exe))
		l.int("suid", int64(x.UID))
		if parent == "" {
			l.str("custodyParent", x.Parent)
		}
	}
}

// end writes an endpoint of a flow: some dictionary keys are for IPv4, others for IPv6.
func (l *line) end(ip string, v4, v6, v6label, own string) {
	a, err := netip.ParseAddr(ip)
	switch {
	case err != nil || a.Zone() != "":
		l.str(own, ip)
	case a.Is4():
		l.str(v4, ip)
	default:
		l.custom(v6, v6label, ip)
	}
}

func (l *line) duration(ns int64) {
	if ns != 0 {
		l.customInt("cn3", "durationNs", ns)
	}
}

func (l *line) rule(rule, reason string, generation uint32) {
	l.custom("cs1", "rule", rule)
	l.str("reason", reason)
	if generation != 0 {
		l.customInt("cn1", "generation", int64(generation))
	}
}

// upper capitalizes the first letter of an operation, as in names of keys.
func upper(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
