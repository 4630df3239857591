package replay

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/custody-project/custody/audit"
)

// stop is a Hole with its instants as they are.
type stop struct {
	from, to int64
	seq      uint64
	what     string
	lost     uint64
	bytes    int64
	observer audit.Observer
}

// makeStops returns what is known of gaps, and when the run was frozen, by time.
func makeStops(r *records) (gaps, freezes []stop) {
	frozen := -1
	for i := range r.moments {
		m := &r.moments[i]
		switch p := m.what.(type) {
		case *audit.Gap:
			g := stop{from: m.at, to: m.at, seq: m.seq, what: string(p.Stage) + ": " + p.Cause, lost: p.Count, bytes: p.Bytes, observer: m.observer}
			if m.host() && p.First > 0 && p.Last >= p.First {
				g.from, g.to = r.around(span{p.First, p.Last})
			}
			gaps = append(gaps, g)
		case *audit.VM:
			switch {
			case !m.host():
			case p.Op == "freeze" && frozen < 0:
				frozen = len(freezes)
				freezes = append(freezes, stop{from: m.at, to: max(m.at, r.last), seq: m.seq, what: p.Reason, observer: m.observer})
			case p.Op == "thaw" && frozen >= 0:
				freezes[frozen].to = max(m.at, freezes[frozen].from)
				frozen = -1
			}
		}
		if m.state != readable {
			what := map[reading]string{unreadable: "the record cannot be read", erased: "the record was erased"}[m.state]
			gaps = append(gaps, stop{from: m.at, to: m.at, seq: m.seq, what: what, lost: 1, observer: audit.Host})
		}
	}
	for _, h := range r.holes {
		for _, missing := range r.known.undeclared(h.span) {
			g := stop{what: fmt.Sprintf("records %d to %d are not in the store, and no gap is declared for them", missing.first, missing.last), lost: missing.len(), observer: audit.Host}
			g.from, g.to = r.around(missing)
			gaps = append(gaps, g)
		}
	}
	byTime := func(a, b stop) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.seq, b.seq)) }
	slices.SortStableFunc(gaps, byTime)
	slices.SortStableFunc(freezes, byTime)
	return gaps, freezes
}
