package redact

import (
	"bytes"
	"slices"
	"strings"
)

// maxBetween is the maximum number of symbols between two lines of a value that do not belong to it: the prefix of a
// diff, a log or a comment, and the quotes around the lines of a string in source code.
const maxBetween = 100

// breaks are the offsets in a folded value at which lines begin.
type breaks struct {
	first []int // all lines but the first, in order; empty for a value of one line
	// shorter[i] is the length of the longest prefix of i's line that also ends at i: the failure function of Knuth,
	// Morris and Pratt, for each line.
	shorter []uint16
}

func linesOf(raw []byte) (l breaks) {
	at := 0
	for line := range bytes.Lines(raw) {
		if at > 0 && len(fold(line)) > 0 {
			l.first = append(l.first, at)
		}
		at += len(fold(line))
	}
	if len(l.first) == 0 {
		return l
	}
	l.shorter = make([]uint16, at)
	folded := fold(raw)
	for i, from := range l.first {
		to := at
		if i+1 < len(l.first) {
			to = l.first[i+1]
		}
		n := 0
		for j := from + 1; j < to-1; j++ {
			for n > 0 && folded[j] != folded[from+n] {
				n = int(l.shorter[from+n])
			}
			if folded[j] == folded[from+n] {
				n++
			}
			l.shorter[j+1] = uint16(n)
		}
	}
	return l
}

// begin returns the start of i's line, and false for the first line.
func (l *breaks) begin(i int) (int, bool) {
	if len(l.first) == 0 || i < l.first[0] {
		return 0, false
	}
	n, exact := slices.BinarySearch(l.first, i)
	if !exact {
		n--
	}
	return l.first[n], true
}

// line returns the start, in the value, of the line that is being read, and false if no prefix may precede it.
func (c *candidate) line() (int, bool) {
	if c.form.inner == b64 || c.form.inner == lit || c.form.outer == rows {
		return 0, false
	}
	return c.value.lines.begin(c.matched)
}

// between reports whether a line is about to begin, where more filler is allowed.
func (c *candidate) between() bool {
	at, ok := c.line()
	return ok && at == c.matched && !c.done
}

// skipped is the text before a line of the value that does not belong to it.
type skipped struct {
	line    int // start of the line in the compared text
	symbols int
}

// add counts n symbols before the line that begins at the position, and reports whether that many are allowed.
func (s *skipped) add(line, n int) bool {
	if s.line != line {
		*s = skipped{line: line}
	}
	s.symbols += n
	return s.symbols <= maxBetween
}

// before treats u, which does not continue the line, as text before it: the line may begin later within the skipped
// text, or has not begun yet.
func (c *candidate) before(u unit) bool {
	at, ok := c.line()
	if !ok {
		return false
	}
	for c.matched > at {
		n := at + int(c.value.lines.shorter[c.matched])
		if !c.skipped.add(at, c.matched-n) {
			return false
		}
		c.matched = n
		if c.same(u, c.want[n:]) {
			return true
		}
	}
	c.gap = 0
	return c.skipped.add(at, 1)
}

// linePrefixes are the prefixes that are also recognized before the lines of a value whose first line is shorter than a
// window.
var linePrefixes = []string{"+", "-", ">", "#", "|", "*", ";", "%", "//", "--"}

// prefixed lists the beginnings of v with a prefix before each line but the first, if they are within the window.
func (v *value) prefixed() (list []written) {
	if len(v.lines.first) == 0 || len(bytes.ReplaceAll(v.folded[:v.lines.first[0]], []byte("."), nil)) >= windowSize {
		return nil
	}
	p := string(prefix(v.raw, prefixSize))
	for _, with := range linePrefixes {
		var text strings.Builder
		for i, line := range strings.SplitAfter(p, "\n") {
			if i > 0 && len(fold([]byte(text.String()))) > 0 {
				text.WriteString(with)
			}
			text.WriteString(line)
		}
		list = append(list, written{raw, 0, prefix([]byte(text.String()), prefixSize), true})
	}
	return list
}
