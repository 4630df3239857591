package redact

import (
	"bytes"
	"slices"
	"strings"
)

// maxBetween is how many symbols may stand between two lines of a value that are none of it: the prefix of
// a diff, a log or a comment, and what a program puts around the lines of a string in its source.
const maxBetween = 100

// breaks are the offsets in a folded value at which its lines begin.
type breaks struct {
	first []int // all but the first line's, in order; none of a value of one line
	// shorter[i] is how many of the symbols of i's line before i are its beginning as
	// well: the failure function of Knuth, Morris and Pratt, for each line.
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

// begin returns where the line begins that has i, and false in the first line.
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

// line returns where in the value the line begins that is being read, and false
// where nothing may stand before it.
func (c *candidate) line() (int, bool) {
	if c.form.inner == b64 || c.form.inner == lit || c.form.outer == rows {
		return 0, false
	}
	return c.value.lines.begin(c.matched)
}

// between reports whether a line is about to begin, where more filler may stand than elsewhere.
func (c *candidate) between() bool {
	at, ok := c.line()
	return ok && at == c.matched && !c.done
}

// skipped is what stood before the line of a value that is being looked for and is none of it.
type skipped struct {
	line    int // where the line begins in what is compared
	symbols int
}

// add counts n symbols before the line that begins at that place, and reports whether so many may stand there.
func (s *skipped) add(line, n int) bool {
	if s.line != line {
		*s = skipped{line: line}
	}
	s.symbols += n
	return s.symbols <= maxBetween
}

// before takes u for a part of what stands before a line, as it does not go on with
// it: the line may begin later within what was taken for it, or is still to come.
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

// linePrefixes are those that are also found before the lines of a value whose first line is so
// short that a window reaches over its end.
var linePrefixes = []string{"+", "-", ">", "#", "|", "*", ";", "%", "//", "--"}

// prefixed lists the beginnings of v with a prefix before each line but the first, if the window sees them.
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
