package redact

import "bytes"

// joiner joins consecutive rows of dumps: if a value begins at the end of one row, the next row's address is within its
// first symbols.
//
//	00000010: 6b71 7a6a 7776 6875  kqzjwvhu
//	00000020: 6e74 6572 322d 6875  nter2-hu
//	~~~~ the window is 6875 6e74
type joiner struct {
	line   int  // start of the current line; negative if it has been released
	above  int  // start of the line before if that is a row, else -1
	joined bool // the start of line was processed
	seen   int  // position up to which there is no further line
}

// joinRows processes the starts of the lines of t that have not been processed.
func (s *scanner) joinRows(t []byte, end bool) {
	for {
		j := &s.rows
		if !j.joined && j.above >= 0 && !s.joinRow(t, end) {
			return
		}
		j.joined = true
		from := max(j.line, j.seen)
		n := bytes.IndexByte(t[from:], '\n')
		if j.seen = len(t); n < 0 {
			return
		}
		above := -1
		if j.line >= 0 && from+n-j.line <= maxLine {
			if _, ok, _ := address(t[j.line : from+n]); ok {
				above = j.line
			}
		}
		*j = joiner{line: from + n + 1, above: above, seen: from + n + 1}
	}
}

// joinRow searches for values that begin in the row above, and reports whether enough of this row has arrived.
func (s *scanner) joinRow(t []byte, end bool) bool {
	line := t[s.rows.line:]
	if n := bytes.IndexByte(line, '\n'); n >= 0 {
		line, end = line[:n], true
	}
	begin, ok, open := address(line)
	if open && !end {
		return false
	}
	if !ok {
		return true
	}
	var next []int // the positions of the symbols
	for i := begin; i < len(line) && len(next) < windowSize-1; i++ {
		if !isFiller(line[i]) {
			next = append(next, s.rows.line+i)
		}
	}
	if len(next) < windowSize-1 && !end {
		return false
	}
	row := t[s.rows.above : s.rows.line-1]
	first, _, _ := address(row)
	last := -1
	for _, stop := range bytesEnd(row, first) {
		for stop > first && isFiller(row[stop-1]) {
			stop--
		}
		if stop != last {
			s.joinAt(t, s.rows.above+first, s.rows.above+stop, next)
		}
		last = stop
	}
	return true
}

// bytesEnd lists the possible ends of the bytes of a row that begin at first: before a text, or at the row's end.
func bytesEnd(row []byte, first int) []int {
	list := []int{len(row)}
	for _, before := range []string{"  ", " |", " >"} {
		if n := bytes.Index(row[first:], []byte(before)); n > 0 {
			list = append(list, first+n)
		}
	}
	return list
}

// joinAt tries the forms whose first symbols are in t[first:stop] and then at next.
func (s *scanner) joinAt(t []byte, first, stop int, next []int) {
	var at [2 * windowSize]int // the positions of the symbols, from the left
	begin := windowSize
	for i := stop - 1; i >= first && begin > 1; i-- {
		if !isFiller(t[i]) {
			begin--
			at[begin] = i
		}
	}
	end := windowSize + copy(at[windowSize:], next)
	window := uint64(0)
	for i := begin; i < end; i++ {
		window = window<<8 | uint64(lower(t[at[i]]))
		if i < windowSize || !s.rules.index.maybe(window) {
			continue
		}
		s.rules.index.entries(window, func(e *entry) {
			if n := i + 1 - e.symbols(); begin <= n && n < windowSize && e.form.unpack().outer == rows {
				s.read(t, e, at[n])
			}
		})
	}
}

// hold returns the position from which on t must be held so that rows can be joined.
func (j *joiner) hold(t []byte) int {
	if j.above >= 0 && !j.joined {
		return j.above
	}
	if j.line >= 0 && j.line < len(t) && len(t)-j.line <= maxLine {
		if _, ok, open := address(t[j.line:]); ok || open {
			return j.line
		}
	}
	return len(t)
}

// forget continues with a text without its first n bytes.
func (j *joiner) forget(n int) {
	j.line, j.above, j.seen = max(-1, j.line-n), max(-1, j.above-n), j.seen-n
}
