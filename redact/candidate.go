package redact

import (
	"bytes"
	"unicode/utf8"
)

// form is an encoding of a value: encoded by inner, and the result by outer.
type form struct {
	outer, inner       kind
	outerOff, innerOff uint8 // alignment, or the start position in a shell word
	first              byte  // the first byte that outer encoded
	lead               uint8 // dots before the window; for UTF-16 whether first is filler there
	single             bool  // one of the two is not an encoding
	symbols            uint8 // of the window: 8, or all symbols of the form
}

// packed is a form in few bytes, because there are many.
type packed uint32

func (f form) pack() packed {
	p := packed(f.outer) | packed(f.inner)<<5 | packed(f.outerOff)<<10 | packed(f.innerOff)<<13 | packed(f.first)<<16 | packed(f.symbols)<<24 | packed(f.lead)<<28
	if f.single {
		p |= 1 << 30
	}
	return p
}

func (p packed) unpack() form {
	return form{
		outer: kind(p & 31), inner: kind(p >> 5 & 31), outerOff: uint8(p >> 10 & 7), innerOff: uint8(p >> 13 & 7),
		first: byte(p >> 16), symbols: uint8(p >> 24 & 15), lead: uint8(p >> 28 & 3), single: p>>30&1 != 0,
	}
}

// left returns how many base64 or base32 digits before the match carry bits of the value together with bits of a
// neighbour. They are masked as well, because the reader may know the neighbour.
func (f form) left() int {
	inner := 0
	if _, group := f.inner.bits(); group > 1 && f.innerOff > 0 {
		inner = 1
	}
	bits, group := f.outer.bits()
	switch {
	case f.outer == hexa:
		return 2 * inner
	case group == 1 && f.outer != anyEsc:
		return 0
	case group == 1:
		return inner
	}
	first := 8 * (int(f.outerOff) + group) // one group to the right, nothing is negative
	return ceil(first, bits) - (first-8*inner)/bits
}

// begin returns the start of a match whose window begins at start.
func (f form) begin(t passage, start int) int {
	if f.inner == lit && literals[f.first].skip > 0 {
		begin, _ := t.wordBefore(start)
		return begin
	}
	return digitsBefore(t.text, f.dots(t.text, start), f.left())
}

// words reports whether f is a dump of words.
func (f form) words() bool { return f.inner == lit && literals[f.first].size > 0 }

// dots returns the start of the value's dots, or of UTF-16 filler, before start.
func (f form) dots(t []byte, start int) int {
	wide := f.outer == u16le || f.outer == u16be
	n, gap := f.lead, 0
	for i := start - 1; i >= 0 && n > 0 && gap <= maxGap && isFiller(t[i]); i-- {
		if gap++; wide || t[i] == '.' {
			start, n, gap = i, n-1, 0
		}
	}
	return start
}

// maxLeft is the largest left of all forms.
const maxLeft = 3

// candidate is a position in a text at which a value may occur in one form: the form's first symbols match. It reads
// further text, decodes it and compares it with the value, until the result is certain.
//
//	text -> outer decoder -> inner decoder -> folded value
//	                      -> digits of base64, decimal or octal numbers of the value
//
//	          all of it matched            no more text belongs to it
//	reading --------------------> done tail --------------------------> found
//	   |
//	   | a symbol differs
//	   +------------------> dead
type candidate struct {
	value        *value
	form         form
	first        int // of the match in the text
	start        int // of the window
	at           int // next byte to be read
	end          int // of the match, once done
	outer, inner decoder
	want         []byte // the folded value, or another form of it to compare with
	matched      int    // matched bytes or digits of want
	blanks       uint8  // consecutive filler in the text
	gap          int    // consecutive filler, decoded
	spare        uint8  // digits that may follow with the value's last bits and a neighbour's
	trail        uint8  // blanks at the value's end that may follow
	loose, stray bool   // outer and inner have read beyond end, without a sign that the text belongs to the match
	half         bool   // the last zero of UTF-16 is missing, as when zeros end a string
	done         bool
	skipped      skipped
	lastWord     bool     // a word with the value's last bytes follows
	inWord       bool     // that word has begun
	early        bool     // the value ended before the last byte that was read
	markers      *markers // set only when a marker is read
}

func newCandidate(v *value, f form, at int) candidate {
	c := candidate{value: v, form: f, start: at, at: at, trail: v.trail, want: v.folded}
	c.outer = start(f.outer, int(f.outerOff), f.first)
	c.inner = start(f.inner, int(f.innerOff), v.raw[0])
	switch f.inner {
	case b64: // matched counts digits
		c.trail = 0
		c.matched = ceil(8*int(f.innerOff), 6)
	case lit:
		c.trail = 0
		c.want = v.literal(int(f.first))
		_, c.lastWord = literals[f.first].part(v.raw)
	}
	for range f.lead {
		if f.outer == u16le || f.outer == u16be {
			c.push(unit(f.first))
		} else {
			c.push('.')
		}
	}
	return c
}

// candidate begins to read the entry's form at a position of t. ok is false if there is no space for the symbols that
// must precede it.
func (s *ruleset) candidate(e *entry, t passage, at int) (c candidate, ok bool) {
	f := e.form.unpack()
	if f.inner == mark {
		return candidate{form: f, first: at, start: at, at: at, markers: s.markers}, true
	}
	c = newCandidate(s.values[e.value], f, at)
	c.first = f.begin(t, at)
	return c, c.first < at || !f.words() || literals[f.first].skip == 0
}

type verdict uint8

const (
	reading verdict = iota // more text is needed
	found
	dead
)

// read processes text of t.
func (c *candidate) read(t []byte) verdict {
	if c.form.inner == mark {
		v, n, is := c.markers.read(t[c.start:])
		c.value, c.end = v, c.start+n
		return is
	}
	for c.at < len(t) {
		if c.simple() && !c.run(t) {
			return dead
		}
		b := t[c.at]
		c.at++
		if !isFiller(b) || c.form.outer == rows {
			c.blanks = 0
		} else if c.blanks++; c.blanks > maxGap && !c.between() {
			return c.settle()
		}
		if c.done {
			if !c.tail(b) {
				return found
			}
			continue
		}
		if !c.push(unit(b)) {
			return dead
		}
		if c.done || c.lastHalf() {
			if c.end = c.at; c.early {
				c.end--
			}
			if c.form.outer == rows && c.outer.high == 0 && !c.value.binary && !c.form.words() {
				return dead // all in one row: other forms find it there and in the row's text
			}
			if !c.hasTail() {
				return found
			}
		}
	}
	return reading
}

// simple reports whether letters and digits are not escaped here.
func (c *candidate) simple() bool { return !c.done && c.outer.simple() && c.inner.simple() }

func (d *decoder) simple() bool {
	switch d.kind {
	case raw, pct, query, esc, entity, quoted:
		return d.state == plain && d.high == 0
	case shell:
		return d.state < shellEscape
	case doubled:
		return d.n == 0
	}
	return false
}

// run compares letters and digits, up to the last one of the text or the value, and reports whether the text can still
// be c's value.
func (c *candidate) run(t []byte) bool {
	for c.at < len(t)-1 && c.matched < len(c.want)-1 {
		b := lower(t[c.at])
		if (b < 'a' || 'z' < b) && (b < '0' || '9' < b) {
			break
		}
		if b != c.want[c.matched] {
			_, later := c.line()
			return later || c.optional()
		}
		c.at++
		c.matched++
		c.blanks, c.gap = 0, 0
	}
	return true
}

// lastHalf reports whether the whole value was matched except for the last byte of its UTF-16, or an optional one, and
// then accepts it as complete.
func (c *candidate) lastHalf() bool {
	if c.matched == len(c.want)-1 && c.optional() {
		c.done, c.half = true, true
		return true
	}
	d := &c.inner
	if c.form.inner == raw {
		d = &c.outer
	}
	if d.kind != u16le || d.n == 0 || c.matched != len(c.want)-1 || lower(byte(d.acc)) != c.want[c.matched] {
		return false
	}
	c.done, c.half = true, true
	return true
}

// otherHalf checks whether b is that byte, and reports whether more can follow.
func (c *candidate) otherHalf(b byte) bool {
	was := c.matched
	c.done = false
	ok := c.push(unit(b))
	c.done = true
	if c.matched > was {
		c.half = false
		c.end = c.at
		return ok && c.hasTail()
	}
	return ok
}

// settle returns the verdict when no more text belongs to the match.
func (c *candidate) settle() verdict {
	if !c.done && c.form.inner != mark {
		c.rest()
	}
	if c.done {
		return found
	}
	return dead
}

// rest processes decoded data that is complete only because the text ends.
func (c *candidate) rest() {
	var out, more units
	c.outer.rest(&out)
	c.end = c.at - int(c.blanks)
	for _, u := range out.list[:out.n] {
		if !c.next(u) || c.done {
			return
		}
	}
	c.inner.rest(&more)
	for _, u := range more.list[:more.n] {
		c.compare(u)
	}
}

// push reports whether the text can still be c's value with one more unit.
func (c *candidate) push(u unit) bool {
	var out units
	if !c.outer.push(u, &out) {
		return false
	}
	for i, o := range out.list[:out.n] {
		if c.done { // the second of two units: it cannot occur alone
			return true
		}
		if !c.next(o) {
			return false
		}
		c.early = c.early || c.done && out.early && i == 0
	}
	return true
}

// next processes a unit that outer has decoded.
func (c *candidate) next(u unit) bool {
	if c.form.inner == b64 {
		return c.digit64(u)
	}
	var out units
	if !c.inner.push(u, &out) {
		return false
	}
	for i, o := range out.list[:out.n] {
		if c.done {
			return true
		}
		if !c.compare(o) {
			return false
		}
		c.early = c.done && out.early && i == 0
	}
	return true
}

// compare compares a decoded unit with the folded value.
func (c *candidate) compare(u unit) bool {
	want := c.want[c.matched:]
	switch {
	case u < 256 && isBlank(byte(u)), u == '.' && want[0] != '.':
		c.gap++
		return c.gap <= maxGap || c.between() && c.skipped.add(c.matched, 1)
	case c.same(u, want), c.optional() && len(want) > 1 && c.sameAfter(u):
		return true
	}
	return c.before(u)
}

// sameAfter is same for the unit after an optional byte.
func (c *candidate) sameAfter(u unit) bool {
	if c.matched++; c.same(u, c.want[c.matched:]) {
		return true
	}
	c.matched--
	return false
}

// same compares u with the next byte, and advances.
func (c *candidate) same(u unit, want []byte) bool {
	if u&point == 0 && lower(byte(u)) == want[0] {
		c.advance(1, len(want))
		return true
	}
	return u >= utf8.RuneSelf && c.comparePoint(u&^point, want)
}

// optional reports whether the next byte is the second one of U+00C3, whose first byte matched. In Latin-1 the character
// looks like that, so the first byte may have been all of it.
func (c *candidate) optional() bool {
	return c.matched > 0 && c.matched < len(c.want) && c.want[c.matched] == 0x83 && c.want[c.matched-1] == 0xc3 && c.form.inner != b64
}

func (c *candidate) advance(n, left int) {
	c.gap, c.blanks = 0, 0
	c.matched += n
	c.done = n == left
}

// comparePoint compares a code point beyond ASCII, or a byte that may be one in Latin-1: the value may have it as UTF-8,
// as a byte of Latin-1, or have a byte that is not text, which a text encoder has replaced.
func (c *candidate) comparePoint(u unit, want []byte) bool {
	var room [utf8.UTFMax]byte
	text := utf8.AppendRune(room[:0], rune(u))
	switch {
	case u == 0xc3 && want[0] == 0xc3 && len(want) > 1 && want[1] == 0x83: // see optional
		c.advance(1, len(want))
	case bytes.HasPrefix(want, text):
		c.advance(len(text), len(want))
	case u < 256 && want[0] == byte(u), u == utf8.RuneError && want[0] >= utf8.RuneSelf:
		c.advance(1, len(want))
	default:
		return false
	}
	return true
}

// digit64 compares base64 in any case: if the case was lost, the text cannot be decoded, but it can still be guessed.
// The last digit may have bits of a neighbour; it is masked without a comparison.
func (c *candidate) digit64(u unit) bool {
	b, ok := byteOf(u)
	switch {
	case !ok:
		return false
	case isFiller(b):
		c.gap++
		return c.gap <= maxGap
	case b == '-':
		b = '+'
	case b == '_':
		b = '/'
	}
	at := 6*c.matched - 8*int(c.form.innerOff) // in bits of the value
	value := c.value.raw
	if lower(alphabet64[bitsAt(value, at, 6)]) != lower(b) {
		return false
	}
	c.gap = 0
	c.matched++
	if left := 8*len(value) - at - 6; left < 6 {
		c.done = true
		if left > 0 {
			c.spare = 1
		}
	}
	return true
}
