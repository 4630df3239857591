// Package ocsf writes events in the Open Cybersecurity Schema Framework, schema.ocsf.io, in one
// of several versions. docs/mapping.md has the tables.
//
// An event has the attributes that its class has in the chosen version, and no other. Values without an attribute are
// under "unmapped", with the names of docs/events.md: nothing is dropped. Who observed it, host or guest, is always in
// unmapped.observer; where the version has confidence_id, a guest's claim has 1 (Low) and what the host saw 3 (High).
package ocsf

import (
	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/internal/wire"
)

// format implements export.Format. It does not change after New.
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

// Append implements export.Format. It never fails: a kind that is not known becomes an event of
// the class for logs, with the record in raw_data.
func (f *format) Append(dst []byte, e export.Event) ([]byte, error) {
	d := doc{Writer: wire.New(dst), f: f, e: &e}
	d.event()
	return d.finish(), nil
}

// doc is one event on its way.
type doc struct {
	wire.Writer
	f       *format
	e       *export.Event
	seen    [maxObservables]observable
	nSeen   int
	control bool   // the profile security_control is used
	host    bool   // the profile host is used
	ai      bool   // the profile ai_operation is used
	marks   [2]int // of unmapped, and of the payload in it
}

// has reports whether an attribute that came with a version can be written.
func (d *doc) has(since minor) bool { return d.f.minor >= since }

// or returns what p points to, or nothing at all: a record whose payload is missing still has a form.
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
		d.lifecycle(or(e.Lifecycle))
	case audit.KindExec:
		d.exec(or(e.Record.Exec))
	case audit.KindExit:
		d.exit(or(e.Exit))
	case audit.KindFile:
		d.file(or(e.File))
	case audit.KindFlow:
		d.flow(or(e.Flow))
	case audit.KindDNS:
		d.dns(or(e.DNS))
	case audit.KindHTTP:
		d.http(or(e.HTTP))
	case audit.KindLLM:
		d.llm(or(e.LLM))
	case audit.KindPolicy:
		d.policy(or(e.Policy))
	case audit.KindProbe:
		d.probe(or(e.Probe))
	case audit.KindOutput:
		d.output(or(e.Output))
	case audit.KindVM:
		d.vm(or(e.VM))
	case audit.KindCopy:
		d.copied(or(e.Copy))
	case audit.KindSecret:
		d.secret(or(e.Secret))
	case audit.KindGap:
		d.gap(or(e.Gap))
	case audit.KindFinding:
		d.finding(or(e.Finding))
	case audit.KindAccess:
		d.access(or(e.Access))
	case audit.KindNote:
		d.note(or(e.Note))
	default:
		d.foreign()
	}
}

// head writes what every event has. name is that of the activity where it is other.
func (d *doc) head(uid, activity int, name string, status int) {
	c := d.f.classes[uid]
	caption := "Other"
	if activity != other {
		caption = c.activities[activity]
	}
	d.Int("class_uid", int64(uid))
	d.Const("class_name", c.name)
	d.Int("category_uid", int64(uid/1000))
	d.Const("category_name", c.category)
	d.Int("activity_id", int64(activity))
	switch {
	case activity != other:
		d.Const("activity_name", caption)
	case name == "":
		d.Const("activity_name", "unknown")
	default:
		d.Str("activity_name", name)
	}
	d.Int("type_uid", int64(uid*100+activity))
	d.typeName(c.name, caption)
	d.Int("time", d.e.Time.UnixMilli())
	id, word := severity(export.SeverityOf(*d.e))
	d.Int("severity_id", int64(id))
	d.Const("severity", word)
	d.Int("status_id", int64(status))
	if uid == 2004 {
		d.Const("status", findingStatus(status))
	} else {
		d.Const("status", statusName(status))
	}
}

func (d *doc) typeName(class, activity string) {
	d.B = append(d.B, `,"type_name":"`...)
	d.B = append(d.B, class...)
	d.B = append(d.B, ": "...)
	d.B = append(d.B, activity...)
	d.B = append(d.B, '"')
}

// secured writes the profile security_control, where the class has it in this version. Before
// 1.4.0 only some classes had it (old), and an action was required, so that what was only
// observed did not fit.
func (d *doc) secured(c control, old bool) {
	if c == noControl || !d.has(sinceControl) && (!old || c == logged) {
		return
	}
	d.control = true
	d.Int("action_id", int64(c.action))
	d.Const("action", actionName(c.action))
	d.Int("disposition_id", int64(c.disposition))
	d.Const("disposition", dispositionName(c.disposition))
	if d.has(sinceControl) {
		d.confidence()
	}
}

// confidence is low for a guest's claim, and for an unsigned record.
func (d *doc) confidence() {
	if d.e.Observer == audit.Guest || d.e.Wrong() {
		d.Int("confidence_id", 1)
		d.Const("confidence", "Low")
		return
	}
	d.Int("confidence_id", 3)
	d.Const("confidence", "High")
}

// rule writes the rule of the policy that decided, and the policy.
func (d *doc) rule(rule string, generation uint32) {
	if !d.control || rule == "" && generation == 0 {
		return
	}
	if rule != "" {
		o := d.Obj("firewall_rule")
		d.Str("name", rule)
		d.End(o)
	}
	if d.has(sinceControl) && generation != 0 {
		o := d.Obj("policy")
		d.Const("name", "egress")
		d.digest(generation)
		d.version(generation)
		d.End(o)
	}
}

// digest writes that of the first policy, which is in the run's start.
func (d *doc) digest(generation uint32) {
	if s := d.e.Start; s != nil && generation == 1 {
		d.StrIf("uid", s.PolicyDigest)
	}
}

// unmapped begins what has no place, with the envelope of the record; the payload's part stands
// under its kind. Nothing but leftovers may be written from here on.
func (d *doc) unmapped() {
	d.observables()
	e := d.e
	d.marks[0] = d.Obj("unmapped")
	d.StrIf("kind", string(e.Kind))
	d.StrIf("observer", string(e.Observer))
	d.StrIf("step", e.Step)
	if e.Erased {
		d.Bool("erased", true)
	}
	d.Mark(e.Mark)
	if g := e.Guest; g != nil {
		d.Time("guest_time", g.Time)
		d.Int("guest_offset_ns", g.OffsetNS)
	}
	key := string(e.Kind)
	switch e.Kind {
	case audit.KindRun, audit.KindStep:
		key = "lifecycle"
	}
	if !e.Kind.Known() {
		key = "payload"
	}
	d.marks[1] = d.Obj(key)
}

// finish ends unmapped and writes the metadata, which list what was cut and which profiles were used.
func (d *doc) finish() []byte {
	d.End(d.marks[1])
	cut := len(d.Cuts) > 0
	d.Marks()
	d.End(d.marks[0])
	d.metadata(cut)
	return d.Finish()
}

func (d *doc) metadata(cut bool) {
	e := d.e
	d.Envelope()
	m := d.Obj("metadata")
	d.Const("version", d.f.version)
	p := d.Obj("product")
	d.Const("name", "Custody")
	d.Const("vendor_name", "Custody")
	if e.Start != nil {
		d.StrIf("version", e.Start.Version)
	}
	d.End(p)
	d.ID("uid", e.Run, e.Seq)
	d.StrIf("correlation_uid", e.Run)
	d.Uint("sequence", e.Seq)
	d.StrIf("event_code", string(e.Kind))
	d.Const("log_name", "custody")
	d.Const("log_provider", "custody")
	d.Int64("log_version", int64(e.V))
	d.StrIf("tenant_uid", e.Tenant)
	d.Time("original_time", e.Time)
	d.loggers()
	d.labels()
	d.profiles()
	if cut && d.has(sinceTruncated) {
		d.Bool("is_truncated", true)
	}
	d.End(m)
}

// loggers writes the host that recorded it: the name of its key, and its own.
func (d *doc) loggers() {
	host := ""
	if d.e.Start != nil {
		host = d.e.Start.Host
	}
	if d.e.Host == "" && host == "" {
		return
	}
	a := d.Arr("loggers")
	l := d.Elem()
	if d.e.Host != "" {
		d.Str("name", d.e.Host)
	} else {
		d.Str("name", host)
	}
	if host != "" {
		o := d.Obj("device")
		d.Int("type_id", 1)
		d.Const("type", "Server")
		d.Str("hostname", host)
		d.End(o)
	}
	d.End(l)
	d.EndArr(a)
}

func (d *doc) labels() {
	s := or(d.e.Start)
	a := d.Arr("labels")
	if m := d.e.Mark; m != nil {
		d.Tagged("verification:", string(m.State))
	}
	if s.Project != "" {
		d.Tagged("project:", s.Project)
	}
	if s.Tier != "" {
		d.Tagged("tier:", s.Tier)
	}
	if s.Mode != "" {
		d.Tagged("mode:", s.Mode)
	}
	d.EndArr(a)
}

func (d *doc) profiles() {
	a := d.Arr("profiles")
	if d.host {
		d.ConstValue("host")
	}
	if d.control {
		d.ConstValue("security_control")
	}
	if d.ai {
		d.ConstValue("ai_operation")
	}
	d.EndArr(a)
}

func (d *doc) observables() {
	d.Quiet = true
	a := d.Arr("observables")
	for _, o := range d.seen[:d.nSeen] {
		if !d.Room(len(o.value)) {
			break
		}
		e := d.Elem()
		d.Path("name", o.at, o.attribute)
		d.Int("type_id", int64(o.id))
		if o.id != seenHash || d.has(sinceHash) {
			d.Const("type", observableType(o.id))
		}
		d.Str("value", o.value)
		d.End(e)
	}
	d.EndArr(a)
	d.Quiet = false
}
