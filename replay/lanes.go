package replay

import (
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
	r, d := s.records, s.derived
	end, over := r.ended()
	end = max(end, r.last)
	begin, until := nanos(from), nanos(to)
	if begin >= until {
		begin, until = min(r.began, end), max(end, r.began+1)
	}
	w := window{r: r, from: begin, to: until, columns: min(max(columns, 1), maxColumns)}
	w.width = max(1, (float64(until)-float64(begin))/float64(w.columns))
	l := Lanes{Run: r.run.ID, Began: instantOf(r.began), From: r.ms(begin), To: r.ms(until), End: r.ms(end), Live: !over,
		Total: uint64(len(r.moments)), Lanes: []Lane{}}
	for i, name := range laneNames() {
		l.Lanes = append(l.Lanes, w.lane(name, d.lanes()[i]))
	}
	gaps, freezes := d.stops()
	l.Gaps, l.Freezes = w.holes(gaps), w.holes(freezes)
	return l
}

// window is a picture in the making.
type window struct {
	r        *records
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
			c.At, c.Width = w.r.ms(w.from)+float64(i)*w.width/1e6, w.width/1e6
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
	it := Item{Seq: b.seq, At: w.r.ms(b.at), Open: b.open, Label: b.label, Kind: audit.KindFinding, Observer: b.observer, Mood: b.mood.String(), Row: row}
	if b.end > b.at {
		it.End = w.r.ms(b.end)
	}
	if b.until != 0 {
		it.Until = w.r.ms(b.until)
	}
	if b.place >= 0 {
		m := &w.r.moments[b.place]
		it.Kind = m.kind
		if it.Label == "" {
			it.Label = m.label()
		}
	}
	return it
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
			list = append(list, Hole{Seq: g.seq, From: w.r.ms(g.from), To: w.r.ms(g.to), What: g.what, Lost: g.lost, Bytes: g.bytes, Observer: g.observer})
			continue
		}
		h := &list[len(list)-1]
		merged++
		h.To, h.Lost, h.Bytes = max(h.To, w.r.ms(g.to)), h.Lost+g.lost, h.Bytes+g.bytes
		h.What = fmt.Sprintf("%d gaps, the first: %s", merged, all[i-merged+1].what)
	}
	return list
}
