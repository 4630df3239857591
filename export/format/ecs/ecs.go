// Package ecs writes events in the Elastic Common Schema, version 8.16. docs/mapping.md has the tables.
//
// Fields of ECS have the meaning that ECS defines, and values of the right type: an invalid address is not
// written to a field of type ip, where Elasticsearch would refuse the event. Values without a field in ECS are
// under "custody", with the names of docs/events.md. custody.observer distinguishes the host's observations from the
// guest's claims.
package ecs

import (
	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/internal/wire"
)

// Version is the version of ECS.
const Version = "8.16.0"

type format struct{}

// New returns the format. It is safe for concurrent use.
func New() export.Format { return format{} }

// Name implements export.Format.
func (format) Name() string { return "ecs" }

// Append implements export.Format. It never fails.
func (format) Append(dst []byte, e export.Event) ([]byte, error) {
	d := doc{w: wire.New(dst), e: &e}
	d.w.Root().Time("@timestamp", e.Time)
	d.event()
	d.finish()
	return d.w.Finish(), nil
}

// doc is one event: the frame of every event, around the output of the function of its kind. Such a function
// writes its field sets, then what has no field in ECS into the object that custody returns; finish writes the fields
// of all events.
type doc struct {
	w       wire.Writer
	left    wire.Place // custody
	payload wire.Place // in it, the rest of the payload
	e       *export.Event
	seen    related
}

// class is the ECS categorisation of an event.
type class struct {
	kind     string // event, alert
	category []string
	types    []string
	action   string
	outcome  string
	reason   string
	duration int64 // nanoseconds
}

// or returns what p points to, or the zero value: a record without its payload is exported too.
func or[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

func (d *doc) event() {
	e := d.e
	if e.Erased {
		d.head(class{kind: "event", types: []string{"deletion"}, action: "erased", outcome: "success"})
		d.w.Root().Const("message", "the record was erased; its place and its proof remain")
		d.custody("")
		return
	}
	switch e.Kind {
	case audit.KindRun, audit.KindStep:
		lifecycleEvent(d, or(e.Lifecycle))
	case audit.KindExec:
		execEvent(d, or(e.Record.Exec))
	case audit.KindExit:
		exitEvent(d, or(e.Exit))
	case audit.KindFile:
		fileEvent(d, or(e.File))
	case audit.KindFlow:
		flowEvent(d, or(e.Flow))
	case audit.KindInbound:
		inboundEvent(d, or(e.Inbound))
	case audit.KindDNS:
		dnsEvent(d, or(e.DNS))
	case audit.KindHTTP:
		httpEvent(d, or(e.HTTP))
	case audit.KindLLM:
		llmEvent(d, or(e.LLM))
	case audit.KindPolicy:
		policyEvent(d, or(e.Policy))
	case audit.KindProbe:
		probeEvent(d, or(e.Probe))
	case audit.KindOutput:
		outputEvent(d, or(e.Output))
	case audit.KindVM:
		vmEvent(d, or(e.VM))
	case audit.KindCopy:
		copyEvent(d, or(e.Copy))
	case audit.KindSecret:
		secretEvent(d, or(e.Secret))
	case audit.KindGap:
		gapEvent(d, or(e.Gap))
	case audit.KindFinding:
		findingEvent(d, or(e.Finding))
	case audit.KindAccess:
		accessEvent(d, or(e.Access))
	case audit.KindNote:
		noteEvent(d, or(e.Note))
	default:
		d.foreign()
	}
}

// severity writes the severities of RFC 5424 as syslog's keywords, and as the numbers of Elastic's detection rules.
func severity(s export.Severity) (int64, string) {
	switch s {
	case export.Alert:
		return 99, "alert"
	case export.Error:
		return 73, "error"
	case export.Warning:
		return 47, "warning"
	case export.Notice:
		return 21, "notice"
	}
	return 0, "info"
}

// head writes event.* and log.level, and returns the event.
func (d *doc) head(c class) wire.Object {
	top := d.w.Root()
	e := d.e
	n, level := severity(export.SeverityOf(*e))
	o := top.Obj("event")
	if e.Wrong() {
		c.kind = "alert"
	}
	o.Const("kind", c.kind)
	constants(o, "category", c.category)
	constants(o, "type", c.types)
	o.Str("action", c.action)
	o.Const("outcome", c.outcome)
	o.ID("id", e.Run, e.Seq)
	o.Uint("sequence", e.Seq)
	o.Int("severity", n)
	o.Const("provider", "custody")
	o.Const("module", "custody")
	switch {
	case e.Kind.Known():
		o.Const("dataset", "custody."+string(e.Kind))
	default:
		o.Const("dataset", "custody.record")
	}
	o.StrIf("reason", c.reason)
	o.IntIf("duration", c.duration)
	o.End()
	l := top.Obj("log")
	l.Const("level", level)
	l.End()
	return top
}

func constants(in wire.Object, key string, list []string) {
	a := in.Arr(key)
	for _, s := range list {
		a.ConstValue(s)
	}
	a.End()
}

// custody begins the object for what has no field in ECS. kind is the object for the rest of the payload.
func (d *doc) custody(kind string) wire.Object {
	e := d.e
	left := d.w.Root().Obj("custody")
	left.StrIf("kind", string(e.Kind))
	left.StrIf("observer", string(e.Observer))
	left.StrIf("run", e.Run)
	left.StrIf("step", e.Step)
	left.BoolIf("erased", e.Erased)
	left.Mark(e.Mark)
	if g := e.Guest; g != nil {
		left.Time("guest_time", g.Time)
		left.Int("guest_offset_ns", g.OffsetNS)
	}
	if s := e.Start; s != nil {
		left.StrIf("tier", s.Tier)
		left.StrIf("mode", s.Mode)
	}
	if kind == "" {
		kind = "payload"
	}
	payload := left.Obj(kind)
	d.left, d.payload = left.Place(), payload.Place()
	return payload
}

// finish ends custody, and writes the fields of all events.
func (d *doc) finish() {
	top := d.w.Root()
	left := d.w.Resume(d.left)
	d.w.Resume(d.payload).End()
	d.w.Notes.Write(left)
	left.End()
	d.w.Envelope()
	d.w.Notes.Quiet = true
	d.seen.write(top)
	d.w.Notes.Quiet = false
	where(top, d.e)
	o := top.Obj("ecs")
	o.Const("version", Version)
	o.End()
}

// where writes the recording host, and the tenant and sandbox.
func where(in wire.Object, e *export.Event) {
	s := or(e.Start)
	o := in.Obj("observer")
	o.Const("vendor", "Custody")
	o.Const("product", "Custody")
	o.Const("type", "sandbox")
	o.StrIf("name", e.Host)
	o.StrIf("hostname", s.Host)
	o.StrIf("version", s.Version)
	o.End()
	h := in.Obj("host")
	h.StrIf("id", e.Run)
	h.StrIf("name", e.Run)
	h.Const("type", "vm")
	os := h.Obj("os")
	os.Const("type", "linux")
	os.Const("family", "linux")
	os.End()
	h.End()
	r := in.Obj("orchestrator")
	r.Const("type", "custody")
	r.StrIf("namespace", s.Project)
	r.StrIf("organization", e.Tenant)
	if e.Step != "" {
		p := r.Obj("resource")
		p.Const("type", "step")
		p.Str("name", e.Step)
		p.End()
	}
	r.End()
	if e.Tenant != "" {
		g := in.Obj("organization")
		g.Str("id", e.Tenant)
		g.End()
	}
}
