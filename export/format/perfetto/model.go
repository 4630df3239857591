package perfetto

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export/internal/wire"
	"github.com/custody-project/custody/store"
)

// maxDepth is the maximum nesting of process tracks; deeper ones are placed at that depth.
const maxDepth = 24

// model is the events of a run, in order of their records.
type model struct {
	run    store.Run
	began  int64
	last   int64 // the latest time
	events []*event

	procs  []*proc // in order of first occurrence
	byProc map[string]*proc
	open   map[string]*event // slices that have not ended, by the key of their end
	lives  map[string][]*event

	anchors map[string]*event // possible sources of arrows
	bySeq   map[uint64]*event // the same by seq of a record
	wants   []want
	arrows  uint64

	streams []string // of output, in order of first occurrence
	output  map[string][]sample
}

// proc is a process of the guest.
type proc struct {
	key, name string
	parent    *proc
	depth     int
}

// want is an arrow to an event from one that may come later in the record: by its name, or its seq.
type want struct {
	from string
	seq  uint64
	to   *event
}

type sample struct{ at, bytes int64 }

func newModel(run store.Run) *model {
	return &model{
		run: run, began: nanos(run.Began()), byProc: map[string]*proc{}, open: map[string]*event{}, lives: map[string][]*event{},
		anchors: map[string]*event{}, bySeq: map[uint64]*event{}, output: map[string][]sample{},
	}
}

func (m *model) row(row store.Row) {
	at := nanos(row.Time)
	var r audit.Record
	if row.Erased == nil {
		if err := json.Unmarshal(row.Body, &r); err != nil {
			e := m.add(laneFindings, "", at, row.Seq, string(row.Observer), "record that cannot be read")
			e.say("error", err.Error())
			return
		}
		at = nanos(r.Time)
	}
	if m.began == 0 {
		m.began = at
	}
	m.last = max(m.last, at)
	if row.Erased != nil {
		m.add(laneFindings, "", at, row.Seq, "host", "record erased")
		return
	}
	r.Seq = row.Seq
	m.record(r, at)
}

// add adds an instant, which a caller may turn into a slice.
func (m *model) add(l lane, track string, at int64, seq uint64, observer, name string) *event {
	e := &event{lane: l, track: track, start: at, end: at, instant: true, name: name, observer: observer, seq: seq}
	m.events = append(m.events, e)
	m.bySeq[seq] = e
	return e
}

// of adds an instant of a record.
func (m *model) of(r audit.Record, l lane, track string, at int64, name string) *event {
	e := m.add(l, track, at, r.Seq, string(r.Observer), name)
	e.say("step", r.Step)
	return e
}

// lasted turns an event into a slice that ended when it was recorded.
func (e *event) lasted(ns int64) {
	e.instant, e.end = false, e.start
	e.start = max(e.start-max(ns, 0), 0)
}

// begin starts a slice that the end with the same key ends.
func (m *model) begin(key string, e *event) {
	m.end(key, e.start, e.seq)
	e.instant, e.open = false, true
	m.open[key] = e
}

// end ends a slice with the record with that seq, and returns it; nil if there is none.
func (m *model) end(key string, at int64, seq uint64) *event {
	e := m.open[key]
	if e != nil {
		e.end, e.open = max(at, e.start), false
		e.count("ended by seq", int64(seq))
		delete(m.open, key)
		if m.bySeq[seq] == nil {
			m.bySeq[seq] = e
		}
	}
	return e
}

// arrow requests an arrow to e from the event that has, or will have, that name.
func (m *model) arrow(from string, to *event) {
	m.wants = append(m.wants, want{from: from, to: to})
}

// arrowFrom requests an arrow from a record.
func (m *model) arrowFrom(seq uint64, to *event) {
	m.wants = append(m.wants, want{seq: seq, to: to})
}

// finish marks slices without an end, and draws the arrows.
func (m *model) finish() {
	m.last = max(m.last, m.began)
	for _, e := range m.events {
		if e.open {
			e.end = max(m.last, e.start)
		}
	}
	for _, w := range m.wants {
		from := m.bySeq[w.seq]
		if w.from != "" {
			from = m.anchors[w.from]
		}
		if from != nil && from != w.to {
			m.arrows++ // Perfetto's flows cannot fork: each arrow is a separate flow
			from.arrows = append(from.arrows, m.arrows)
			w.to.arrows = append(w.to.arrows, m.arrows)
		}
	}
	m.separate()
}

// separate ensures that slices on a process's track do not overlap: times need not increase
// with seqs.
func (m *model) separate() {
	last := map[string]*event{}
	for _, e := range m.events {
		if e.track == "" || e.instant {
			continue
		}
		key := fmt.Sprint(e.lane, " ", e.track)
		if before := last[key]; before != nil && e.start < before.end {
			e.start = before.end
			e.end = max(e.end, e.start)
		}
		last[key] = e
	}
}

// process returns the track of a process, created at its first occurrence. A process whose parent comes later,
// or is itself, has a top-level track, so that no claim of a guest can make a cycle.
func (m *model) process(uid, parent string, pid int, name string) *proc {
	if p := m.byProc[uid]; p != nil {
		return p
	}
	p := &proc{key: "proc " + uid, name: fmt.Sprintf("%s [%d]", name, pid)}
	for p.parent = m.byProc[parent]; p.parent != nil && p.parent.depth >= maxDepth; p.parent = p.parent.parent {
	}
	if p.parent != nil {
		p.depth = p.parent.depth + 1
	}
	m.byProc[uid], m.procs = p, append(m.procs, p)
	return p
}

// record adds a record.
func (m *model) record(r audit.Record, at int64) {
	switch {
	case r.Lifecycle != nil:
		m.lifecycle(r, at)
	case r.Exec != nil:
		m.exec(r, at)
	case r.Exit != nil:
		m.exit(r, at)
	case r.File != nil:
		m.file(r, at)
	case r.Flow != nil && r.Flow.State == audit.FlowAttempt:
		m.attempt(r, at)
	case r.Flow != nil:
		m.flow(r, at)
	case r.DNS != nil:
		m.dns(r, at)
	case r.HTTP != nil:
		m.http(r, at)
	case r.LLM != nil:
		m.llm(r, at)
	case r.Secret != nil:
		m.secret(r, at)
	case r.VM != nil:
		m.vm(r, at)
	case r.Output != nil:
		m.stream(r, at)
	default:
		m.rest(r, at)
	}
}

func (m *model) stream(r audit.Record, at int64) {
	name := r.Output.Stream
	if r.Step != "" {
		name += " of " + r.Step
	}
	if _, ok := m.output[name]; !ok {
		m.streams = append(m.streams, name)
	}
	m.output[name] = append(m.output[name], sample{at, max(r.Output.Offset+int64(len(r.Output.Text)), 0)})
}

func (m *model) rest(r audit.Record, at int64) {
	switch {
	case r.Policy != nil:
		e := m.of(r, laneSandbox, "", at, fmt.Sprintf("policy, generation %d", r.Policy.Generation))
		e.say("digest", r.Policy.Digest)
	case r.Gap != nil:
		g := r.Gap
		e := m.of(r, laneFindings, "", at, "gap: "+string(g.Stage)+" "+g.What)
		e.say("cause", g.Cause)
		e.count("events lost", int64(min(g.Count, 1<<62)))
		e.count("bytes lost", g.Bytes)
	case r.Finding != nil:
		f := r.Finding
		e := m.of(r, laneFindings, "", at, "finding: "+string(f.Rule))
		e.say("detail", f.Detail)
		e.say("secret", f.Secret)
		e.say("action", f.Action)
		if f.Seq != 0 {
			m.arrowFrom(f.Seq, e)
		}
	case r.Probe != nil:
		e := m.of(r, laneFindings, "", at, "probe: "+r.Probe.Name)
		e.say("blocked", fmt.Sprint(r.Probe.Blocked))
		e.say("detail", string(r.Probe.Detail))
	case r.Inbound != nil:
		c := r.Inbound
		e := m.of(r, laneSandbox, "", at, fmt.Sprintf("%s connection to port %d", c.Op, c.Port))
		e.say("who", c.Who)
		e.say("via", c.Via)
		e.say("reason", c.Reason)
		e.count("bytes in", c.BytesIn)
		e.count("bytes out", c.BytesOut)
	case r.Copy != nil:
		c := r.Copy
		e := m.of(r, laneSandbox, "", at, "copy "+c.Direction+" "+string(c.Dir))
		e.count("files", max(c.Count, int64(len(c.Files))))
		e.count("bytes", c.Bytes)
		e.say("root", c.Root)
		e.say("reason", c.Reason)
	case r.Access != nil:
		a := r.Access
		e := m.of(r, laneAccess, "", at, a.Action+" "+string(a.About))
		e.say("who", a.Who)
		e.say("verdict", string(a.Verdict))
		e.say("route", a.Route)
		e.say("reason", a.Reason)
	case r.Note != nil:
		e := m.of(r, laneAccess, "", at, "note on "+r.Note.About)
		e.say("who", r.Note.Who)
		e.say("text", string(r.Note.Text))
		e.say("tags", strings.Join(r.Note.Tags, " "))
		e.say("withdraws", r.Note.Withdraws)
	default:
		m.of(r, laneFindings, "", at, "record of kind "+wire.Legible(string(r.Kind), maxName))
	}
}

// until returns the duration of an event that has an expiry time.
func until(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
