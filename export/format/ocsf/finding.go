package ocsf

import (
	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/internal/wire"
)

// logEvent begins an event of the class for logs, or of the base class if the version lacks it.
func (d *doc) logEvent(activity int, name, log string, status int) wire.Object {
	if !d.v.has(sinceEventLog) {
		return d.head(0, other, name, status)
	}
	top := d.head(1008, activity, name, status)
	top.Str("log_name", log)
	top.Const("log_provider", "custody")
	d.device(false)
	return top
}

func outputEvent(d *doc, o audit.Output) {
	top := d.logEvent(other, "Output", o.Stream, success)
	top.Str("message", string(o.Text))

	left := d.unmapped()
	left.StrIf("stream", o.Stream)
	left.Int("offset", o.Offset)
}

func gapEvent(d *doc, g audit.Gap) {
	top := d.logEvent(other, "Loss", "custody", failure)
	top.StrIf("status_code", string(g.Stage))
	top.StrIf("status_detail", g.Cause)
	top.Join("message", "gap", string(g.Stage), g.What, g.Cause)

	left := d.unmapped()
	left.StrIf("stage", string(g.Stage))
	left.StrIf("what", g.What)
	left.UintIf("first", g.First)
	left.UintIf("last", g.Last)
	left.Uint("count", g.Count)
	left.IntIf("bytes", g.Bytes)
}

// erased writes an erased record: that it existed, and its position.
func (d *doc) erased() {
	top := d.logEvent(2, "Delete", "custody", success)
	top.Const("message", "the record was erased; its place and its proof remain")
	d.unmapped()
}

// foreign writes a record of an unknown kind.
func (d *doc) foreign() {
	top := d.logEvent(other, string(d.e.Kind), "custody", unknown)
	top.Join("message", "record of kind", string(d.e.Kind))
	top.StrIf("raw_data", string(d.e.Body))
	d.unmapped()
}

// Finding's status_id.
const (
	findingNew      = 1
	findingResolved = 4
)

func findingStatus(id int) string {
	if id == findingResolved {
		return "Resolved"
	}
	return "New"
}

func findingEvent(d *doc, f audit.Finding) {
	c := detected
	switch f.Action {
	case "":
		if d.v.has(sinceControl) {
			c.action = 3
		}
	case "revoke":
		c = revoked
	case "freeze":
		c = isolated
	default:
		c = blocked
	}
	top := d.head(2004, 1, "", findingNew)
	top.Join("message", "finding", string(f.Rule)+":", f.Detail)
	d.found(c, true)
	d.device(true)
	if f.Proc != "" {
		procActor(top, d.e, d.v, f.Proc, 0, "")
		a := top.Arr("evidences")
		e := a.Elem()
		p := e.Obj("process")
		process(p, d.v, f.Proc, 0, d.e.Exec)
		p.End()
		e.End()
		a.End()
	}
	findingInfo(top, d.e, string(f.Rule), f.Detail, d.e.Run, f.Seq)
	if f.Secret != "" {
		a := top.Arr("resources")
		r := a.Elem()
		r.Str("name", f.Secret)
		r.Const("type", "credential")
		r.End()
		a.End()
	}

	left := d.unmapped()
	left.StrIf("action", f.Action)
}

// found writes the reaction to a finding. confidence_id is an attribute of the class in all versions.
func (d *doc) found(c control, alert bool) {
	top := d.w.Root()
	d.secured(c, true)
	if !d.v.has(sinceControl) {
		confidence(top, d.e)
		return
	}
	top.Bool("is_alert", alert)
}

// findingInfo writes finding_info. seq is the record that shows it, 0 if there is none.
func findingInfo(in wire.Object, e *export.Event, rule, detail, run string, seq uint64) {
	o := in.Obj("finding_info")
	o.ID("uid", e.Run, e.Seq)
	o.Str("title", rule)
	o.StrIf("desc", detail)
	o.Int("created_time", e.Time.UnixMilli())
	a := o.Obj("analytic")
	a.Str("name", rule)
	a.Int("type_id", 1)
	a.Const("type", "Rule")
	a.End()
	if seq != 0 {
		r := o.Arr("related_events")
		e := r.Elem()
		e.ID("uid", run, seq)
		e.End()
		r.End()
	}
	o.End()
}

func probeEvent(d *doc, p audit.Probe) {
	severe := export.SeverityOf(*d.e) <= export.Error
	c, status := allowed, findingResolved
	if p.Blocked {
		c = blocked
	}
	if severe {
		status = findingNew
	}
	top := d.head(2004, 1, "", status)
	top.Join("message", "probe", p.Name, p.Family, string(p.Detail))
	d.found(c, severe)
	d.device(true)
	run := p.Run
	if run == "" {
		run = d.e.Run
	}
	findingInfo(top, d.e, p.Name, string(p.Detail), run, p.Seq)

	left := d.unmapped()
	left.StrIf("family", p.Family)
	left.Bool("blocked", p.Blocked)
	left.Bool("recorded", p.Recorded)
	left.StrIf("attacked", p.Run)
}
