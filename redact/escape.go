package redact

import (
	"html"
	"strconv"
	"strings"
	"unicode/utf8"
)

// States of escapes.
const (
	plain     uint8 = iota
	backslash       // the next character decides
	inByte          // d.n hex digits of a byte
	inPoint         // d.n hex digits of a code point
	inBraces        // hex digits of a code point up to "}"
	inOctal         // d.n octal digits
	soft            // "=" at the end of a line, or hex digits
	inName          // an entity's name
	afterX          // of hexa, after 0x
)

// escapeLetters are the letters of the control characters in escaped, after a backslash.
const (
	escapeLetters = "ntrbfvaeE"
	escaped       = "\n\t\r\b\f\v\a\x1b\x1b"
)

func (d *decoder) await(state, n uint8) bool {
	d.state, d.n, d.acc = state, n, 0
	return true
}

// untouched reports whether d is in that state and waits for all n digits.
func (d *decoder) untouched(state, n uint8) bool { return d.state == state && d.n == n }

func (d *decoder) escapes(u unit, out *units) bool {
	if d.state == plain {
		return d.plain(u, out)
	}
	b, ok := byteOf(u)
	if !ok {
		return false
	}
	if isBlank(b) && d.state != inName && (d.state != inOctal || b != ' ') { // a line was wrapped within the escape
		switch {
		case d.state == backslash && d.kind == esc && b == ' ' && d.gap == 0: // or the blank is the escaped character
			d.state = plain
			out.add(u)
			return d.high == 0
		case d.state == soft, d.state == backslash && d.kind == anyEsc:
			d.state = plain
		}
		return d.ignore()
	}
	d.gap = 0
	switch {
	case b == '{' && d.untouched(inPoint, 4), b == '{' && d.untouched(inByte, 2) && d.kind == esc:
		return d.await(inBraces, 0)
	case lower(b) == 'u' && d.untouched(inByte, 2) && d.kind != esc && d.kind != quoted:
		return d.await(inPoint, 4) // %uXXXX
	}
	switch d.state {
	case backslash:
		return d.escape(b, out)
	case inName:
		return d.name(b, out)
	case inBraces:
		return d.braces(b, out)
	case inOctal:
		if b-'0' > 7 { // a number with fewer digits
			d.rest(out)
			out.early = true
			return d.high == 0 && d.plain(u, out)
		}
		return d.number(8, b-'0', out)
	case soft:
		d.await(inByte, 2)
	}
	return d.number(16, nibble(b), out)
}

func (d *decoder) plain(u unit, out *units) bool {
	d.gap = 0
	all := d.kind == anyEsc
	switch {
	case u == '%' && (all || d.kind == pct || d.kind == query):
		return d.await(inByte, 2)
	case u == '\\' && (all || d.kind == esc):
		return d.await(backslash, 0)
	case u == '&' && (all || d.kind == entity):
		return d.await(inName, 0)
	case u == '=' && d.kind == quoted:
		return d.await(soft, 0)
	case u == '+' && d.kind == query:
		u = ' '
	}
	out.add(u)
	return d.high == 0
}

// number processes one more digit of the number in acc.
func (d *decoder) number(base uint64, v uint8, out *units) bool {
	if uint64(v) >= base {
		return false
	}
	d.acc = d.acc*base + uint64(v)
	if d.n--; d.n > 0 {
		return true
	}
	point := d.state == inPoint
	d.state = plain
	if point {
		return d.point(uint32(d.acc), out)
	}
	out.add(unit(byte(d.acc)))
	return d.high == 0
}

func (d *decoder) escape(b byte, out *units) bool {
	switch b {
	case 'u':
		return d.await(inPoint, 4)
	case 'U':
		return d.await(inPoint, 8)
	case 'x':
		return d.await(inByte, 2)
	case '0', '1', '2', '3':
		d.await(inOctal, 3)
		return d.number(8, b-'0', out)
	case '4', '5', '6', '7':
		d.await(inOctal, 2)
		return d.number(8, b-'0', out)
	}
	d.state = plain
	if i := indexByte(escapeLetters, b); i >= 0 {
		b = escaped[i]
	}
	out.add(unit(b))
	return d.high == 0
}

func indexByte(s string, b byte) int {
	for i := range len(s) {
		if s[i] == b {
			return i
		}
	}
	return -1
}

// braces processes the digits of \u{...}.
func (d *decoder) braces(b byte, out *units) bool {
	if b == '}' {
		d.state = plain
		return d.point(uint32(d.acc), out)
	}
	d.acc = d.acc<<4 | uint64(nibble(b))
	return nibble(b) < 16 && d.acc <= utf8.MaxRune
}

// name reads an entity's name into acc, which has space for 8 characters: the names for ASCII characters, and code
// points, are not longer.
func (d *decoder) name(b byte, out *units) bool {
	if b != ';' {
		d.n++
		d.acc = d.acc<<8 | uint64(b)
		return d.n <= 8 && (b == '#' || isDigit(b))
	}
	d.state = plain
	var room [8]byte
	name := room[:0]
	for i := int(d.n) - 1; i >= 0; i-- {
		name = append(name, byte(d.acc>>(8*i)))
	}
	r, ok := reference(string(name))
	return ok && d.point(r, out)
}

// reference returns the character of &name;. It does not replace numbers as HTML does for some.
func reference(name string) (uint32, bool) {
	number, ok := strings.CutPrefix(name, "#")
	if !ok {
		text := html.UnescapeString("&" + name + ";")
		r, size := utf8.DecodeRuneInString(text)
		return uint32(r), size == len(text)
	}
	base := 10
	if lower, ok := strings.CutPrefix(strings.ToLower(number), "x"); ok {
		number, base = lower, 16
	}
	r, err := strconv.ParseUint(number, base, 32)
	return uint32(r), err == nil
}

// The position of a value in a shell word; with shellEscape after a backslash, with shellDollar after a "$".
const (
	shellBare uint8 = iota
	shellSingle
	shellDouble
	shellANSI         // $'...'
	shellEscape uint8 = 4
	shellDollar uint8 = 8
)

func (d *decoder) shell(u unit, out *units) bool {
	if d.state == shellDollar {
		d.state = shellBare
		if u == '\'' {
			d.state = shellANSI
			return d.ignore()
		}
		out.add('$')
		out.early = true
	}
	within := d.state &^ shellEscape
	switch {
	case d.state == shellANSI|shellEscape:
		return d.ansi(u, out)
	case d.state&shellEscape != 0:
		d.state = within
		if within == shellDouble && (u > 127 || indexByte("$`\"\\\n", byte(u)) < 0) {
			out.add('\\')
		}
		out.add(u)
	case u == '\\' && within != shellSingle:
		d.state |= shellEscape
		d.n, d.acc = 0, 0
	case u == '\'' && within == shellANSI:
		d.state = shellBare
		return d.ignore()
	case u == '\'' && within != shellDouble:
		d.state = shellSingle - within // the other quote
		return d.ignore()
	case u == '"' && (within == shellBare || within == shellDouble):
		d.state = shellDouble - within
		return d.ignore()
	case u == '$' && within == shellBare:
		d.state = shellDollar
	default:
		out.add(u)
	}
	d.gap = 0
	return true
}

// ansi decodes an escape in $'...': three octal digits or a letter.
func (d *decoder) ansi(u unit, out *units) bool {
	b, ok := byteOf(u)
	if v := b - '0'; ok && v < 8 {
		if d.acc, d.n = d.acc<<3|uint64(v), d.n+1; d.n == 3 {
			d.state = shellANSI
			out.add(unit(byte(d.acc)))
		}
		return true
	}
	d.state = shellANSI
	if i := indexByte(escapeLetters, b); i >= 0 {
		u = unit(escaped[i])
	}
	out.add(u)
	return ok && d.n == 0
}

// quoteMarks are the quotes that are doubled within quotes: in SQL, YAML and PowerShell; in CSV.
const quoteMarks = "'\""

func (d *decoder) doubled(u unit, out *units) bool {
	if u != unit(quoteMarks[d.state]) {
		out.add(u)
		return d.n == 0 // a single one ends the text
	}
	if d.n++; d.n == 2 {
		d.n = 0
		out.add(u)
	}
	return true
}
