package redteam

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
)

// settle is the time in which packets that are in flight at the end of a scene are observed.
const settle = 300 * time.Millisecond

// judge determines the outcome of a probe in a run. cut is the time by which open flows had to end, zero if they may
// stay open.
func (t *trial) judge(p Probe, said *report, run string, records []audit.Record, cut time.Time) {
	o := Outcome{Probe: p, Run: run}
	b := &about{Probe: &p, records: records}
	if said != nil {
		b.said = *said
	}
	b.gather()
	through := t.through(p, b.said, cut)
	switch {
	case through != "":
		o.Detail = through
	case said == nil && p.task != nil && p.scene != crash:
		o.Detail = "the script did not report on the probe"
	case said != nil && said.Stage == "script":
		o.Detail = "the probe could not be made: " + said.Error
	default:
		o.Blocked = true
	}
	if p.Control { // a control must succeed: its check reports whether it did
		o.Blocked = through != "" || said == nil
	}
	if r := b.find(); r != nil {
		o.Recorded, o.Seq = true, r.Seq
		o.Detail = strings.TrimPrefix(o.Detail+"; "+explain(r), "; ")
	} else {
		o.Detail = strings.TrimPrefix(o.Detail+"; no record accounts for it: "+b.said.Stage+" "+b.said.Error, "; ")
	}
	t.outcomes = append(t.outcomes, o)
}

// through describes the evidence that a probe got through, "" if there is none.
func (t *trial) through(p Probe, said report, cut time.Time) string {
	if s := t.watch.sightings(p); len(s) > 0 && p.scene != outside {
		return "seen " + s[0].String()
	}
	for _, q := range t.net.Queries() {
		if !strings.Contains(q.Name, p.token) {
			continue
		}
		if p.allowed < asks {
			return "the query reached the network's resolver: " + q.Name + " " + q.Type
		}
		if i := slices.IndexFunc(q.Options, func(o string) bool {
			return slices.ContainsFunc(optionData, func(d string) bool { return strings.Contains(o, d) })
		}); i >= 0 {
			return "the network's resolver received: " + q.Options[i]
		}
	}
	if text := t.watch.reached(p, cut); text != "" {
		return text
	}
	if text := said.escaped(p.token, p.allowed); text != "" {
		return text
	}
	if !cut.IsZero() && said.ID != "" && said.Error == "" {
		return "the flow continued"
	}
	if p.outer != nil {
		if text := p.outer(t, p, said); text != "" {
			return text
		}
	}
	if p.check != nil {
		return p.check(said)
	}
	return ""
}

// late corrects the outcomes of probes whose packets were observed only after the end of their scene.
func (t *trial) late() {
	for i := range t.outcomes {
		o := &t.outcomes[i]
		if s := t.watch.sightings(o.Probe); o.Blocked && len(s) > 0 {
			o.Blocked, o.Detail = false, "seen late "+s[0].String()
		}
	}
}

// unexplained adds an outcome for sightings that belong to no probe, and for packets that the watchers missed.
func (t *trial) unexplained(list []Probe) {
	o := Outcome{Probe: Probe{ID: "unexplained", Title: "observations outside the sandbox that belong to no probe", Bypass: Positive}, Blocked: true, Recorded: true}
	for _, s := range t.net.Seen() {
		if !slices.ContainsFunc(list, func(p Probe) bool { return t.watch.made(&p, s) }) {
			o.Blocked = false
			o.Detail = strings.TrimPrefix(o.Detail+"; "+s.String(), "; ")
		}
	}
	if n := t.net.Lost(); n > 0 {
		o.Blocked = false
		o.Detail = fmt.Sprintf("the watchers missed %d packets; %s", n, o.Detail)
	}
	o.Detail = o.Detail[:min(len(o.Detail), 1000)]
	t.outcomes = append(t.outcomes, o)
}
