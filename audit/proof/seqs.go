package proof

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseSelection returns the selection of the given seqs; each text is one seq or a range such as 40-60.
func ParseSelection(texts []string) (*Selection, error) {
	type span struct{ first, last uint64 }
	var spans []span
	for _, text := range texts {
		from, to, isSpan := strings.Cut(text, "-")
		if !isSpan {
			to = from
		}
		first, err := strconv.ParseUint(from, 10, 63)
		last, err2 := strconv.ParseUint(to, 10, 63)
		if err != nil || err2 != nil || first > last {
			return nil, fmt.Errorf("%.40q: write seqs such as 40-60,71", text)
		}
		spans = append(spans, span{first, last})
	}
	shows := func(seq uint64) bool {
		for _, s := range spans {
			if s.first <= seq && seq <= s.last {
				return true
			}
		}
		return false
	}
	return &Selection{Shows: shows, What: "seq " + strings.Join(texts, ", ")}, nil
}
