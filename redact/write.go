package redact

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// The writers below write a value's beginning as programs do. They differ where
// two programs would write one byte differently, as the first symbols of a form
// must be known exactly; what comes after those is decoded, regardless of its author.

// writer appends what p looks like in an encoding.
type writer struct {
	kind  kind
	off   uint8
	write func(dst, p []byte) []byte

	all    bool // whether it also writes letters and digits in another form
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

// percents are the percent encodings: of every byte; as Go's PathEscape, paths and passwords in its URLs,
// JavaScript's encodeURIComponent and encodeURI, and Python's quote see the
// reserved ones; and as Go's QueryEscape and JavaScript's URLSearchParams do, with
// "+" for a blank.
func percents() (list []writer) {
	for _, digits := range []string{upperHex, lowerHex} {
		again := digits == lowerHex
		list = append(list, writer{kind: pct, write: every("%", digits, ""), all: true, again: again})
		for _, keep := range []string{"-_.~", "-_.~/", "-_.~$&+=:@", "-_.~$&+,/:;=@", "-_.~$&+,;=", "-_.!~*'()", "-_.!~*'();/?:@&=+$,#"} {
			list = append(list, writer{kind: pct, write: percent(keep, digits), again: again})
		}
		for _, keep := range []string{"-_.~ ", "*-._ "} {
			list = append(list, writer{kind: query, write: percent(keep, digits), again: again})
		}
	}
	return append(list, writer{kind: pct, write: runes(legacyEscape)})
}

// legacyEscape writes a character as JavaScript's escape does.
func legacyEscape(dst []byte, r rune) []byte {
	switch {
	case r < utf8.RuneSelf:
		return percent("@*_+-./", upperHex)(dst, []byte{byte(r)})
	case r < 256:
		return every("%", upperHex, "")(dst, []byte{byte(r)})
	}
	return percentU(dst, r)
}

// percentU writes a character as %uXXXX, or two of them.
func percentU(dst []byte, r rune) []byte {
	var room [2]uint16
	for _, c := range utf16.AppendRune(room[:0], r) {
		dst = fmt.Appendf(dst, "%%u%04X", c)
	}
	return dst
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

// short writes each byte as 0x and no more digits than it needs.
func short(suffix string) func(dst, p []byte) []byte {
	return func(dst, p []byte) []byte {
		for _, b := range p {
			dst = append(strconv.AppendUint(append(dst, "0x"...), uint64(b), 16), suffix...)
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

// quoting is how a program writes strings: which characters get a backslash before
// them, which a letter of their own, and how it writes the others that need it.
type quoting struct {
	quotes  string
	named   string // control characters with a letter
	coded   string // printable ones that are written as \u
	control spelling
	beyond  spelling // ASCII
	digits  string
}

// spelling is how a character is written that does not stand for itself.
type spelling uint8

const (
	plainly  spelling = iota // as it is
	asUnits                  // \u of UTF-16
	asBytes                  // \u of each byte, as if it were Latin-1
	asPoint                  // \u, or \U with 8 digits
	asBraces                 // \u{XX}
	asLatin                  // \x up to U+00FF, else asPoint
	asHex                    // \x of each byte
	asOctal                  // \ooo of each byte
	asDigits                 // \o to \ooo, as many digits as are needed
)

const (
	namedC    = "\n\t\r\b\f\v\a"
	namedBash = "\n\t\r\b\f\v\a\x1b"
	namedJSON = "\n\t\r\b\f"
	namedPy   = "\n\t\r"
	namedPerl = "\n\t\r\b\f\a\x1b"
)

var quotings = []quoting{
	// JSON as encoding/json (with and without escapes for HTML), JavaScript, Python, PHP and jq write it, .NET, and html/template for scripts.
	{quotes: `"\`, named: namedJSON, control: asUnits, digits: lowerHex},
	{quotes: `"\/`, named: namedJSON, control: asUnits, digits: lowerHex},
	{quotes: `"\`, named: namedJSON, coded: "<>&", control: asUnits, digits: lowerHex},
	{quotes: `"\`, named: namedJSON, coded: "\x7f", control: asUnits, digits: lowerHex},
	{quotes: `"\`, named: namedJSON, coded: "\x7f", control: asUnits, beyond: asUnits, digits: lowerHex},
	{quotes: `"\`, named: namedJSON, coded: "\x7f", control: asUnits, beyond: asBytes, digits: lowerHex},
	{quotes: `"'\`, coded: "<>&=", control: asUnits, digits: upperHex},
	{quotes: `"\/`, named: namedJSON, control: asUnits, beyond: asUnits, digits: lowerHex},
	{quotes: `\`, named: namedJSON, coded: "\"<>&'+`", control: asUnits, beyond: asUnits, digits: upperHex},
	{quotes: `'\`, named: namedJSON, control: asUnits, digits: lowerHex},
	{quotes: `"'\`, named: namedJSON, control: asUnits, digits: lowerHex},
	// Go's %q and %+q.
	{quotes: `"\`, named: namedC, control: asHex, digits: lowerHex},
	{quotes: `"\`, named: namedC, control: asHex, beyond: asPoint, digits: lowerHex},
	// Python's repr of text and of bytes, and ascii; Node's inspect. With the other quotes around it, no quote is escaped.
	{quotes: `'\`, named: namedPy, control: asHex, digits: lowerHex},
	{quotes: `\`, named: namedPy, control: asHex, digits: lowerHex},
	{quotes: `'\`, named: namedPy, control: asHex, beyond: asHex, digits: lowerHex},
	{quotes: `\`, named: namedPy, control: asHex, beyond: asHex, digits: lowerHex},
	{quotes: `'\`, named: namedPy, control: asHex, beyond: asLatin, digits: lowerHex},
	{quotes: `\`, named: namedPy, control: asHex, beyond: asLatin, digits: lowerHex},
	{quotes: `'\`, named: namedJSON, control: asHex, digits: lowerHex},
	// C, and Rust's {:?} and escape_default.
	{quotes: `"\`, named: namedC, control: asHex, beyond: asHex, digits: lowerHex},
	{quotes: `"\`, named: namedPy, control: asBraces},
	{quotes: `"'\`, named: namedPy, control: asBraces, beyond: asBraces},
	// Git's names of files, $'...' of bash in any locale and in one of UTF-8, ls -b.
	{quotes: `"\`, named: namedC, control: asOctal, beyond: asOctal},
	{quotes: `'\`, named: namedBash, control: asOctal, beyond: asOctal},
	{quotes: `'\`, named: namedBash, control: asOctal},
	{quotes: ` \`, named: namedC, control: asOctal, beyond: asOctal},
	// Perl.
	{quotes: `"$@\`, named: namedPerl, control: asDigits, beyond: asOctal},
}

func (l quoting) write(dst, p []byte) []byte {
	for len(p) > 0 {
		r, size := utf8.DecodeRune(p)
		switch i := strings.IndexByte(namedBash, p[0]); {
		case strings.IndexByte(l.quotes, p[0]) >= 0:
			dst = append(dst, '\\', p[0])
		case i >= 0 && strings.IndexByte(l.named, p[0]) >= 0:
			dst = append(dst, '\\', "ntrbfvaE"[i])
		case p[0] < ' ' || p[0] == 0x7f && l.control != asUnits:
			if l.control == asDigits && (len(p) < 2 || p[1] < '0' || '9' < p[1]) {
				dst = fmt.Appendf(dst, `\%o`, p[0])
				break
			}
			dst = l.spell(dst, l.control, r, p[:1])
		case strings.IndexByte(l.coded, p[0]) >= 0:
			dst = u(l.digits)(dst, r)
		case r == utf8.RuneError && size == 1:
			dst = l.spell(dst, max(l.control, l.beyond), r, p[:1])
		case p[0] >= utf8.RuneSelf:
			dst = l.spell(dst, l.beyond, r, p[:size])
		default:
			dst = append(dst, p[0])
		}
		p = p[size:]
	}
	return dst
}

// spell writes the character r, whose bytes are p.
func (l quoting) spell(dst []byte, how spelling, r rune, p []byte) []byte {
	switch {
	case how == asUnits, (how == asPoint || how == asLatin && r > 0xff) && r < 0x10000:
		return u(l.digits)(dst, r)
	case how == asPoint, how == asLatin && r > 0xff:
		return fmt.Appendf(dst, `\U%08x`, r)
	case how == asLatin:
		return fmt.Appendf(dst, `\x%02x`, r)
	case how == asBraces:
		return fmt.Appendf(dst, `\u{%x}`, r)
	case how == asBytes:
		return latin(u(l.digits))(dst, p)
	case how == asHex:
		return every(`\x`, l.digits, "")(dst, p)
	case how == asOctal, how == asDigits:
		return octal(dst, p)
	}
	return append(dst, p...)
}

// octal writes each byte as \ooo.
func octal(dst, p []byte) []byte {
	for _, b := range p {
		dst = append(dst, '\\', '0'+b>>6, '0'+b>>3&7, '0'+b&7)
	}
	return dst
}

func escapes() (list []writer) {
	for _, l := range quotings {
		list = append(list, writer{kind: esc, write: l.write})
	}
	for _, special := range []string{metaPerl, metaPython, metaGo} {
		list = append(list, writer{kind: esc, write: backslashed(special, "")})
	}
	for _, digits := range []string{lowerHex, upperHex} {
		again := digits == upperHex
		list = append(list,
			writer{kind: esc, write: runes(u(digits)), all: true, again: again},
			writer{kind: esc, write: latin(u(digits)), all: true, again: again, beyond: true},
			writer{kind: esc, write: every(`\x`, digits, ""), all: true, again: again})
	}
	return append(list, writer{kind: esc, all: true, write: octal}, writer{kind: esc, write: runes(cookie)})
}

// cookie writes a character of a cookie's value as Python does.
func cookie(dst []byte, r rune) []byte {
	switch {
	case r == '"' || r == '\\':
		return append(dst, '\\', byte(r))
	case r < ' ', r == ',', r == ';', 0x7f <= r && r <= 0xff:
		return octal(dst, []byte{byte(r)})
	}
	return utf8.AppendRune(dst, r)
}

// references describes how a program writes HTML: what stands for which characters,
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
	for _, more := range []map[rune]string{ // of attributes, which keep their line breaks
		{'\n': "&#10;", '\t': "&#9;", '\r': "&#13;"},
		{'\n': "&#10;", '\t': "&#9;", '\r': "&#13;", '"': "&quot;"},
		{'\n': "&#xA;", '\t': "&#x9;", '\r': "&#xD;", '"': "&#34;", '\'': "&#39;"},
	} {
		more['&'], more['<'], more['>'] = "&amp;", "&lt;", "&gt;"
		list = append(list, writer{kind: entity, write: runes(references{more, false}.write)})
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

func replaced(pairs ...string) func(dst, p []byte) []byte {
	r := strings.NewReplacer(pairs...)
	return func(dst, p []byte) []byte { return append(dst, r.Replace(string(p))...) }
}

// doubles are texts within quotes that are written twice within them.
func doubles() (list []writer) {
	for i, mark := range quoteMarks {
		list = append(list, writer{kind: doubled, off: uint8(i), write: replaced(string(mark), string(mark)+string(mark))})
	}
	return list
}

// What stands in a shell's word with a backslash before it: always, and as bash has it, but for a first # or ~.
const (
	shellSpecial = " \t\n!\"#$&'()*,;<=>?[\\]^`{|}~"
	bashSpecial  = " \t\n!\"$&'()*,;<>?[\\]^`{|}"
)

// What stands in an expression with a backslash before it: as Perl's quotemeta, Python's re.escape and Go's regexp.QuoteMeta have it.
const (
	metaPerl   = "\x00\x01\x02\x03\x04\x05\x06\a\b\t\n\v\f\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f !\"#$%&'()*+,-./:;<=>?@[\\]^`{|}~\x7f"
	metaPython = "\t\n\v\f\r #$&()*+-.?[\\]^{|}~"
	metaGo     = `$()*+.?[\]^{|}`
)

// shells are quoted words: a single quote written in the usual ways, double
// quotes, backslashes without quotes, and GNU's mixture of '...' and $'...', of
// what cannot be printed in any locale and in one of UTF-8.
func shells() []writer {
	return []writer{
		{kind: shell, off: shellSingle, write: replaced("'", `'\''`)},
		{kind: shell, off: shellSingle, write: replaced("'", `'"'"'`)},
		{kind: shell, off: shellSingle, write: quotesTogether},
		{kind: shell, off: shellDouble, write: replaced(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`")},
		{kind: shell, off: shellBare, write: backslashed(shellSpecial, "")},
		{kind: shell, off: shellBare, write: backslashed(bashSpecial, "")},
		{kind: shell, off: shellBare, write: backslashed(bashSpecial, "#~")},
		{kind: shell, off: shellSingle, write: ansiQuoted(shellSingle, 0x7f)},
		{kind: shell, off: shellANSI, write: ansiQuoted(shellANSI, 0x7f)},
		{kind: shell, off: shellSingle, write: ansiQuoted(shellSingle, 0x100)},
		{kind: shell, off: shellANSI, write: ansiQuoted(shellANSI, 0x100)},
	}
}

// backslashed writes a backslash before what is special, and at the beginning before what is in first.
func backslashed(special, first string) func(dst, p []byte) []byte {
	return func(dst, p []byte) []byte {
		for i, b := range p {
			if strings.IndexByte(special, b) >= 0 || i == 0 && strings.IndexByte(first, b) >= 0 {
				dst = append(dst, '\\')
			}
			dst = append(dst, b)
		}
		return dst
	}
}

// quotesTogether writes single quotes that follow each other within one pair of double ones, as dash does.
func quotesTogether(dst, p []byte) []byte {
	for len(p) > 0 {
		n := 0
		for n < len(p) && p[n] == '\'' {
			n++
		}
		if n > 0 {
			dst = append(append(append(dst, `'"`...), p[:n]...), `"'`...)
			p = p[n:]
			continue
		}
		dst, p = append(dst, p[0]), p[1:]
	}
	return dst
}

// ansiQuoted writes '...' with $'...' for control characters and bytes from beyond on.
func ansiQuoted(within uint8, beyond int) func(dst, p []byte) []byte {
	c := quoting{quotes: "", named: namedC, control: asOctal, beyond: asOctal}
	return func(dst, p []byte) []byte {
		state := within
		for i, b := range p {
			special := b < ' ' || b == 0x7f || b > 0x7f && int(b) >= beyond
			switch {
			case special && state == shellSingle:
				dst, state = append(dst, "'$'"...), shellANSI
			case !special && state == shellANSI:
				dst, state = append(dst, "''"...), shellSingle
			}
			switch {
			case special && b > 0x7f:
				dst = octal(dst, p[i:i+1])
			case special:
				dst = c.write(dst, p[i:i+1])
			case b == '\'':
				dst = append(dst, `'\''`...)
			default:
				dst = append(dst, b)
			}
		}
		return dst
	}
}

// quotedPrintables escape every byte, or those that must be, with line breaks and without, with blanks and without.
func quotedPrintables() []writer {
	needed := func(keep, more string) func(dst, p []byte) []byte {
		return func(dst, p []byte) []byte {
			for _, b := range p {
				escape := b == '=' || b < ' ' || b > '~' || strings.IndexByte(more, b) >= 0
				if escape && strings.IndexByte(keep, b) < 0 {
					dst = append(dst, '=', upperHex[b>>4], upperHex[b&15])
				} else {
					dst = append(dst, b)
				}
			}
			return dst
		}
	}
	return []writer{
		{kind: quoted, write: every("=", upperHex, ""), all: true},
		{kind: quoted, write: needed("", "")},
		{kind: quoted, write: needed("\n\r\t", "")},
		{kind: quoted, write: needed("\n\r", " ")},
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
