package replay

import (
	"cmp"
	"slices"
	"time"

	"github.com/custody-project/custody/audit"
)

// bars are the lanes of a run in the making.
type bars struct {
	r     *records
	last  int64 // the end of the known records
	lanes []laneFull
}

// makeLanes returns all that each lane could show.
func makeLanes(r *records, d *derived) []laneFull {
	end, _ := r.ended()
	l := bars{r: r, last: max(end, r.last), lanes: make([]laneFull, len(laneNames()))}
	l.processes(d.procs())
	l.steps(stepsAt(r.moments, maxNanos))
	l.connections(d.connections())
	l.calls(d.calls())
	l.credentials(d.credentials())
	l.findings(d.findings())
	l.points()
	for _, lane := range l.lanes {
		slices.SortStableFunc(lane, func(a, b bar) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq)) })
	}
	return l.lanes
}

func (l *bars) add(lane int, b bar) { l.lanes[lane] = append(l.lanes[lane], b) }

func (l *bars) calls(list []Call) {
	for _, c := range list {
		b := l.of(c.Seq, c.Start, &c.End)
		b.mood = okMood
		if c.LLM.Status < 200 || c.LLM.Status > 299 || c.LLM.Incomplete != "" {
			b.mood = failMood
		}
		l.add(laneLLM, b)
	}
}

func (l *bars) credentials(list []Credential) {
	for _, c := range list {
		b := l.of(c.Seq, c.Start, c.End)
		b.label, b.mood = audit.Text(cmp.Or(c.Name, "the step's token")), okMood
		if !c.Expires.IsZero() {
			b.until = nanos(c.Expires)
		}
		l.add(laneSecrets, b)
	}
}

func (l *bars) findings(list []Finding) {
	for _, f := range list {
		b := bar{place: -1, at: nanos(f.Time), seq: f.Seq, mood: findingMood, observer: audit.Host, label: shorten(string(f.Rule))}
		if f.Seq == 0 {
			b.seq = f.Evidence[0]
		}
		b.end = b.at
		l.add(laneFindings, b)
	}
}

// points adds the records that are points.
func (l *bars) points() {
	for i := range l.r.moments {
		m := &l.r.moments[i]
		if lane, mood, ok := pointOf(m); ok {
			l.add(lane, bar{place: int32(i), at: m.at, end: m.at, seq: m.seq, mood: mood, observer: m.observer})
		}
	}
}

// pointOf reports where a record is drawn that is a point.
func pointOf(m *moment) (lane int, mood mood, ok bool) {
	switch p := m.what.(type) {
	case *audit.File:
		return laneFiles, plainMood, true
	case *audit.DNS:
		return laneDNS, verdictMood(p.Verdict), m.host()
	case *audit.HTTP:
		return laneFlows, verdictMood(p.Verdict), m.host() && p.Verdict == audit.Deny
	case *audit.Output:
		return laneOutput, plainMood, m.host()
	case *audit.Secret:
		switch p.Op {
		case audit.SecretUse:
			return laneSecrets, plainMood, m.host()
		case audit.SecretRefuse:
			return laneSecrets, denyMood, m.host()
		}
	case *audit.Policy, *audit.VM, *audit.Copy, *audit.Probe, *audit.Access:
		return laneSteps, plainMood, m.host()
	}
	return 0, plainMood, false
}

func verdictMood(v audit.Verdict) mood {
	if v == audit.Allow {
		return okMood
	}
	return denyMood
}

// of returns the bar that begins with the record at seq; without an end it lasts to the end of the known records.
func (l *bars) of(seq uint64, start time.Time, end *time.Time) bar {
	place := l.r.places[seq]
	b := bar{place: place, at: nanos(start), seq: seq, observer: l.r.moments[place].observer}
	if end == nil {
		b.end, b.open = max(l.last, b.at), true
	} else {
		b.end = max(nanos(*end), b.at)
	}
	return b
}

func (l *bars) processes(list []Proc) {
	for i := range list {
		p := &list[i]
		b := l.of(p.Seq, p.Start, p.End)
		switch {
		case p.Code == nil:
		case *p.Code == 0:
			b.mood = okMood
		default:
			b.mood = failMood
		}
		l.add(laneExec, b)
	}
}

func (l *bars) connections(list []Connection) {
	for i := range list {
		if c := &list[i]; c.Proto != "dns" {
			b := l.of(c.Seq, c.Start, c.End)
			b.mood = connectionMood(c)
			l.add(laneFlows, b)
		}
	}
}

func connectionMood(c *Connection) mood {
	switch {
	case c.Unclaimed || c.Unseen:
		return findingMood
	case c.State == string(audit.FlowAttempt):
		return claimMood
	case c.State == string(audit.FlowRevoke):
		return revokeMood
	case c.Verdict == audit.Deny:
		return denyMood
	}
	return okMood
}

func (l *bars) steps(list []StepState) {
	for _, st := range list {
		b := l.of(st.Seq, st.Start, st.End)
		b.label = shorten(st.Name)
		switch {
		case st.End == nil:
		case st.ExitCode != nil && *st.ExitCode == 0:
			b.mood = okMood
		default:
			b.mood = failMood
		}
		l.add(laneSteps, b)
	}
}
