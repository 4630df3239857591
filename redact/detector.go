package redact

import "slices"

// Hit is a piece of text that a Detector considers a secret.
type Hit struct {
	Start, End int    // offsets into the text
	Rule       string // id of the rule, as in the marker
}

// Detector finds secrets that were not added to the Redactor, without a guarantee (tier 2). A hit's marker is
// [REDACTED:rule:tag], with the tag that the same bytes would have as an added value. A Detector must be safe for
// concurrent use. It receives text in which values are masked; a marker in it is not masked again.
type Detector interface {
	// Find appends the hits in text to dst, sorted and not overlapping.
	Find(dst []Hit, text []byte) []Hit
	// Reach returns the maximum length of a match together with the keywords that it needs.
	Reach() int
	// Digest identifies the detector's rules.
	Digest() string
}

// detect returns the hits of the detectors in t.
func (r *Redactor) detect(t []byte) (hits []Hit) {
	for _, d := range r.detectors {
		hits = mergeHits(hits, d.Find(nil, t))
	}
	return hits
}

// mergeHits adds the hits of b that do not overlap with a.
func mergeHits(a, b []Hit) []Hit {
	if len(a) == 0 {
		return b
	}
	out := slices.Clone(a)
	for _, h := range b {
		if !slices.ContainsFunc(a, func(o Hit) bool { return o.Start < h.End && h.Start < o.End }) {
			out = append(out, h)
		}
	}
	slices.SortFunc(out, func(a, b Hit) int { return a.Start - b.Start })
	return out
}

// replaceHits returns t with markers in place of hits.
func (r *Redactor) replaceHits(t []byte, hits []Hit) []byte {
	out := make([]byte, 0, len(t)+64)
	at := 0
	for _, h := range hits {
		out = append(out, t[at:h.Start]...)
		out = r.maskHit(out, t[h.Start:h.End], h.Rule)
		at = h.End
	}
	return append(out, t[at:]...)
}

// minHit is the minimum length of the rest of a hit beside a marker that is masked.
const minHit = 8

// maskHit masks text except for the markers in it.
func (r *Redactor) maskHit(out, text []byte, rule string) []byte {
	at, beside := 0, false
	put := func(end int) {
		if piece := text[at:end]; len(piece) < minHit && beside {
			out = append(out, piece...)
		} else {
			out = append(out, marker(rule, r.sum(piece))...)
		}
	}
	for i := range text {
		if n, _ := markerLen(text[i:]); i >= at && n > 0 {
			beside = true
			if i > at {
				put(i)
			}
			out = append(out, text[i:i+n]...)
			at = i + n
		}
	}
	if at < len(text) {
		put(len(text))
	}
	return out
}
