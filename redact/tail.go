package redact

import (
	"bytes"
	"slices"
)

// tail is the second part of a Stream: it applies the detectors to the text that the first part releases. A Follower
// decides what must be held back; for other detectors the last line is held back until it is complete, or longer than a
// match can be.
//
//	released, context  | to be searched  |
//	-------------------+-----------------+
//	text               from           len(text)
type tail struct {
	redactor *Redactor
	text     []byte
	from     int
}

// write processes the next piece and returns what can be released, all of it at the end.
func (t *tail) write(p []byte, end bool) []byte {
	if len(t.redactor.detectors) == 0 {
		return p
	}
	t.text = append(t.text, p...)
	hits, open := t.detect(end)
	hits = slices.DeleteFunc(hits, func(h Hit) bool { return h.Start < t.from || h.End > open })
	for i := range hits {
		hits[i].Start -= t.from
		hits[i].End -= t.from
	}
	out := bytes.Clone(t.text[t.from:open])
	if len(hits) > 0 {
		out = t.redactor.replaceHits(out, hits)
	}
	t.keep(open)
	return out
}

// detect returns the hits and the length of the text that is settled.
func (t *tail) detect(end bool) (hits []Hit, open int) {
	open = len(t.text)
	for _, d := range t.redactor.detectors {
		var found []Hit
		upto := len(t.text)
		if f, ok := d.(Follower); ok {
			found, upto = f.Follow(nil, t.text, t.from, end)
		} else {
			if !end {
				upto = t.lines(d)
			}
			found = d.Find(nil, t.text[:upto])
		}
		hits, open = mergeHits(hits, found), min(open, upto)
	}
	return hits, max(open, t.from)
}

// lines returns the start of the last line, unless the line is longer than d's reach.
func (t *tail) lines(d Detector) int {
	begin := max(t.from, bytes.LastIndexByte(t.text, '\n')+1)
	if len(t.text)-begin > d.Reach() {
		return len(t.text)
	}
	return begin
}

// keep removes text that is no longer needed as context.
func (t *tail) keep(open int) {
	reach := 0
	for _, d := range t.redactor.detectors {
		if f, ok := d.(Follower); ok {
			reach = max(reach, f.Before())
			continue
		}
		reach = max(reach, d.Reach())
	}
	drop := max(0, open-reach)
	t.text = t.text[:copy(t.text, t.text[drop:])]
	t.from = open - drop
}
