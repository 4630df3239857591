package redact

import (
	"encoding/binary"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// The writers below write a value's beginning as programs do. They differ where
// two programs would write one byte differently, as the first symbols of a form
// must be known exactly; what comes after those is decoded, whoever wrote it.

// writer appends what p looks like in an encoding.
type writer struct {
	kind  kind
	off   uint8
	write func(dst, p []byte) []byte

	all    bool // it writes letters and digits in another way too
	again  bool // another differs only in case
	beyond bool // another differs only beyond ASCII
}

func isASCII(p []byte) bool {
	for _, b := range p {
		if b >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func letters(p []byte) bool {
	for _, b := range p {
		if l := lower(b); (l < 'a' || 'z' < l) && (b < '0' || '9' < b) {
			return false
		}
	}
	return true
}

const (
	lowerHex = "0123456789abcdef"
	upperHex = "0123456789ABCDEF"
)

// percents are the percent encodings: of every byte; as Go's PathEscape,
// JavaScript's encodeURIComponent and encodeURI, and Python's quote see the
// reserved ones; and as Go's QueryEscape and JavaScript's URLSearchParams do, with
// "+" for a blank.
func percents() (list []writer) {
	for _, digits := range []string{upperHex, lowerHex} {
		again := digits == lowerHex
		list = append(list, writer{kind: pct, write: every("%", digits, ""), all: true, again: again})
		for _, keep := range []string{"-_.~", "-_.~/", "-_.~$&+=:@", "-_.!~*'()", "-_.!~*'();/?:@&=+$,#"} {
			list = append(list, writer{kind: pct, write: percent(keep, digits), again: again})
		}
		for _, keep := range []string{"-_.~ ", "*-._ "} {
			list = append(list, writer{kind: query, write: percent(keep, digits), again: again})
		}
	}
	return list
}

// percent keeps letters, digits and what is in keep; a blank that is kept is "+".
func percent(keep, digits string) func(dst, p []byte) []byte {
	return func(dst, p []byte) []byte {
		for _, b := range p {
			l := lower(b)
			switch kept := strings.IndexByte(keep, b) >= 0; {
			case kept && b == ' ':
				dst = append(dst, '+')
			case kept, 'a' <= l && l <= 'z', '0' <= b && b <= '9':
				dst = append(dst, b)
			default:
				dst = append(dst, '%', digits[b>>4], digits[b&15])
			}
		}
		return dst
	}
}

// every writes each byte with prefix and suffix.
func every(prefix, digits, suffix string) func(dst, p []byte) []byte {
	return func(dst, p []byte) []byte {
		for _, b := range p {
			dst = append(append(dst, prefix...), digits[b>>4], digits[b&15])
			dst = append(dst, suffix...)
		}
		return dst
	}
}

// runes writes each character with f.
func runes(f func(dst []byte, r rune) []byte) func(dst, p []byte) []byte {
	return func(dst, p []byte) []byte {
		for _, r := range string(p) {
			dst = f(dst, r)
		}
		return dst
	}
}

// latin writes each byte, taken for a character of Latin-1, with f.
func latin(f func(dst []byte, r rune) []byte) func(dst, p []byte) []byte {
	return func(dst, p []byte) []byte {
		for _, b := range p {
			dst = f(dst, rune(b))
		}
		return dst
	}
}

// u writes \uXXXX.
func u(digits string) func(dst []byte, r rune) []byte {
	return func(dst []byte, r rune) []byte {
		var room [2]uint16
		for _, c := range utf16.AppendRune(room[:0], r) {
			dst = append(dst, '\\', 'u', digits[c>>12], digits[c>>8&15], digits[c>>4&15], digits[c&15])
		}
		return dst
	}
}

// numbered writes &#NNN; or &#xNN;.
func numbered(prefix string, base int) func(dst []byte, r rune) []byte {
	return func(dst []byte, r rune) []byte {
		return append(strconv.AppendInt(append(dst, prefix...), int64(r), base), ';')
	}
}

// quoting is how a program writes strings: which bytes it puts a backslash
// before, which characters it writes as \u, and what it does beyond ASCII.
type quoting struct {
	quotes string
	coded  string // as \u
	ascii  bool   // all beyond ASCII as \u
	bytes  bool   // all beyond ASCII as \x, and what cannot be printed
	digits string
}

// quotings are those of JSON as encoding/json (with and without escapes for
// HTML), JavaScript, Python and PHP write it, of .NET, and of Python, C and
// $'...'.
var quotings = []quoting{
	{quotes: `"\`, digits: lowerHex},
	{quotes: `"\/`, digits: lowerHex},
	{quotes: `"\`, coded: "<>&", digits: lowerHex},
	{quotes: `"\`, ascii: true, digits: lowerHex},
	{quotes: `"\/`, ascii: true, digits: lowerHex},
	{quotes: `\`, coded: "\"<>&'+`", ascii: true, digits: upperHex},
	{quotes: `"\`, ascii: true, bytes: true, digits: lowerHex},
	{quotes: `'\`, digits: lowerHex},
	{quotes: `"'\`, digits: lowerHex},
	{quotes: `'\`, bytes: true, digits: lowerHex},
	{quotes: `"\`, bytes: true, digits: lowerHex},
}

func (l quoting) write(dst, p []byte) []byte {
	for len(p) > 0 {
		r, size := utf8.DecodeRune(p)
		b := p[0]
		switch i := strings.IndexByte("\n\t\r\b\f", b); {
		case strings.IndexByte(l.quotes, b) >= 0:
			dst = append(dst, '\\', b)
		case i >= 0 && (i < 3 || !l.bytes):
			dst = append(dst, '\\', "ntrbf"[i])
		case l.bytes && (b < ' ' || b >= 0x7f && !l.ascii || r == utf8.RuneError && size == 1):
			dst, size = every(`\x`, l.digits, "")(dst, p[:1]), 1
		case b < ' ' || strings.IndexByte(l.coded, b) >= 0 || b >= 0x80 && (l.ascii || r == utf8.RuneError):
			dst = u(l.digits)(dst, r)
		default:
			dst = append(dst, p[:size]...)
		}
		p = p[size:]
	}
	return dst
}

func escapes() (list []writer) {
	for _, l := range quotings {
		list = append(list, writer{kind: esc, write: l.write})
	}
	for _, digits := range []string{lowerHex, upperHex} {
		again := digits == upperHex
		list = append(list,
			writer{kind: esc, write: runes(u(digits)), all: true, again: again},
			writer{kind: esc, write: latin(u(digits)), all: true, again: again, beyond: true},
			writer{kind: esc, write: every(`\x`, digits, ""), all: true, again: again})
	}
	return append(list, writer{kind: esc, all: true, write: func(dst, p []byte) []byte {
		for _, b := range p {
			dst = append(dst, '\\', '0'+b>>6, '0'+b>>3&7, '0'+b&7)
		}
		return dst
	}})
}

// references says how a program writes HTML: what stands for which characters,
// and whether those beyond ASCII are written as numbers.
type references struct {
	names   map[rune]string
	numbers bool
}

func (f references) write(dst []byte, r rune) []byte {
	if name, ok := f.names[r]; ok {
		return append(dst, name...)
	}
	if f.numbers && r >= utf8.RuneSelf {
		return numbered("&#", 10)(dst, r)
	}
	return utf8.AppendRune(dst, r)
}

func entities() (list []writer) {
	for _, more := range []map[rune]string{
		{},
		{'"': "&quot;"},
		{'"': "&#34;", '\'': "&#39;"},
		{'"': "&quot;", '\'': "&#39;"},
		{'"': "&quot;", '\'': "&#039;"},
		{'"': "&quot;", '\'': "&apos;"},
		{'"': "&quot;", '\'': "&#x27;"},
		{'"': "&#34;", '\'': "&#39;", '+': "&#43;"},
		{'"': "&quot;", '\'': "&#x27;", '/': "&#x2F;"},
		{'"': "&quot;", '\'': "&#39;", '/': "&#x2F;", '`': "&#x60;", '=': "&#x3D;"},
	} {
		more['&'], more['<'], more['>'] = "&amp;", "&lt;", "&gt;"
		list = append(list,
			writer{kind: entity, write: runes(references{more, false}.write)},
			writer{kind: entity, write: runes(references{more, true}.write), beyond: true})
	}
	upper := func(dst []byte, r rune) []byte {
		return append(append(dst, "&#x"...), strings.ToUpper(strconv.FormatInt(int64(r), 16))+";"...)
	}
	return append(list,
		writer{kind: entity, write: runes(numbered("&#", 10)), all: true},
		writer{kind: entity, write: latin(numbered("&#", 10)), all: true, beyond: true},
		writer{kind: entity, write: runes(numbered("&#x", 16)), all: true},
		writer{kind: entity, write: runes(upper), all: true, again: true})
}

const shellSpecial = " \t\n!\"#$&'()*,;<=>?[\\]^`{|}~"

// shells are quoted words: a single quote written in the two usual ways, double
// quotes, and backslashes without quotes.
func shells() []writer {
	replace := func(pairs ...string) func(dst, p []byte) []byte {
		r := strings.NewReplacer(pairs...)
		return func(dst, p []byte) []byte { return append(dst, r.Replace(string(p))...) }
	}
	return []writer{
		{kind: shell, off: shellSingle, write: replace("'", `'\''`)},
		{kind: shell, off: shellSingle, write: replace("'", `'"'"'`)},
		{kind: shell, off: shellDouble, write: replace(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`")},
		{kind: shell, off: shellBare, write: func(dst, p []byte) []byte {
			for _, b := range p {
				if strings.IndexByte(shellSpecial, b) >= 0 {
					dst = append(dst, '\\')
				}
				dst = append(dst, b)
			}
			return dst
		}},
	}
}

// quotedPrintables escape every byte, or those that must be.
func quotedPrintables() []writer {
	return []writer{
		{kind: quoted, write: every("=", upperHex, ""), all: true},
		{kind: quoted, write: func(dst, p []byte) []byte {
			for _, b := range p {
				if b == '=' || b < ' ' || b > '~' {
					dst = append(dst, '=', upperHex[b>>4], upperHex[b&15])
				} else {
					dst = append(dst, b)
				}
			}
			return dst
		}},
	}
}

// wide writes UTF-16.
func wide(order binary.AppendByteOrder) func(dst, p []byte) []byte {
	return func(dst, p []byte) []byte {
		var room [2]uint16
		for _, r := range string(p) {
			for _, c := range utf16.AppendRune(room[:0], r) {
				dst = order.AppendUint16(dst, c)
			}
		}
		return dst
	}
}

// digits writes p in base64 or base32 from the first digit on that p alone
// decides, when it begins off bytes after a byte that began with a digit. What
// the last digit would share with a neighbour is left out.
func digits(k kind, off int, alphabet string) func(dst, p []byte) []byte {
	n, _ := k.bits()
	return func(dst, p []byte) []byte {
		for at := ceil(8*off, n)*n - 8*off; at+n <= 8*len(p); at += n {
			dst = append(dst, alphabet[bitsAt(p, at, n)])
		}
		return dst
	}
}

// bitsAt returns the n bits of p from bit at on, those beyond its end as 0.
func bitsAt(p []byte, at, n int) uint8 {
	v := uint16(p[at/8]) << 8
	if at/8+1 < len(p) {
		v |= uint16(p[at/8+1])
	}
	return uint8(v << (at % 8) >> (16 - n))
}
