package redact

import (
	"bytes"
	"slices"
)

// Stream masks values in a text that arrives in pieces, with the same result as
// Bytes on the whole, wherever it is split. It is not safe for concurrent use;
// the Redactor it came from may get values meanwhile, which are masked from the
// bytes on that are still held back.
//
//	              Write: p is appended, scanned up to the last few digits, whose
//	                     right neighbours a match may need
//	 released |  held back                           |
//	----------+---------------+----------------------+-------+
//	          |    ...        | could begin a match  | tail  |  <- p
//	----------+---------------+----------------------+-------+
//	          0              hold                  scanned  len(buf)
//
// Write releases buf[:hold], with markers for the spans that end there. A span
// that reaches further begins before 0 afterwards: its bytes are gone, its
// marker comes when its end is known. What is held is bounded by the longest
// pattern (and the blanks allowed in it), not by the text.
type Stream struct {
	redactor *Redactor
	rules    *ruleset
	buf      []byte
	state    uint32
	scanned  int
	shown    int // how much of buf a Pause has released
	spans    []span
	found    []string
}

// Found returns the names of the values that were masked so far, or whose
// markers were there before, sorted, each once.
func (s *Stream) Found() []string { return s.found }

// Stream returns a Stream at its beginning.
func (r *Redactor) Stream() *Stream {
	return &Stream{redactor: r, rules: r.rules.Load()}
}

// Write takes the next piece of text and returns what can be released of the
// text so far, which may be nothing. The result is p itself while there are no
// values, otherwise memory of its own.
func (s *Stream) Write(p []byte) []byte {
	s.refresh()
	a := s.rules.auto
	if a == nil {
		return p
	}
	s.buf = append(s.buf, p...)
	s.scan(max(a.decided(s.buf), s.scanned))
	return s.release(a.hold(s.buf, s.scanned, s.state))
}

// Flush returns the rest at the end of the stream, after which the Stream is as new.
func (s *Stream) Flush() []byte {
	s.refresh()
	if s.rules.auto == nil {
		return nil
	}
	s.scan(len(s.buf))
	out := s.release(len(s.buf))
	s.state = 0
	return out
}

// FlushCut is Flush for a stream that was cut off, say because its writer was
// killed: like Cut it also masks the beginning of a value at the very end.
func (s *Stream) FlushCut() []byte {
	s.refresh()
	if s.rules.auto != nil {
		s.scan(len(s.buf))
		s.spans = partial(s.rules, s.state, s.buf, s.spans)
	}
	return s.Flush()
}

// Pause returns what can be shown to a person who waits, say for the echo of a
// key: all that is held back but a match, or 4 and more symbols that may begin
// one. The price is that a writer who pauses after 3 symbols of a value gets
// those 3 shown, before the marker that then stands for the whole. Use it for a
// terminal after a moment of silence, not for a stream that goes to a disk.
func (s *Stream) Pause() []byte {
	s.refresh()
	a := s.rules.auto
	if a == nil {
		return nil
	}
	state, found := scan(a, s.state, s.buf, s.scanned, len(s.buf), nil)
	if len(found)+len(s.spans) > 0 {
		return nil
	}
	show := len(s.buf)
	if depth := int(a.nodes[a.node(state)].depth); depth >= minCut {
		show, _ = back(s.buf, show, depth)
		show = digitsBefore(s.buf, show, a.left)
	}
	if show <= s.shown {
		return nil
	}
	out := bytes.Clone(s.buf[s.shown:show])
	s.shown = show
	return out
}

// refresh takes over values added since the last call: what is held is scanned
// again. Only a span whose beginning is gone cannot be found again, and is kept.
func (s *Stream) refresh() {
	now := s.redactor.rules.Load()
	if now == s.rules {
		return
	}
	s.rules, s.state, s.scanned = now, 0, 0
	s.spans = slices.DeleteFunc(s.spans, func(m span) bool { return m.start >= 0 })
}

func (s *Stream) scan(to int) {
	s.state, s.spans = scan(s.rules.auto, s.state, s.buf, s.scanned, to, s.spans)
	s.scanned = to
}

// release returns buf[:hold] masked and forgets it.
func (s *Stream) release(hold int) []byte {
	out, at, done := make([]byte, 0, hold+64), min(s.shown, hold), 0
	for _, m := range s.spans {
		out = append(out, s.buf[at:max(at, min(m.start, hold))]...)
		at = max(at, min(m.end, hold))
		if m.end > hold {
			break
		}
		out = append(out, s.rules.values[m.value].marker...)
		s.found = s.rules.names(s.found, s.spans[done:done+1])
		done++
	}
	out = append(out, s.buf[at:hold]...)
	s.forget(hold, done)
	return out
}

// forget drops n bytes and the first done spans.
func (s *Stream) forget(n, done int) {
	s.buf = s.buf[:copy(s.buf, s.buf[n:])]
	s.scanned -= n
	s.shown = max(0, s.shown-n)
	s.spans = s.spans[:copy(s.spans, s.spans[done:])]
	for i := range s.spans {
		s.spans[i].start -= n
		s.spans[i].end -= n
	}
}

// decided returns up to where t can be scanned: for a match that ends there or
// before, the digits that belong to it on the right are all in t.
func (a *automaton) decided(t []byte) int {
	limit, digits, gap := len(t), 0, 0
	for i := len(t) - 1; i >= 0 && digits < a.right && gap <= maxGap; i-- {
		if isBlank(t[i]) {
			gap++
			continue
		}
		if !isDigit(t[i]) {
			break
		}
		limit, digits, gap = i, digits+1, 0
	}
	return limit
}

// hold returns from where on t may belong to a match that ends after scanned,
// where the automaton has come to state.
func (a *automaton) hold(t []byte, scanned int, state uint32) int {
	depth := int(a.nodes[a.node(state)].depth)
	start, _ := back(t, scanned, depth)
	return digitsBefore(t, start, a.left)
}
