package replay

import (
	"cmp"
	"slices"
	"sort"
)

// span is a stretch of seqs, both ends included.
type span struct{ first, last uint64 }

func (s span) len() uint64 { return s.last - s.first + 1 }

// spans is a set of seqs: ordered stretches that neither overlap nor touch.
type spans struct{ list []span }

// add puts s into the set. In order of first it costs nothing to speak of.
func (x *spans) add(s span) {
	from, _ := slices.BinarySearchFunc(x.list, s.first, func(a span, seq uint64) int {
		return cmp.Compare(a.last, max(seq, 1)-1) // what ends just before s touches it
	})
	to := from
	for to < len(x.list) && (s.last == ^uint64(0) || x.list[to].first <= s.last+1) {
		s = span{min(s.first, x.list[to].first), max(s.last, x.list[to].last)}
		to++
	}
	x.list = slices.Replace(x.list, from, to, s)
}

// beyond returns what of s is not in the set.
func (x *spans) beyond(s span) []span {
	var left []span
	for i := sort.Search(len(x.list), func(i int) bool { return x.list[i].last >= s.first }); i < len(x.list) && x.list[i].first <= s.last; i++ {
		in := x.list[i]
		if in.first > s.first {
			left = append(left, span{s.first, in.first - 1})
		}
		if in.last >= s.last {
			return left
		}
		s.first = in.last + 1
	}
	return append(left, s)
}
