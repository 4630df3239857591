package redact

import "slices"

// Hit is a piece of text that a Detector takes for a secret.
type Hit struct {
	Start, End int    // offsets into the text
	Rule       string // id of the rule, as it stands in the marker
}

// Detector finds secrets that were not added to the Redactor, as far as it can: tier 2, without a guarantee. A hit's
// marker is [REDACTED:rule:tag], with the tag that the same bytes would have as an added value. A Detector is safe for
// concurrent use. It sees text with the values already masked; a marker in it is not masked again.
type Detector interface {
	// Find adds the hits in text to dst, sorted and not overlapping.
	Find(dst []Hit, text []byte) []Hit
	// Reach is the most bytes that a match and the keywords it needs span.
	Reach() int
	// Digest identifies the detector's rules.
	Digest() string
}

// detect returns what the detectors find in t.
func (r *Redactor) detect(t []byte) (hits []Hit) {
	for _, d := range r.detectors {
		hits = mergeHits(hits, d.Find(nil, t))
	}
	return hits
}

// mergeHits adds those of b that do not overlap with a.
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

// minHit is the least length of what is left of a hit beside a marker that is masked.
const minHit = 8

// maskHit masks text but the markers in it.
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
