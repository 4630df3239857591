package ocsf

import (
	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export"
)

// logEvent begins an event of the class for logs, or of the base class where that does not exist.
func (d *doc) logEvent(activity int, name, log string, status int) {
	if !d.has(sinceEventLog) {
		d.head(0, other, name, status)
		return
	}
	d.head(1008, activity, name, status)
	d.Str("log_name", log)
	d.Const("log_provider", "custody")
	d.device(false)
}

func (d *doc) output(o audit.Output) {
	d.logEvent(other, "Output", o.Stream, success)
	d.Str("message", string(o.Text))

	d.unmapped()
	d.StrIf("stream", o.Stream)
	d.Int("offset", o.Offset)
}

func (d *doc) gap(g audit.Gap) {
	d.logEvent(other, "Loss", "custody", failure)
	d.StrIf("status_code", string(g.Stage))
	d.StrIf("status_detail", g.Cause)
	d.Join("message", "gap", string(g.Stage), g.What, g.Cause)

	d.unmapped()
	d.StrIf("stage", string(g.Stage))
	d.StrIf("what", g.What)
	d.UintIf("first", g.First)
	d.UintIf("last", g.Last)
	d.Uint("count", g.Count)
	d.IntIf("bytes", g.Bytes)
}

// erased writes an erased record: that it existed, and its place.
func (d *doc) erased() {
	d.logEvent(2, "Delete", "custody", success)
	d.Const("message", "the record was erased; its place and its proof remain")
	d.unmapped()
}

// foreign writes a record of an unknown kind.
func (d *doc) foreign() {
	d.logEvent(other, string(d.e.Kind), "custody", unknown)
	d.Join("message", "record of kind", string(d.e.Kind))
	d.StrIf("raw_data", string(d.e.Body))
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

func (d *doc) finding(f audit.Finding) {
	c := detected
	switch f.Action {
	case "":
		if d.has(sinceControl) {
			c.action = 3
		}
	case "revoke":
		c = revoked
	case "freeze":
		c = isolated
	default:
		c = blocked
	}
	d.head(2004, 1, "", findingNew)
	d.Join("message", "finding", string(f.Rule)+":", f.Detail)
	d.found(c, true)
	d.device(true)
	if f.Proc != "" {
		d.procActor(f.Proc, 0, "")
		a := d.Arr("evidences")
		e := d.Elem()
		p := d.Obj("process")
		d.process(f.Proc, 0, d.e.Exec)
		d.End(p)
		d.End(e)
		d.EndArr(a)
	}
	d.info(string(f.Rule), f.Detail, d.e.Run, f.Seq)
	if f.Secret != "" {
		a := d.Arr("resources")
		r := d.Elem()
		d.Str("name", f.Secret)
		d.Const("type", "credential")
		d.End(r)
		d.EndArr(a)
	}

	d.unmapped()
	d.StrIf("action", f.Action)
}

// found writes what was done about a finding. confidence_id is the class's own in all versions.
func (d *doc) found(c control, alert bool) {
	d.secured(c, true)
	if !d.has(sinceControl) {
		d.confidence()
		return
	}
	d.Bool("is_alert", alert)
}

// info writes finding_info. seq is the record that shows it, 0 where there is none.
func (d *doc) info(rule, detail, run string, seq uint64) {
	o := d.Obj("finding_info")
	d.ID("uid", d.e.Run, d.e.Seq)
	d.Str("title", rule)
	d.StrIf("desc", detail)
	d.Int("created_time", d.e.Time.UnixMilli())
	a := d.Obj("analytic")
	d.Str("name", rule)
	d.Int("type_id", 1)
	d.Const("type", "Rule")
	d.End(a)
	if seq != 0 {
		r := d.Arr("related_events")
		e := d.Elem()
		d.ID("uid", run, seq)
		d.End(e)
		d.EndArr(r)
	}
	d.End(o)
}

func (d *doc) probe(p audit.Probe) {
	severe := export.SeverityOf(*d.e) <= export.Error
	c, status := allowed, findingResolved
	if p.Blocked {
		c = blocked
	}
	if severe {
		status = findingNew
	}
	d.head(2004, 1, "", status)
	d.Join("message", "probe", p.Name, p.Family, string(p.Detail))
	d.found(c, severe)
	d.device(true)
	run := p.Run
	if run == "" {
		run = d.e.Run
	}
	d.info(p.Name, string(p.Detail), run, p.Seq)

	d.unmapped()
	d.StrIf("family", p.Family)
	d.Bool("blocked", p.Blocked)
	d.Bool("recorded", p.Recorded)
	d.StrIf("attacked", p.Run)
}
