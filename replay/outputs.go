package replay

import (
	"slices"
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

// Outputs returns up to limit pieces of output behind the record after. limit 0 means all.
func (s *Story) Outputs(after uint64, limit int) []Piece {
	defer s.read()()
	list := []Piece{}
	begin, _ := slices.BinarySearchFunc(s.moments, after+1, func(m moment, seq uint64) int {
		switch {
		case m.seq < seq:
			return -1
		case m.seq > seq:
			return 1
		}
		return 0
	})
	if after+1 == 0 {
		return list
	}
	for i := begin; i < len(s.moments) && (limit <= 0 || len(list) < limit); i++ {
		m := &s.moments[i]
		if o, is := m.what.(*audit.Output); is && m.host() {
			list = append(list, Piece{Seq: m.seq, At: s.ms(m.at), Time: m.time(), Step: m.step, Stream: o.Stream, Offset: o.Offset, Text: o.Text})
		}
	}
	return list
}

// ms are the milliseconds from the run's begin to an instant.
func (s *Story) ms(at int64) float64 {
	if d := at - s.began; (d < 0) == (at < s.began) {
		return float64(d) / 1e6
	}
	return (float64(at) - float64(s.began)) / 1e6 // too far apart for an int64
}
