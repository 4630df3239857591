// Package ocsf writes events in the Open Cybersecurity Schema Framework, schema.ocsf.io, in one
// of several versions. docs/mapping.md has the tables.
//
// An event has exactly the attributes that its class has in the chosen version. Values without an attribute are
// under "unmapped", with the names of docs/events.md: nothing is dropped. The observer, host or guest, is always in
// unmapped.observer; if the version has confidence_id, a guest's claim has 1 (Low) and a host's observation 3 (High).
package ocsf

import (
	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/internal/wire"
)

// format implements export.Format. It is immutable.
type format struct {
	version string
	minor   minor
	classes map[int]class
}

// New returns the format in one of Versions; "" is Default. It is safe for concurrent use.
func New(version string) (export.Format, error) {
	v, m, err := parseVersion(version)
	if err != nil {
		return nil, err
	}
	return &format{version: v, minor: m, classes: classes()}, nil
}

// Name implements export.Format.
func (f *format) Name() string { return "ocsf" }

// Append implements export.Format. It never fails: an unknown kind becomes an event of
// the class for logs, with the record in raw_data.
func (f *format) Append(dst []byte, e export.Event) ([]byte, error) {
	d := doc{w: wire.New(dst), f: f, v: f.minor, e: &e}
	d.event()
	d.finish()
	return d.w.Finish(), nil
}

// doc is one event: the frame of every event, around the output of the function of its kind.
type doc struct {
	w       wire.Writer
	left    wire.Place // unmapped
	payload wire.Place // the unmapped part of the payload
	f       *format
	v       minor
	e       *export.Event
	seen    observables
	control bool // the profile security_control is used
	host    bool // the profile host is used
	ai      bool // the profile ai_operation is used
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
		d.erased()
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

// head writes the attributes of every event, and returns the event. name is the activity's name if it is custom.
func (d *doc) head(uid, activity int, name string, status int) wire.Object {
	top := d.w.Root()
	c := d.f.classes[uid]
	caption := "Other"
	if activity != other {
		caption = c.activities[activity]
	}
	top.Int("class_uid", int64(uid))
	top.Const("class_name", c.name)
	top.Int("category_uid", int64(uid/1000))
	top.Const("category_name", c.category)
	top.Int("activity_id", int64(activity))
	switch {
	case activity != other:
		top.Const("activity_name", caption)
	case name == "":
		top.Const("activity_name", "unknown")
	default:
		top.Str("activity_name", name)
	}
	top.Int("type_uid", int64(uid*100+activity))
	top.Consts("type_name", c.name, ": ", caption)
	top.Int("time", d.e.Time.UnixMilli())
	id, word := severity(export.SeverityOf(*d.e))
	top.Int("severity_id", int64(id))
	top.Const("severity", word)
	top.Int("status_id", int64(status))
	if uid == 2004 {
		top.Const("status", findingStatus(status))
	} else {
		top.Const("status", statusName(status))
	}
	return top
}

// secured writes the profile security_control, if the class has it in this version. Before
// 1.4.0 only some classes had it (old), and required an action, so that it did not suit mere
// observations.
func (d *doc) secured(c control, old bool) {
	top := d.w.Root()
	if c == noControl || !d.v.has(sinceControl) && (!old || c == logged) {
		return
	}
	d.control = true
	top.Int("action_id", int64(c.action))
	top.Const("action", actionName(c.action))
	top.Int("disposition_id", int64(c.disposition))
	top.Const("disposition", dispositionName(c.disposition))
	if d.v.has(sinceControl) {
		confidence(top, d.e)
	}
}

// confidence writes that it is low for a guest's claim, and for an unsigned record.
func confidence(in wire.Object, e *export.Event) {
	if e.Observer == audit.Guest || e.Wrong() {
		in.Int("confidence_id", 1)
		in.Const("confidence", "Low")
		return
	}
	in.Int("confidence_id", 3)
	in.Const("confidence", "High")
}

// rule writes the rule of the policy that decided, and the policy.
func (d *doc) rule(rule string, generation uint32) {
	top := d.w.Root()
	if !d.control || rule == "" && generation == 0 {
		return
	}
	if rule != "" {
		o := top.Obj("firewall_rule")
		o.Str("name", rule)
		o.End()
	}
	if d.v.has(sinceControl) && generation != 0 {
		o := top.Obj("policy")
		o.Const("name", "egress")
		policyDigest(o, d.e, generation)
		o.IntText("version", int64(generation))
		o.End()
	}
}

// policyDigest writes the digest of the first policy, which is in the run's start.
func policyDigest(in wire.Object, e *export.Event, generation uint32) {
	if s := e.Start; s != nil && generation == 1 {
		in.StrIf("uid", s.PolicyDigest)
	}
}

// unmapped begins the object for values without an attribute, with the envelope of the record; the payload's part is
// under its kind, in the returned object. From here on only such values may be written.
func (d *doc) unmapped() wire.Object {
	top := d.w.Root()
	d.w.Notes.Quiet = true
	d.seen.write(top, d.v)
	d.w.Notes.Quiet = false
	e := d.e
	left := top.Obj("unmapped")
	left.StrIf("kind", string(e.Kind))
	left.StrIf("observer", string(e.Observer))
	left.StrIf("step", e.Step)
	if e.Erased {
		left.Bool("erased", true)
	}
	left.Mark(e.Mark)
	if g := e.Guest; g != nil {
		left.Time("guest_time", g.Time)
		left.Int("guest_offset_ns", g.OffsetNS)
	}
	key := string(e.Kind)
	switch e.Kind {
	case audit.KindRun, audit.KindStep:
		key = "lifecycle"
	}
	if !e.Kind.Known() {
		key = "payload"
	}
	payload := left.Obj(key)
	d.left, d.payload = left.Place(), payload.Place()
	return payload
}

// finish ends unmapped and writes the metadata, which list cut values and used profiles.
func (d *doc) finish() {
	left := d.w.Resume(d.left)
	d.w.Resume(d.payload).End()
	cut := len(d.w.Notes.Cuts) > 0
	d.w.Notes.Write(left)
	left.End()
	d.metadata(cut)
}

func (d *doc) metadata(cut bool) {
	e := d.e
	d.w.Envelope()
	m := d.w.Root().Obj("metadata")
	m.Const("version", d.f.version)
	p := m.Obj("product")
	p.Const("name", "Custody")
	p.Const("vendor_name", "Custody")
	if e.Start != nil {
		p.StrIf("version", e.Start.Version)
	}
	p.End()
	m.ID("uid", e.Run, e.Seq)
	m.StrIf("correlation_uid", e.Run)
	m.Uint("sequence", e.Seq)
	m.StrIf("event_code", string(e.Kind))
	m.Const("log_name", "custody")
	m.Const("log_provider", "custody")
	m.IntText("log_version", int64(e.V))
	m.StrIf("tenant_uid", e.Tenant)
	m.Time("original_time", e.Time)
	loggers(m, d.e)
	labels(m, d.e)
	d.profiles(m)
	if cut && d.v.has(sinceTruncated) {
		m.Bool("is_truncated", true)
	}
	m.End()
}

// loggers writes the host that recorded it: the name of its key, and its name.
func loggers(in wire.Object, e *export.Event) {
	host := ""
	if e.Start != nil {
		host = e.Start.Host
	}
	if e.Host == "" && host == "" {
		return
	}
	a := in.Arr("loggers")
	l := a.Elem()
	if e.Host != "" {
		l.Str("name", e.Host)
	} else {
		l.Str("name", host)
	}
	if host != "" {
		o := l.Obj("device")
		o.Int("type_id", 1)
		o.Const("type", "Server")
		o.Str("hostname", host)
		o.End()
	}
	l.End()
	a.End()
}

func labels(in wire.Object, e *export.Event) {
	s := or(e.Start)
	a := in.Arr("labels")
	if m := e.Mark; m != nil {
		a.Tagged("verification:", string(m.State))
	}
	if s.Project != "" {
		a.Tagged("project:", s.Project)
	}
	if s.Tier != "" {
		a.Tagged("tier:", s.Tier)
	}
	if s.Mode != "" {
		a.Tagged("mode:", s.Mode)
	}
	a.End()
}

func (d *doc) profiles(in wire.Object) {
	a := in.Arr("profiles")
	if d.host {
		a.ConstValue("host")
	}
	if d.control {
		a.ConstValue("security_control")
	}
	if d.ai {
		a.ConstValue("ai_operation")
	}
	a.End()
}
