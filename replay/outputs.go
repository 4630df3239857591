package replay

import (
	"time"

	"github.com/custody-project/custody/audit"
)

// Piece is a piece of what a step wrote, as it was recorded.
type Piece struct {
	Seq    uint64     `json:"seq"`
	At     float64    `json:"at"` // milliseconds since the run began
	Time   time.Time  `json:"time"`
	Step   string     `json:"step"`
	Stream string     `json:"stream"`
	Offset int64      `json:"offset"`
	Text   audit.Text `json:"text"`
}

// Output is what the steps of a run wrote.
type Output struct{ story *Story }

// Output returns the index of what the run's steps wrote.
func (s *Story) Output() Output { return Output{s} }

// Pieces returns up to limit pieces of output behind the record after. limit 0 means all.
func (x Output) Pieces(after uint64, limit int) []Piece {
	defer x.story.read()()
	r := x.story.records
	list := []Piece{}
	if after+1 == 0 {
		return list
	}
	for i := r.from(after + 1); i < len(r.moments) && (limit <= 0 || len(list) < limit); i++ {
		m := &r.moments[i]
		if o, is := m.what.(*audit.Output); is && m.host() {
			list = append(list, Piece{Seq: m.seq, At: r.ms(m.at), Time: m.time(), Step: m.step, Stream: o.Stream, Offset: o.Offset, Text: o.Text})
		}
	}
	return list
}
