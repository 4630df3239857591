package redact

import (
	"unicode/utf8"
)

// kind is a family of encodings with one decoder.
type kind uint8

const (
	raw     kind = iota
	pct          // percent escapes, RFC 3986 section 2.1
	query        // percent escapes with "+" for a blank, as in HTML's forms
	esc          // backslash escapes of JSON (RFC 8259 section 7), C, Go, Python and $'...'
	entity       // HTML character references
	quoted       // quoted-printable, RFC 2045 section 6.7
	anyEsc       // pct, esc and entity together, for a text without their first characters
	shell        // quoted words; off is the position in a word at which a value begins
	doubled      // quotes written twice, as in SQL and CSV: off is which
	hexa
	b64   // RFC 4648 section 4 and 5
	b32   // section 6
	b32h  // section 7
	u16le // UTF-16
	u16be
	lit  // compared in its written form: off is the index in literals
	rows // lines of a dump, each after its address: off is what follows the bytes
	mark
)

// bits returns the number of bits in a digit of k, and group the number of bytes that fill complete digits, which is the
// number of alignments.
func (k kind) bits() (bits, group int) {
	switch k {
	case b64:
		return 6, 3
	case b32, b32h:
		return 5, 5
	}
	return 8, 1
}

// unit is the output of one decoder and the input of the next: a byte, or a character that was written as a code point
// beyond ASCII.
type unit uint32

const (
	point unit = 1 << 24 // set on code points
)

func codePoint(r uint32) unit {
	if r < utf8.RuneSelf {
		return unit(r)
	}
	return point | unit(r)
}

// byteOf returns u as a byte; code points up to U+00FF are treated as Latin-1.
func byteOf(u unit) (byte, bool) {
	u &^= point
	return byte(u), u < 256
}

// units are the decoded units of one unit.
type units struct {
	list  [2]unit
	n     int
	early bool // the first ended before the unit that showed it
}

func (o *units) add(u unit) { o.list[o.n] = u; o.n++ }

// decoder undoes one encoding, unit by unit. It is a value: a copy continues independently.
type decoder struct {
	kind  kind
	state uint8  // of escapes
	n     uint8  // missing digits, or bits in acc
	gap   uint8  // consecutive ignored units
	high  uint16 // first half of a surrogate pair; of rows, whether there were two
	acc   uint64
}

// start makes d read text of kind k that begins with a value with the first byte first, off bytes after the last byte
// that began with a digit.
func start(k kind, off int, first byte) decoder {
	d := decoder{kind: k}
	switch k {
	case b64, b32, b32h: // the digit before has the value's first bits
		bits, _ := k.bits()
		d.n = uint8(ceil(8*off, bits)*bits - 8*off)
		d.acc = uint64(first) >> (8 - d.n)
	case shell, rows, doubled:
		d.state = uint8(off)
	}
	return d
}

func ceil(a, b int) int { return (a + b - 1) / b }

// push decodes u into out and reports whether the text can be of d's kind.
func (d *decoder) push(u unit, out *units) bool {
	switch d.kind {
	case raw, lit:
		out.add(u)
		return true
	case rows:
		return d.row(u, out)
	case pct, query, esc, entity, quoted, anyEsc:
		return d.escapes(u, out)
	case shell:
		return d.shell(u, out)
	case doubled:
		return d.doubled(u, out)
	case u16le, u16be:
		return d.wide(u, out)
	}
	b, ok := byteOf(u)
	if !ok {
		return false
	}
	if d.kind == hexa {
		return d.hex(b, out)
	}
	return d.digit(b, out)
}

// ignore counts units without data.
func (d *decoder) ignore() bool { d.gap++; return d.gap <= maxGap }

// digit decodes base64 and base32.
func (d *decoder) digit(b byte, out *units) bool {
	if isFiller(b) {
		return d.ignore()
	}
	v := valueOf(d.kind, b)
	if v > 63 {
		return false
	}
	bits, _ := d.kind.bits()
	d.gap, d.acc, d.n = 0, d.acc<<bits|uint64(v), d.n+uint8(bits)
	if d.n >= 8 {
		d.n -= 8
		out.add(unit(byte(d.acc >> d.n)))
	}
	return true
}

func valueOf(k kind, b byte) uint8 {
	switch k {
	case b64:
		return digits64[b]
	case b32:
		return digits32[b]
	}
	return digits32h[b]
}

const (
	alphabet64  = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	alphabet32  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	alphabet32h = "0123456789ABCDEFGHIJKLMNOPQRSTUV"
)

var (
	digits64  = inverse(alphabet64, "-+_/", false)
	digits32  = inverse(alphabet32, "", true)
	digits32h = inverse(alphabet32h, "", true)
)

// inverse returns the value of each digit; same has pairs of which the first is read as the second.
func inverse(alphabet, same string, anyCase bool) (table [256]uint8) {
	for b := range table {
		table[b] = 0xff
	}
	for i, c := range []byte(alphabet) {
		table[c] = uint8(i)
		if anyCase {
			table[lower(c)] = uint8(i)
		}
	}
	for i := 0; i < len(same); i += 2 {
		table[same[i]] = table[same[i+1]]
	}
	return table
}

// hex decodes pairs of digits with possible separators: blanks, also as "+" in a URL, colons, commas, dashes, 0x and \x.
// After 0x one digit suffices.
func (d *decoder) hex(b byte, out *units) bool {
	v := nibble(b)
	switch {
	case v < 16 && d.n == 0:
		d.acc, d.n = uint64(v), 1
	case v < 16:
		d.state, d.n, d.gap = plain, 0, 0
		out.add(unit(d.acc<<4 | uint64(v)))
	case d.state == afterX && d.n == 1:
		d.rest(out)
		out.early = true
	case isFiller(b):
		return d.ignore()
	case lower(b) == 'x' && d.n == 1 && d.acc == 0:
		d.state, d.n = afterX, 0
		return d.ignore()
	case d.n == 0 && indexByte(":,-+", b) >= 0:
		return d.ignore()
	default:
		return false
	}
	return true
}

// rest outputs the data that is complete if no text follows.
func (d *decoder) rest(out *units) {
	switch {
	case d.kind == hexa && d.state == afterX && d.n == 1, d.state == inOctal && (d.kind == esc || d.kind == anyEsc):
		d.state, d.n, d.gap = plain, 0, 0
		out.add(unit(byte(d.acc)))
	case d.kind == shell && d.state == shellDollar:
		d.state = shellBare
		out.add('$')
	}
}

// nibble returns the value of a hex digit, and 16 for other characters.
func nibble(b byte) uint8 {
	switch l := lower(b); {
	case '0' <= b && b <= '9':
		return b - '0'
	case 'a' <= l && l <= 'f':
		return l - 'a' + 10
	}
	return 16
}

// wide decodes UTF-16.
func (d *decoder) wide(u unit, out *units) bool {
	b, ok := byteOf(u)
	if !ok {
		return false
	}
	if d.n == 0 {
		d.acc, d.n = uint64(b), 1
		return true
	}
	d.n = 0
	if d.kind == u16le {
		return d.point(uint32(b)<<8|uint32(d.acc), out)
	}
	return d.point(uint32(d.acc)<<8|uint32(b), out)
}

// point outputs a code point or half a surrogate pair.
func (d *decoder) point(r uint32, out *units) bool {
	switch {
	case 0xd800 <= r && r < 0xdc00:
		if d.high != 0 {
			return false
		}
		d.high = uint16(r)
		return true
	case 0xdc00 <= r && r < 0xe000 && d.high != 0:
		r = 0x10000 + (uint32(d.high)-0xd800)<<10 + r - 0xdc00
		d.high = 0
	case 0xdc00 <= r && r < 0xe000:
		r = utf8.RuneError
	case d.high != 0 || r > utf8.MaxRune:
		return false
	}
	out.add(codePoint(r))
	return true
}

// What follows the bytes in a row of a dump. In rowText it is being read, in rowHead the address before the bytes.
const (
	rowBare uint8 = iota // nothing: od of text that may contain a bar
	rowBars              // nothing, or text after a bar or ">": od -tx1, od -tx1z, hexdump -C
	rowGap               // text after two blanks: xxd
	rowText uint8 = 4
	rowHead uint8 = 8
)

// row processes the bytes between a row's address and its text.
func (d *decoder) row(u unit, out *units) bool {
	b := byte(u)
	style := d.state & 3
	switch {
	case b == '\n':
		d.state, d.gap, d.high = style|rowHead, 0, 1
	case d.state&rowText != 0:
		return d.long()
	case d.state&rowHead != 0:
		if b == ':' || isBlank(b) {
			d.state = style
		}
		return d.long() && (nibble(b) < 16 || d.state == style)
	case style == rowBars && (b == '|' || b == '>'), style == rowGap && b == ' ' && d.n == ' ':
		d.state, d.gap = style|rowText, 0
	default:
		d.n = b
		out.add(u)
		return true
	}
	d.n = 0
	return true
}

// long limits an address or the text of a row.
func (d *decoder) long() bool { d.gap++; return d.gap < maxRow }

const maxRow = 100
