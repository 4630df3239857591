// Package ecs writes events in the Elastic Common Schema, version 8.16. docs/mapping.md has the tables.
//
// Fields of ECS have the meaning that ECS gives them, and values of the right type: an address that is none does not
// stand in a field of type ip, where it would make Elasticsearch refuse the event. Values without a field in ECS are
// under "custody", with the names of docs/events.md. custody.observer distinguishes the host's observations from the
// guest's claims.
package ecs

import (
	"net/netip"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/internal/wire"
)

// Version of ECS that is written.
const Version = "8.16.0"

type format struct{}

// New returns the format. It is safe for concurrent use.
func New() export.Format { return format{} }

// Name implements export.Format.
func (format) Name() string { return "ecs" }

// Append implements export.Format. It never fails.
func (format) Append(dst []byte, e export.Event) ([]byte, error) {
	d := doc{Writer: wire.New(dst), e: &e}
	d.Time("@timestamp", e.Time)
	d.event()
	return d.finish(), nil
}

// doc is one event on its way. The kinds write their own field sets, and end with custody and
// the object in it that has their leftovers open (marks); finish writes what all have.
type doc struct {
	wire.Writer
	e     *export.Event
	marks [2]int

	ips, hosts, hashes [8]string // related.*
	nIP, nHost, nHash  int
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
		d.head(class{kind: "event", types: []string{"deletion"}, action: "erased", outcome: "success"})
		d.Const("message", "the record was erased; its place and its proof remain")
		d.custody("")
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

// head writes event.* and log.level.
func (d *doc) head(c class) {
	e := d.e
	n, level := severity(export.SeverityOf(*e))
	o := d.Obj("event")
	if e.Wrong() {
		c.kind = "alert"
	}
	d.Const("kind", c.kind)
	d.words("category", c.category)
	d.words("type", c.types)
	d.Str("action", c.action)
	d.Const("outcome", c.outcome)
	d.ID("id", e.Run, e.Seq)
	d.Uint("sequence", e.Seq)
	d.Int("severity", n)
	d.Const("provider", "custody")
	d.Const("module", "custody")
	switch {
	case e.Kind.Known():
		d.Const("dataset", "custody."+string(e.Kind))
	default:
		d.Const("dataset", "custody.record")
	}
	d.StrIf("reason", c.reason)
	d.IntIf("duration", c.duration)
	d.End(o)
	l := d.Obj("log")
	d.Const("level", level)
	d.End(l)
}

func (d *doc) words(key string, list []string) {
	a := d.Arr(key)
	for _, s := range list {
		d.ConstValue(s)
	}
	d.EndArr(a)
}

// custody begins what ECS has no field for. kind is the object for the payload's leftovers.
func (d *doc) custody(kind string) {
	e := d.e
	d.marks[0] = d.Obj("custody")
	d.StrIf("kind", string(e.Kind))
	d.StrIf("observer", string(e.Observer))
	d.StrIf("run", e.Run)
	d.StrIf("step", e.Step)
	d.BoolIf("erased", e.Erased)
	d.Mark(e.Mark)
	if g := e.Guest; g != nil {
		d.Time("guest_time", g.Time)
		d.Int("guest_offset_ns", g.OffsetNS)
	}
	if s := e.Start; s != nil {
		d.StrIf("tier", s.Tier)
		d.StrIf("mode", s.Mode)
	}
	if kind == "" {
		kind = "payload"
	}
	d.marks[1] = d.Obj(kind)
}

// finish ends custody, and writes what all events have.
func (d *doc) finish() []byte {
	d.End(d.marks[1])
	d.Marks()
	d.End(d.marks[0])
	d.Envelope()
	d.related()
	d.where()
	o := d.Obj("ecs")
	d.Const("version", Version)
	d.End(o)
	return d.Finish()
}

// where writes the host that recorded it, and the tenant and sandbox in which it happened.
func (d *doc) where() {
	e, s := d.e, or(d.e.Start)
	o := d.Obj("observer")
	d.Const("vendor", "Custody")
	d.Const("product", "Custody")
	d.Const("type", "sandbox")
	d.StrIf("name", e.Host)
	d.StrIf("hostname", s.Host)
	d.StrIf("version", s.Version)
	d.End(o)
	h := d.Obj("host")
	d.StrIf("id", e.Run)
	d.StrIf("name", e.Run)
	d.Const("type", "vm")
	os := d.Obj("os")
	d.Const("type", "linux")
	d.Const("family", "linux")
	d.End(os)
	d.End(h)
	r := d.Obj("orchestrator")
	d.Const("type", "custody")
	d.StrIf("namespace", s.Project)
	d.StrIf("organization", e.Tenant)
	if e.Step != "" {
		p := d.Obj("resource")
		d.Const("type", "step")
		d.Str("name", e.Step)
		d.End(p)
	}
	d.End(r)
	if e.Tenant != "" {
		g := d.Obj("organization")
		d.Str("id", e.Tenant)
		d.End(g)
	}
}

func (d *doc) related() {
	d.Quiet = true
	o := d.Obj("related")
	d.Strs("ip", d.ips[:d.nIP])
	d.Strs("hosts", d.hosts[:d.nHost])
	d.Strs("hash", d.hashes[:d.nHash])
	d.End(o)
	d.Quiet = false
}

// seeIP notes an address for related.ip, and reports whether it is one.
func (d *doc) seeIP(s string) bool {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return false
	}
	if d.nIP < len(d.ips) {
		d.ips[d.nIP] = s
		d.nIP++
	}
	return true
}

func (d *doc) seeHost(s string) {
	if s != "" && d.nHost < len(d.hosts) {
		d.hosts[d.nHost] = s
		d.nHost++
	}
}

func (d *doc) seeHash(s string) {
	if s != "" && d.nHash < len(d.hashes) {
		d.hashes[d.nHash] = s
		d.nHash++
	}
}
