package redact

import (
	"bytes"
	"encoding/ascii85"
	"encoding/binary"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// literal writes the whole value in a form that is supported only for the value itself: it is not decoded, but compared,
// in any case and with filler between the symbols. It returns nothing for a value that it cannot write.
type literal struct {
	write  func(dst, p []byte) []byte
	rows   []uint8 // also in a dump, after addresses, with this after the bytes
	whole  bool    // the beginning depends on the whole value
	beyond bool    // another literal writes the same for ASCII
	size   int     // bytes in a word of a dump, if it writes words
	skip   int     // the value's bytes in the previous word, which are not compared
}

// part returns the part of p that is compared, and whether there is more.
func (l literal) part(p []byte) (part []byte, more bool) {
	if l.size == 0 {
		return p, false
	}
	p = p[min(l.skip, len(p)):]
	n := len(p) / l.size * l.size
	return p[:n], n < len(p)
}

var literals = append([]literal{
	{write: numbers(10, 1, ""), rows: []uint8{rowBars}},
	{write: numbers(10, 1, ",")},
	{write: signed(""), rows: []uint8{rowBars}, beyond: true},
	{write: signed(","), beyond: true},
	{write: numbers(8, 1, "")},
	{write: numbers(8, 3, ""), rows: []uint8{rowBars}},
	{write: numbers(2, 8, ""), rows: []uint8{rowGap}},
	{write: characters, rows: []uint8{rowBare}},
	{write: charNames, rows: []uint8{rowBare}},
	{write: reversed, whole: true},
	{write: rot13},
	{write: utf32(binary.LittleEndian)},
	{write: utf32(binary.BigEndian)},
	{write: latin1, beyond: true},
	{write: runes(percentU)},
	{write: runes(func(dst []byte, r rune) []byte { return fmt.Appendf(dst, `\u{%x}`, r) })},
	{write: unescaped(asHex), beyond: true},
	{write: unescaped(asLatin), beyond: true},
	{write: runes(references{numbers: true}.write), beyond: true},
	{write: base58, whole: true},
	{write: base85(ascii85digits)},
	{write: base85("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~")}, // RFC 1924
	{write: base85("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#")}, // Z85
	{write: uuencode('`')},
	{write: uuencode(' ')},
}, wordDumps()...)

// literal returns v in the form literals[i], folded. It is computed on first use, since most are never used.
func (v *value) literal(i int) []byte {
	if text := v.literals[i].Load(); text != nil {
		return *text
	}
	part, _ := literals[i].part(v.raw)
	text := fold(literals[i].write(nil, part))
	v.literals[i].Store(&text)
	return text
}

// literalPrefix is the number of symbols of a value that determine the first windowSize symbols of a literal: uuencode
// begins a line with its number of bytes.
const literalPrefix = 64

// beginning returns the first symbols of literals[i], or nil if it does not differ from another form.
func (v *value) beginning(i int) []byte {
	l, p := literals[i], v.raw
	if l.beyond && isASCII(p) {
		return nil
	}
	if !l.whole {
		p = prefix(p, literalPrefix)
	}
	part, _ := l.part(p)
	text := l.write(nil, part)
	switch {
	case l.size > 0 && (len(text) < windowSize || len(bytes.Trim(part, "\x00")) == 0):
		return nil // too short to be recognized
	case bytes.Equal(fold(text), fold(p)) && bytes.Equal(v.literal(i), v.folded):
		return nil
	}
	return text
}

// numbers writes bytes as numbers of at least width digits.
func numbers(base, width int, between string) func(dst, p []byte) []byte {
	return func(dst, p []byte) []byte {
		for i, b := range p {
			if i > 0 {
				dst = append(dst, between...)
			}
			s := strconv.FormatUint(uint64(b), base)
			for range width - len(s) {
				dst = append(dst, '0')
			}
			dst = append(dst, s...)
		}
		return dst
	}
}

// signed writes bytes as numbers, negative from 128 on.
func signed(between string) func(dst, p []byte) []byte {
	return func(dst, p []byte) []byte {
		for i, b := range p {
			if i > 0 {
				dst = append(dst, between...)
			}
			dst = strconv.AppendInt(dst, int64(int8(b)), 10)
		}
		return dst
	}
}

// characters writes like od -c.
func characters(dst, p []byte) []byte {
	for _, b := range p {
		switch i := indexByte("\x00\n\t\r\b\f\v\a", b); {
		case i >= 0:
			dst = append(dst, '\\', "0ntrbfva"[i])
		case b < ' ' || b > '~':
			dst = append(dst, '0'+b>>6, '0'+b>>3&7, '0'+b&7)
		default:
			dst = append(dst, b)
		}
	}
	return dst
}

var controls = strings.Fields("nul soh stx etx eot enq ack bel bs ht nl vt ff cr so si " +
	"dle dc1 dc2 dc3 dc4 nak syn etb can em sub esc fs gs rs us sp")

// charNames writes like od -a, which ignores the highest bit.
func charNames(dst, p []byte) []byte {
	for _, b := range p {
		switch b &= 0x7f; {
		case int(b) < len(controls):
			dst = append(dst, controls[b]...)
		case b == 0x7f:
			dst = append(dst, "del"...)
		default:
			dst = append(dst, b)
		}
	}
	return dst
}

// unescaped writes characters beyond ASCII with backslashes and does not escape the value's own backslashes, like
// Python's backslashreplace.
func unescaped(how spelling) func(dst, p []byte) []byte {
	return func(dst, p []byte) []byte {
		for len(p) > 0 {
			r, size := utf8.DecodeRune(p)
			switch {
			case r < utf8.RuneSelf:
				dst = append(dst, p[0])
			case r == utf8.RuneError && size == 1:
				dst = quoting{digits: lowerHex}.spell(dst, asHex, r, p[:1])
			default:
				dst = quoting{digits: lowerHex}.spell(dst, how, r, p[:size])
			}
			p = p[size:]
		}
		return dst
	}
}

// latin1 returns nothing for text that Latin-1 does not have.
func latin1(dst, p []byte) []byte {
	begin := len(dst)
	for _, r := range string(p) {
		if r > 0xff {
			return dst[:begin]
		}
		dst = append(dst, byte(r))
	}
	return dst
}

func reversed(dst, p []byte) []byte {
	r := []rune(string(p))
	slices.Reverse(r)
	return append(dst, string(r)...)
}

func rot13(dst, p []byte) []byte {
	for _, b := range p {
		if l := lower(b); 'a' <= l && l <= 'z' {
			b += (l-'a'+13)%26 - (l - 'a')
		}
		dst = append(dst, b)
	}
	return dst
}

func utf32(order binary.AppendByteOrder) func(dst, p []byte) []byte {
	return func(dst, p []byte) []byte {
		for _, r := range string(p) {
			dst = order.AppendUint32(dst, uint32(r))
		}
		return dst
	}
}

func base58(dst, p []byte) []byte {
	const digits = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
	const gos = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" // of Int.Text
	for _, b := range p {
		if b != 0 {
			break
		}
		dst = append(dst, digits[0])
	}
	n := new(big.Int).SetBytes(p)
	if n.Sign() == 0 {
		return dst
	}
	for _, c := range []byte(n.Text(58)) {
		dst = append(dst, digits[indexByte(gos, c)])
	}
	return dst
}

const ascii85digits = ""

// base85 writes groups of four bytes as five digits; without digits it is ASCII85.
func base85(digits string) func(dst, p []byte) []byte {
	return func(dst, p []byte) []byte {
		if digits == ascii85digits {
			out := make([]byte, ascii85.MaxEncodedLen(len(p)))
			return append(dst, out[:ascii85.Encode(out, p)]...)
		}
		for group := range slices.Chunk(p, 4) {
			n := binary.BigEndian.Uint32(append(slices.Clone(group), 0, 0, 0)[:4])
			var out [5]byte
			for i := range out {
				out[4-i] = digits[n%85]
				n /= 85
			}
			dst = append(dst, out[:len(group)+1]...)
		}
		return dst
	}
}

// uuencode writes lines of 45 bytes, each after its length.
func uuencode(zero byte) func(dst, p []byte) []byte {
	char := func(b byte) byte {
		if b == 0 {
			return zero
		}
		return b + ' '
	}
	return func(dst, p []byte) []byte {
		for line := range slices.Chunk(p, 45) {
			dst = append(dst, char(byte(len(line))))
			for group := range slices.Chunk(line, 3) {
				group = append(slices.Clone(group), 0, 0)[:3]
				for at := 0; at < 24; at += 6 {
					dst = append(dst, char(bitsAt(group, at, 6)))
				}
			}
		}
		return dst
	}
}
