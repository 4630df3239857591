package replay

import (
	"time"

	"github.com/custody-project/custody/audit"
)

// Changes is what happened between two instants.
type Changes struct {
	Run      string        `json:"run"`
	From     time.Time     `json:"from"`
	To       time.Time     `json:"to"`
	Events   uint64        `json:"events"`
	Started  []Proc        `json:"started"`
	Ended    []Proc        `json:"ended"`
	Files    []FileHistory `json:"files"` // with the changes in between only
	Opened   []Connection  `json:"opened"`
	Closed   []Connection  `json:"closed"`
	Denied   []Connection  `json:"denied"`
	Minted   []Credential  `json:"minted"`
	Over     []Credential  `json:"over"`
	Calls    []Call        `json:"calls"`
	Findings []Finding     `json:"findings"`
	Gaps     []GapAt       `json:"gaps"`
	Output   int64         `json:"output_bytes"`
}

// Changes returns what happened after from, up to and including to: the records that StateAt(to)
// includes and StateAt(from) does not. If to is before from, it returns none.
func (s *Story) Changes(from, to time.Time) Changes {
	defer s.read()()
	begin, end := nanos(from), nanos(to)
	r, d := s.records, s.derived
	c := Changes{Run: r.run.ID, From: from.UTC(), To: to.UTC(), Started: []Proc{}, Ended: []Proc{}, Opened: []Connection{}, Closed: []Connection{},
		Denied: []Connection{}, Minted: []Credential{}, Over: []Credential{}, Calls: []Call{}, Findings: []Finding{}, Gaps: []GapAt{}}
	in := func(t time.Time) bool { at := nanos(t); return at > begin && at <= end }
	ended := func(t *time.Time) bool { return t != nil && in(*t) }
	between := []moment{}
	for i := range r.moments {
		m := &r.moments[i]
		if m.at <= begin || m.at > end {
			continue
		}
		c.Events++
		switch p := m.what.(type) {
		case *audit.File:
			between = append(between, *m)
		case *audit.Output:
			if m.host() {
				c.Output += int64(len(p.Text))
			}
		case *audit.Gap:
			c.Gaps = append(c.Gaps, gapAt(m, p))
		}
	}
	c.Files = makeFiles(r, between, d.order())
	for _, p := range d.procs() {
		c.Started, c.Ended = take(c.Started, p, in(p.Start)), take(c.Ended, p, ended(p.End))
	}
	for _, n := range d.connections() {
		if n.Verdict == audit.Deny && n.State != string(audit.FlowRevoke) {
			c.Denied = take(c.Denied, n, in(n.Start))
			continue
		}
		c.Opened, c.Closed = take(c.Opened, n, in(n.Start)), take(c.Closed, n, n.Proto != "dns" && ended(n.End))
	}
	for _, k := range d.credentials() {
		c.Minted, c.Over = take(c.Minted, k, in(k.Start)), take(c.Over, k, ended(k.End))
	}
	for _, l := range d.calls() {
		c.Calls = take(c.Calls, l, in(l.End))
	}
	for _, f := range d.findings() {
		c.Findings = take(c.Findings, f, in(f.Time))
	}
	return c
}

func take[T any](list []T, item T, is bool) []T {
	if is {
		return append(list, item)
	}
	return list
}
