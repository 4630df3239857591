package redact

import (
	"cmp"
	"slices"
)

// match is the position of a value in a text.
type match struct {
	start, end int
	value      *value
}

// scanner finds matches in a text that may arrive in pieces.
type scanner struct {
	rules   *ruleset
	window  uint64      // the last symbols
	at      int         // next byte to process
	pending []candidate // candidates that need more text
	found   []match
	rows    joiner
	prev    byte // the byte before the text
}

func newScanner(rules *ruleset) scanner { return scannerAfter(rules, '\n') }

// scannerAfter returns a scanner of a text that follows a byte that has been released.
func scannerAfter(rules *ruleset, prev byte) scanner {
	s := scanner{rules: rules, rows: joiner{above: -1}, prev: prev}
	if prev != '\n' {
		s.rows.line = -1
	}
	return s
}

func (s *scanner) passage(t []byte) passage { return passage{t, s.prev} }

// scan processes the new part of t.
func (s *scanner) scan(t []byte) {
	waiting := s.pending
	s.pending = s.pending[:0]
	for _, c := range waiting {
		s.try(t, c)
	}
	if s.rules.index == nil {
		s.at = len(t)
		return
	}
	for s.at < len(t) {
		i, window, ok := s.rules.index.next(t, s.at, s.window)
		s.at, s.window = i, window
		if ok {
			s.open(t)
		}
	}
	s.joinRows(t, false)
}

// open tries the forms that begin with the window's symbols.
func (s *scanner) open(t []byte) {
	s.rules.index.entries(s.window, func(e *entry) {
		if at, got := back(t, s.at, e.symbols()); got == e.symbols() {
			s.read(t, e, at)
		}
	})
}

// read tries the form of e at that position.
func (s *scanner) read(t []byte, e *entry, at int) {
	if c, ok := s.rules.candidate(e, s.passage(t), at); ok {
		s.try(t, c)
	}
}

func (s *scanner) try(t []byte, c candidate) {
	switch c.read(t) {
	case found:
		s.add(c)
	case reading:
		s.pending = append(s.pending, c)
	}
}

func (s *scanner) add(c candidate) {
	s.found = append(s.found, match{c.first, c.end, c.value})
}

// end settles the candidates that need more text. With cut the text was truncated, and may end with the beginning of a
// value.
func (s *scanner) end(t []byte, cut bool) {
	if s.rules.index != nil {
		s.joinRows(t, true)
	}
	for i := range s.pending {
		c := s.pending[i]
		switch {
		case c.settle() == found:
			s.add(c)
		case cut && c.form.inner != mark:
			s.found = append(s.found, match{c.first, len(t), c.value})
		}
	}
	s.pending = nil
	if cut {
		s.partial(t)
	}
}

// minCut is the number of symbols at a cut that count as the beginning of a value.
const minCut = 4

// partial adds the longest beginning of a form at the end of t that is shorter than a window, except for values that
// were encoded twice: few symbols carry at most two of their bytes, and many words begin like one of so many forms.
func (s *scanner) partial(t []byte) {
	if s.rules.index == nil {
		return
	}
	for n := min(s.rules.index.beginning(s.window), windowSize-1); n >= minCut; n-- {
		start, got := back(t, len(t), n)
		if got < n {
			continue
		}
		if e := s.rules.index.beginsWith(s.window&(1<<(8*n)-1), n); e != nil {
			s.found = append(s.found, match{e.form.unpack().begin(s.passage(t), start), len(t), s.rules.values[e.value]})
			return
		}
	}
}

// beginsWith returns an entry of a form of one encoding whose key has the prefix.
func (x *index) beginsWith(key uint64, n int) *entry {
	for _, s := range x.shelves {
		for i := range s.entries {
			e := &s.entries[i]
			if have := e.symbols(); e.form.unpack().single && have > n && e.key>>(8*(have-n)) == key {
				return e
			}
		}
	}
	return nil
}

// hold returns the position from which on t, all of which has been scanned, may belong to a match that has not been
// found yet.
func (s *scanner) hold(t []byte) int {
	hold := len(t)
	if s.rules.index == nil {
		return hold
	}
	for n := s.rules.index.beginning(s.window); n > 0; n-- {
		if start, got := back(t, len(t), n); got == n {
			hold = start
			break
		}
	}
	word, lead := s.passage(t).hold(hold), s.rules.index.lead
	hold = min(form{lead: lead}.dots(t, hold), form{lead: lead, outer: u16le}.dots(t, hold))
	hold = min(digitsBefore(t, hold, maxLeft), word, s.rows.hold(t))
	for _, c := range s.pending {
		hold = min(hold, c.first)
	}
	return hold
}

// forget continues with a text without the first n bytes of t.
func (s *scanner) forget(t []byte, n int) {
	s.prev = s.passage(t).before(n)
	s.at -= n
	s.rows.forget(n)
	for i := range s.pending {
		c := &s.pending[i]
		c.first -= n
		c.start -= n
		c.at -= n
		c.end -= n
	}
	for i := range s.found {
		s.found[i].start -= n
		s.found[i].end -= n
	}
}

// take removes and returns the matches that begin before limit, in order.
func (s *scanner) take(limit int) []match {
	slices.SortFunc(s.found, func(a, b match) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end), cmp.Compare(a.value.id, b.value.id))
	})
	n := 0
	for n < len(s.found) && s.found[n].start < limit {
		n++
	}
	taken := slices.Clone(s.found[:n])
	s.found = s.found[:copy(s.found, s.found[n:])]
	return taken
}

// span is a piece of text that a value's marker replaces.
type span = match

// join adds m, which must not begin before those added earlier, to spans, which stay disjoint and in order. Covered
// spans are removed. Overlapping spans of one value are merged; of two values the first keeps the overlap.
func join(spans []span, m match) []span {
	if len(spans) > 0 {
		switch top := &spans[len(spans)-1]; {
		case m.end <= top.end:
			return spans
		case m.start < top.end && m.value == top.value:
			top.end = m.end
			return spans
		case m.start < top.end:
			m.start = top.end
		}
	}
	return append(spans, m)
}
