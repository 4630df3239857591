package pattern

import (
	"regexp/syntax"
	"unicode/utf8"
)

const (
	maxLiterals = 64        // maximum per factor
	maxChoices  = 16        // bytes of a class that is expanded
	minLiteral  = 2         // bytes
	maxBefore   = 256       // bytes before a literal
	endless     = 1_000_000 // width of an unbounded expression
	maxSpan     = 4096      // bytes for which the expression after a literal is followed
	maxBlock    = 16 << 10
)

// literal is a literal string in a regular expression.
type literal struct {
	text string // in lower case
	mask string // same length; the required byte, or 0 where case is ignored
}

func (l literal) matches(b []byte) bool {
	for i := range len(l.mask) {
		if m := l.mask[i]; m != 0 && m != b[i] {
			return false
		}
	}
	return true
}

// factor is a regular expression split at literals: every match is before, one of literals, after. An expression has
// several factors if the literals of its alternatives are at different positions.
type factor struct {
	literals      []literal
	before, after []*syntax.Regexp // in the order of the text
}

// split splits the concatenation seq at the best position, and returns its quality; 0 if there is none. Four bytes are
// rare enough in a text. The first of such positions is best, since a stream must hold back the text before it.
func split(seq []*syntax.Regexp) (best []factor, score int) {
	for i := range seq {
		before := width(seq[:i]...)
		if before > maxBefore {
			break
		}
		found, s := splitAt(seq, i)
		if s -= min(s, 100*before); s > score {
			best, score = found, s
		}
	}
	return best, score
}

func splitAt(seq []*syntax.Regexp, i int) ([]factor, int) {
	if list, n := stretch(seq[i:]); n > 0 {
		s := shortest(list)
		if s < minLiteral {
			return nil, 0
		}
		return []factor{{list, seq[:i], seq[i+n:]}}, 100_000*min(s, 4) + min(s, 99)
	}
	if seq[i].Op != syntax.OpAlternate {
		return nil, 0
	}
	var all []factor
	score := endless
	for _, sub := range seq[i].Sub {
		found, s := split(append(flatten(sub), seq[i+1:]...))
		if s == 0 {
			return nil, 0
		}
		score = min(score, s)
		for _, f := range found {
			f.before = append(append([]*syntax.Regexp{}, seq[:i]...), f.before...)
			all = append(all, f)
		}
	}
	return all, score
}

// flatten returns the elements of a concatenation, without captures: factors find where a match may be, not its groups.
func flatten(re *syntax.Regexp) []*syntax.Regexp {
	switch re.Op {
	case syntax.OpCapture:
		return flatten(re.Sub[0])
	case syntax.OpConcat:
		var out []*syntax.Regexp
		for _, sub := range re.Sub {
			out = append(out, flatten(sub)...)
		}
		return out
	}
	return []*syntax.Regexp{re}
}

// stretch returns the strings of the longest prefix of seq with few strings, and its number of elements.
func stretch(seq []*syntax.Regexp) (list []literal, n int) {
	list = []literal{{}}
	for _, re := range seq {
		more, ok := spell(re)
		if !ok || len(list)*len(more) > maxLiterals || isEmpty(more) {
			break
		}
		list = product(list, more)
		n++
	}
	return list, n
}

func isEmpty(list []literal) bool { return len(list) == 1 && list[0].text == "" }

func shortest(list []literal) int {
	n := endless
	for _, l := range list {
		n = min(n, len(l.text))
	}
	return n
}

// spell returns all strings that re matches, if they are few.
func spell(re *syntax.Regexp) ([]literal, bool) {
	switch re.Op {
	case syntax.OpEmptyMatch:
		return []literal{{}}, true
	case syntax.OpLiteral:
		return spellRunes(re.Rune, re.Flags&syntax.FoldCase != 0)
	case syntax.OpCharClass:
		return spellClass(re.Rune)
	case syntax.OpCapture:
		return spell(re.Sub[0])
	case syntax.OpConcat:
		list, n := stretch(re.Sub)
		return list, n == len(re.Sub)
	case syntax.OpQuest:
		list, ok := spell(re.Sub[0])
		return unique(append(list, literal{})), ok
	case syntax.OpAlternate:
		var list []literal
		for _, sub := range re.Sub {
			more, ok := spell(sub)
			if !ok || len(list)+len(more) > maxLiterals {
				return nil, false
			}
			list = append(list, more...)
		}
		return unique(list), true
	}
	return nil, false
}

func spellRunes(runes []rune, fold bool) ([]literal, bool) {
	var text, mask []byte
	for _, r := range runes {
		if r >= utf8.RuneSelf {
			return nil, false
		}
		l, m := lower(byte(r)), byte(r)
		if fold && isLetter(m) {
			m = 0
		}
		text, mask = append(text, l), append(mask, m)
	}
	return []literal{{string(text), string(mask)}}, true
}

// spellClass omits the two letters beyond ASCII that fold to k and s, which a class has only because case is ignored.
func spellClass(ranges []rune) ([]literal, bool) {
	if len(ranges) > 2*maxChoices || len(ranges) > 0 && ranges[1]-ranges[0] >= maxChoices {
		return nil, false
	}
	var list []literal
	for i := 0; i < len(ranges); i += 2 {
		for r := ranges[i]; r <= ranges[i+1]; r++ {
			switch {
			case r == 'ſ' || r == '\u212a':
			case r >= utf8.RuneSelf || len(list) == maxChoices:
				return nil, false
			default:
				list = append(list, literal{string(lower(byte(r))), string(byte(r))})
			}
		}
	}
	return unique(list), len(list) > 0
}

func product(a, b []literal) []literal {
	out := make([]literal, 0, len(a)*len(b))
	for _, x := range a {
		for _, y := range b {
			out = append(out, literal{x.text + y.text, x.mask + y.mask})
		}
	}
	return unique(out)
}

func unique(list []literal) []literal {
	if len(list) < 2 {
		return list
	}
	seen := map[literal]bool{}
	var out []literal
	for _, l := range list {
		if !seen[l] {
			seen[l] = true
			out = append(out, l)
		}
	}
	return out
}

// width returns the maximum length, in bytes, of a match of the concatenation of list.
func width(list ...*syntax.Regexp) int {
	n := 0
	for _, re := range list {
		n += widthOf(re)
	}
	return min(n, endless)
}

func widthOf(re *syntax.Regexp) int {
	switch re.Op {
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase != 0 {
			return 3 * len(re.Rune) // k and s fold to runes of two and three bytes
		}
		return len(string(re.Rune))
	case syntax.OpCharClass:
		if len(re.Rune) == 0 {
			return 0
		}
		return utf8.RuneLen(re.Rune[len(re.Rune)-1])
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return utf8.UTFMax
	case syntax.OpStar, syntax.OpPlus:
		return endless
	case syntax.OpRepeat:
		if re.Max < 0 {
			return endless
		}
		return min(endless, re.Max*widthOf(re.Sub[0]))
	case syntax.OpAlternate:
		n := 0
		for _, sub := range re.Sub {
			n = max(n, widthOf(sub))
		}
		return n
	}
	return width(re.Sub...)
}

// span returns how far the concatenation of list is followed: to its end if it is bounded, otherwise farther for a block
// of several lines.
func span(list []*syntax.Regexp) int {
	n := width(list...)
	if n <= maxSpan {
		return n
	}
	for _, re := range list {
		if isBlock(re) {
			return maxBlock
		}
	}
	return maxSpan
}

// isBlock reports whether re has an unbounded repetition of a class with line breaks and letters.
func isBlock(re *syntax.Regexp) bool {
	if widthOf(re) < endless {
		return false
	}
	switch re.Op {
	case syntax.OpAnyChar:
		return true
	case syntax.OpCharClass:
		return inRanges(re.Rune, '\n') && inRanges(re.Rune, 'a')
	}
	for _, sub := range re.Sub {
		if sub.Op == syntax.OpAnyChar || sub.Op == syntax.OpCharClass && inRanges(sub.Rune, '\n') && inRanges(sub.Rune, 'a') || isBlock(sub) {
			return true
		}
	}
	return false
}

func inRanges(ranges []rune, r rune) bool {
	for i := 0; i < len(ranges); i += 2 {
		if ranges[i] <= r && r <= ranges[i+1] {
			return true
		}
	}
	return false
}

func lower(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		return b + 'a' - 'A'
	}
	return b
}

func isLetter(b byte) bool { return 'a' <= lower(b) && lower(b) <= 'z' }

func isWord(b byte) bool { return isLetter(b) || '0' <= b && b <= '9' || b == '_' }

// reversed returns an expression for the reversed matches of re.
func reversed(re *syntax.Regexp) *syntax.Regexp {
	out := *re
	out.Sub = make([]*syntax.Regexp, len(re.Sub))
	for i, sub := range re.Sub {
		at := i
		if re.Op == syntax.OpConcat {
			at = len(re.Sub) - 1 - i
		}
		out.Sub[at] = reversed(sub)
	}
	switch re.Op {
	case syntax.OpLiteral:
		out.Rune = make([]rune, len(re.Rune))
		for i, r := range re.Rune {
			out.Rune[len(re.Rune)-1-i] = r
		}
	case syntax.OpBeginText:
		out.Op = syntax.OpEndText
	case syntax.OpEndText:
		out.Op = syntax.OpBeginText
	case syntax.OpBeginLine:
		out.Op = syntax.OpEndLine
	case syntax.OpEndLine:
		out.Op = syntax.OpBeginLine
	}
	return &out
}

func concat(list []*syntax.Regexp) *syntax.Regexp {
	return &syntax.Regexp{Op: syntax.OpConcat, Sub: list}
}
