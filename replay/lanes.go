package replay

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/custody-project/custody/audit"
)

// Lanes is a run over time, as much of it as a picture of so many columns can show.
// Instants are milliseconds since Began.
type Lanes struct {
	Run     string    `json:"run"`
	Began   time.Time `json:"began"`
	From    float64   `json:"from"`
	To      float64   `json:"to"`
	End     float64   `json:"end"`   // of the run, or of what is known of it
	Live    bool      `json:"live"`  // it goes on
	Total   uint64    `json:"total"` // records of the run
	Lanes   []Lane    `json:"lanes"` // always all of them: steps, exec, files, dns, flows, llm, secrets, output, findings
	Gaps    []Hole    `json:"gaps"`
	Freezes []Hole    `json:"freezes"`
}

// Lane is one row of the picture. Where there are more items than columns it has Buckets
// instead of those that are points; what lasts longer than a column stays an item.
type Lane struct {
	Name    string   `json:"name"`
	Total   uint64   `json:"total"` // in the window
	Items   []Item   `json:"items"`
	Buckets []Bucket `json:"buckets"`
}

// Item is something in a lane.
type Item struct {
	Seq      uint64         `json:"seq"`
	At       float64        `json:"at"`
	End      float64        `json:"end,omitempty"`   // 0: it is a point
	Open     bool           `json:"open,omitempty"`  // it had not ended at the end of what is known
	Until    float64        `json:"until,omitempty"` // secrets: when the broker's promise ends
	Label    audit.Text     `json:"label"`
	Kind     audit.Kind     `json:"kind"`
	Observer audit.Observer `json:"observer"`
	// Mood is what colour and shape say: ok, deny, revoke, fail, finding, claim or plain.
	Mood string `json:"mood"`
	Row  int    `json:"row"` // 0 and up: items of one row do not overlap
}

// Bucket is how much there was in one column.
type Bucket struct {
	At       float64 `json:"at"`
	Width    float64 `json:"width"`
	Count    uint64  `json:"count"`
	Denied   uint64  `json:"denied"`
	Findings uint64  `json:"findings"`
	Seq      uint64  `json:"seq"` // of the first
}

// Hole is a stretch of time of which less is known, or in which nothing could happen.
type Hole struct {
	Seq   uint64  `json:"seq"` // 0: no one declared it
	From  float64 `json:"from"`
	To    float64 `json:"to"`
	What  string  `json:"what"`
	Lost  uint64  `json:"lost"`
	Bytes int64   `json:"bytes"`
	// Observer is who observed it.
	Observer audit.Observer `json:"observer"`
}

// The lanes, from top to bottom.
const (
	laneSteps = iota
	laneExec
	laneFiles
	laneDNS
	laneFlows
	laneLLM
	laneSecrets
	laneOutput
	laneFindings
)

// laneNames are the lanes' in order.
func laneNames() []string {
	return []string{"steps", "exec", "files", "dns", "flows", "llm", "secrets", "output", "findings"}
}

const (
	// maxColumns of a picture are drawn.
	maxColumns = 8192
	// maxLong items of a lane that last longer than a column are listed one by one, the longest of them.
	maxLong = 2000
)

// laneFull is all that a lane could show, in order of at.
type laneFull []bar

// bar is an item of a lane, or a point where it ends when it begins.
type bar struct {
	place    int32 // of the moment that it is about, -1: a derived finding
	at, end  int64
	until    int64 // 0: no promise
	seq      uint64
	mood     mood
	open     bool
	observer audit.Observer
	label    audit.Text // empty: the moment's
}

type mood uint8

const (
	plainMood mood = iota
	okMood
	denyMood
	revokeMood
	failMood
	findingMood
	claimMood
)

// String returns the word that Item has.
func (m mood) String() string {
	return [...]string{"plain", "ok", "deny", "revoke", "fail", "finding", "claim"}[m]
}

// Lanes returns the picture of a stretch of time, of the whole run where from is not before to.
func (s *Story) Lanes(from, to time.Time, columns int) Lanes {
	defer s.read()()
	end, over := s.ended()
	end = max(end, s.last)
	begin, until := nanos(from), nanos(to)
	if begin >= until {
		begin, until = min(s.began, end), max(end, s.began+1)
	}
	w := window{s: s, from: begin, to: until, columns: min(max(columns, 1), maxColumns)}
	w.width = max(1, (float64(until)-float64(begin))/float64(w.columns))
	l := Lanes{Run: s.run.ID, Began: instantOf(s.began), From: s.ms(begin), To: s.ms(until), End: s.ms(end), Live: !over,
		Total: uint64(len(s.moments)), Lanes: []Lane{}}
	for i, name := range laneNames() {
		l.Lanes = append(l.Lanes, w.lane(name, s.derived.lanes()[i]))
	}
	gaps, freezes := s.derived.stops()
	l.Gaps, l.Freezes = w.holes(gaps), w.holes(freezes)
	return l
}

// window is a picture in the making.
type window struct {
	s        *Story
	from, to int64
	columns  int
	width    float64 // of a column in nanoseconds
}

func (w *window) lane(name string, all laneFull) Lane {
	l := Lane{Name: name, Items: []Item{}, Buckets: []Bucket{}}
	var shown []*bar
	for i := range all {
		b := &all[i]
		if b.at > w.to {
			break
		}
		if max(b.end, b.at) >= w.from {
			l.Total++
			shown = append(shown, b)
		}
	}
	if len(shown) > w.columns {
		shown, l.Buckets = w.bucket(shown)
	}
	l.Items = w.pack(shown)
	return l
}

// bucket counts what is too short to be drawn, and returns the rest.
func (w *window) bucket(all []*bar) (long []*bar, buckets []Bucket) {
	for _, b := range all {
		if w.length(b) > w.width {
			long = append(long, b)
		}
	}
	least := 0.0
	if len(long) > maxLong {
		lengths := make([]float64, len(long))
		for i := range long {
			lengths[i] = w.length(long[i])
		}
		slices.Sort(lengths)
		least = lengths[len(lengths)-maxLong]
		long = long[:0]
	}
	columns := make([]Bucket, w.columns)
	kept := 0
	for _, b := range all {
		if n := w.length(b); n > w.width && n >= least && kept < maxLong {
			kept++
			if least > 0 {
				long = append(long, b)
			}
			continue
		}
		w.count(&columns[w.column(b.at)], b)
	}
	for i := range columns {
		if c := &columns[i]; c.Count > 0 {
			c.At, c.Width = w.s.ms(w.from)+float64(i)*w.width/1e6, w.width/1e6
			buckets = append(buckets, *c)
		}
	}
	return long, buckets
}

func (w *window) count(c *Bucket, b *bar) {
	if c.Count == 0 {
		c.Seq = b.seq
	}
	c.Count++
	switch b.mood {
	case denyMood, revokeMood:
		c.Denied++
	case findingMood:
		c.Findings++
	}
}

// length is how long a bar is in the window, in nanoseconds.
func (w *window) length(b *bar) float64 { return float64(b.end) - float64(b.at) }

func (w *window) column(at int64) int {
	return min(max(int((float64(at)-float64(w.from))/w.width), 0), w.columns-1)
}

// pack gives each bar the first row in which it overlaps none before it.
func (w *window) pack(all []*bar) []Item {
	items := make([]Item, 0, len(all))
	var ends []float64 // of the rows
	for _, b := range all {
		row := freeRow(ends, float64(b.at))
		if row == len(ends) {
			ends = append(ends, 0)
		}
		ends[row] = max(float64(max(b.end, b.until)), float64(b.at)+w.width)
		items = append(items, w.item(b, row))
	}
	return items
}

func freeRow(ends []float64, at float64) int {
	for row, end := range ends {
		if end <= at {
			return row
		}
	}
	return len(ends)
}

func (w *window) item(b *bar, row int) Item {
	it := Item{Seq: b.seq, At: w.s.ms(b.at), Open: b.open, Label: b.label, Kind: audit.KindFinding, Observer: b.observer, Mood: b.mood.String(), Row: row}
	if b.end > b.at {
		it.End = w.s.ms(b.end)
	}
	if b.until != 0 {
		it.Until = w.s.ms(b.until)
	}
	if b.place >= 0 {
		m := &w.s.moments[b.place]
		it.Kind = m.kind
		if it.Label == "" {
			it.Label = m.label()
		}
	}
	return it
}

func (s *Story) makeLanes() []laneFull {
	lanes := make([]laneFull, len(laneNames()))
	end, _ := s.ended()
	end = max(end, s.last)
	add := func(lane int, b bar) { lanes[lane] = append(lanes[lane], b) }
	s.procBars(end, func(b bar) { add(laneExec, b) })
	s.stepBars(end, func(b bar) { add(laneSteps, b) })
	for _, c := range s.derived.connections() {
		if b := s.connectionBar(&c, end); c.Proto != "dns" {
			add(laneFlows, b)
		}
	}
	for _, c := range s.derived.calls() {
		b := s.barOf(c.Seq, c.Start, &c.End, end)
		b.mood = okMood
		if c.LLM.Status < 200 || c.LLM.Status > 299 || c.LLM.Incomplete != "" {
			b.mood = failMood
		}
		add(laneLLM, b)
	}
	for _, c := range s.derived.credentials() {
		b := s.barOf(c.Seq, c.Start, c.End, end)
		b.label, b.mood = audit.Text(cmp.Or(c.Name, "the step's token")), okMood
		if !c.Expires.IsZero() {
			b.until = nanos(c.Expires)
		}
		add(laneSecrets, b)
	}
	for _, f := range s.derived.findings() {
		b := bar{place: -1, at: nanos(f.Time), seq: f.Seq, mood: findingMood, observer: audit.Host, label: shorten(string(f.Rule))}
		if f.Seq == 0 {
			b.seq = f.Evidence[0]
		}
		b.end = b.at
		add(laneFindings, b)
	}
	for i := range s.moments {
		if lane, mood, ok := pointOf(&s.moments[i]); ok {
			m := &s.moments[i]
			add(lane, bar{place: int32(i), at: m.at, end: m.at, seq: m.seq, mood: mood, observer: m.observer})
		}
	}
	for _, lane := range lanes {
		slices.SortStableFunc(lane, func(a, b bar) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq)) })
	}
	return lanes
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

// barOf is the bar of something that the record at seq began; without an end it lasts to the end of what is known.
func (s *Story) barOf(seq uint64, start time.Time, end *time.Time, last int64) bar {
	place := s.places[seq]
	b := bar{place: place, at: nanos(start), seq: seq, observer: s.moments[place].observer}
	if end == nil {
		b.end, b.open = max(last, b.at), true
	} else {
		b.end = max(nanos(*end), b.at)
	}
	return b
}

func (s *Story) procBars(last int64, add func(bar)) {
	for i := range s.derived.procs() {
		p := &s.derived.procs()[i]
		b := s.barOf(p.Seq, p.Start, p.End, last)
		switch {
		case p.Code == nil:
		case *p.Code == 0:
			b.mood = okMood
		default:
			b.mood = failMood
		}
		add(b)
	}
}

func (s *Story) connectionBar(c *Connection, last int64) bar {
	b := s.barOf(c.Seq, c.Start, c.End, last)
	switch {
	case c.Unclaimed || c.Unseen:
		b.mood = findingMood
	case c.State == string(audit.FlowAttempt):
		b.mood = claimMood
	case c.State == string(audit.FlowRevoke):
		b.mood = revokeMood
	case c.Verdict == audit.Deny:
		b.mood = denyMood
	default:
		b.mood = okMood
	}
	return b
}

func (s *Story) stepBars(last int64, add func(bar)) {
	for _, st := range s.stepsOf(maxNanos) {
		b := s.barOf(st.Seq, st.Start, st.End, last)
		b.label = shorten(st.Name)
		switch {
		case st.End == nil:
		case st.ExitCode != nil && *st.ExitCode == 0:
			b.mood = okMood
		default:
			b.mood = failMood
		}
		add(b)
	}
}

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
func (s *Story) makeStops() (gaps, freezes []stop) {
	frozen := -1
	for i := range s.moments {
		m := &s.moments[i]
		switch p := m.what.(type) {
		case *audit.Gap:
			g := stop{from: m.at, to: m.at, seq: m.seq, what: string(p.Stage) + ": " + p.Cause, lost: p.Count, bytes: p.Bytes, observer: m.observer}
			if m.host() && p.First > 0 && p.Last >= p.First {
				g.from, g.to = s.around(span{p.First, p.Last})
			}
			gaps = append(gaps, g)
		case *audit.VM:
			switch {
			case !m.host():
			case p.Op == "freeze" && frozen < 0:
				frozen = len(freezes)
				freezes = append(freezes, stop{from: m.at, to: max(m.at, s.last), seq: m.seq, what: p.Reason, observer: m.observer})
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
	for _, h := range s.holes {
		for _, missing := range s.known.undeclared(h.span) {
			g := stop{what: fmt.Sprintf("records %d to %d are not in the store, and no gap is declared for them", missing.first, missing.last), lost: missing.len(), observer: audit.Host}
			g.from, g.to = s.around(missing)
			gaps = append(gaps, g)
		}
	}
	byTime := func(a, b stop) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.seq, b.seq)) }
	slices.SortStableFunc(gaps, byTime)
	slices.SortStableFunc(freezes, byTime)
	return gaps, freezes
}

// around returns the times of the records before and behind some that are not there.
func (s *Story) around(missing span) (from, to int64) {
	i, _ := slices.BinarySearchFunc(s.moments, missing.first, func(m moment, seq uint64) int { return cmp.Compare(m.seq, seq) })
	from, to = s.began, s.last
	if i > 0 {
		from = s.moments[i-1].at
	}
	if i < len(s.moments) {
		to = s.moments[i].at
	}
	return min(from, to), max(from, to)
}

// holes are the stops in the window; where one column has several, they are one.
func (w *window) holes(all []stop) []Hole {
	list := []Hole{}
	last, merged := -1, 1
	for i := range all {
		g := &all[i]
		if g.from > w.to || g.to < w.from {
			continue
		}
		if c := w.column(g.from); c != last || len(list) == 0 {
			last, merged = c, 1
			list = append(list, Hole{Seq: g.seq, From: w.s.ms(g.from), To: w.s.ms(g.to), What: g.what, Lost: g.lost, Bytes: g.bytes, Observer: g.observer})
			continue
		}
		h := &list[len(list)-1]
		merged++
		h.To, h.Lost, h.Bytes = max(h.To, w.s.ms(g.to)), h.Lost+g.lost, h.Bytes+g.bytes
		h.What = fmt.Sprintf("%d gaps, the first: %s", merged, all[i-merged+1].what)
	}
	return list
}
