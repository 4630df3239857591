package redact

import (
	"encoding/ascii85"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"mime/quotedprintable"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"
)

// encoder is a published encoding, as implemented by the standard library or a shell.
type encoder struct {
	name string
	text bool // of characters: it cannot represent invalid UTF-8
	do   func(s string) string
	once bool                // supported only for the value itself
	sole bool                // and only if it is the only encoding
	fits func(s string) bool // reports whether it can write s; nil: always
}

func (e encoder) writes(s string) bool {
	return (!e.text || utf8.ValidString(s)) && (e.fits == nil || e.fits(s))
}

func encoders() []encoder {
	bytewise := func(format string) func(string) string {
		return func(s string) string { return eachByte([]byte(s), format) }
	}
	runewise := func(format string) func(string) string {
		return func(s string) string {
			var out strings.Builder
			for _, r := range s {
				fmt.Fprintf(&out, format, r)
			}
			return out.String()
		}
	}
	units := func(format string) func(string) string {
		return func(s string) string {
			var out strings.Builder
			for _, u := range utf16.Encode([]rune(s)) {
				fmt.Fprintf(&out, format, u)
			}
			return out.String()
		}
	}
	wide := func(order binary.AppendByteOrder) func(string) string {
		return func(s string) string {
			var out []byte
			for _, u := range utf16.Encode([]rune(s)) {
				out = order.AppendUint16(out, u)
			}
			return string(out)
		}
	}
	coded := func(enc interface{ EncodeToString([]byte) string }) func(string) string {
		return func(s string) string { return enc.EncodeToString([]byte(s)) }
	}
	replaced := func(pairs ...string) func(string) string { return strings.NewReplacer(pairs...).Replace }
	backslashed := func(s string) string {
		var out strings.Builder
		for _, r := range s {
			if strings.ContainsRune(" !\"#$&'()*,;<=>?[\\]^`{|}~", r) {
				out.WriteByte('\\')
			}
			out.WriteRune(r)
		}
		return out.String()
	}
	marshal := func(html, slash bool) func(string) string {
		return func(s string) string {
			var out strings.Builder
			enc := json.NewEncoder(&out)
			enc.SetEscapeHTML(html)
			if enc.Encode(s) != nil {
				panic("a string always encodes")
			}
			j := out.String()[1 : out.Len()-2]
			if slash {
				j = strings.ReplaceAll(j, "/", `\/`)
			}
			return j
		}
	}
	// needed escapes the characters that a program must escape: letters are those of control characters.
	letters := map[byte]byte{'\n': 'n', '\t': 't', '\r': 'r', '\b': 'b', '\f': 'f', '\v': 'v', '\a': 'a', 0x1b: 'E'}
	needed := func(quotes, named string, control, beyond func(string) string) func(string) string {
		return func(s string) string {
			var out strings.Builder
			for len(s) > 0 {
				r, size := utf8.DecodeRuneInString(s)
				switch c := s[0]; {
				case strings.IndexByte(named, c) >= 0:
					out.WriteString(`\` + string(letters[c]))
				case strings.IndexByte(quotes, c) >= 0:
					out.WriteString(`\` + s[:1])
				case r < ' ' || r == 0x7f:
					out.WriteString(control(s[:1]))
				case r >= utf8.RuneSelf:
					out.WriteString(beyond(s[:size]))
				default:
					out.WriteByte(c)
				}
				s = s[size:]
			}
			return out.String()
		}
	}
	octal, hex, braces := bytewise(`\%03o`), bytewise(`\x%02x`), runewise(`\u{%x}`)
	latin := func(s string) string {
		if r := []rune(s)[0]; r > 0xff {
			return strings.Trim(strconv.QuoteToASCII(s), `"`)
		}
		return runewise(`\x%02x`)(s)
	}
	linewise := func(format string) func(string) string {
		return func(s string) string {
			lines := strings.Split(s, "\n")
			for i, line := range lines {
				lines[i] = fmt.Sprintf(format, line)
			}
			return strings.Join(lines, "\n")
		}
	}
	hasLines := func(s string) bool { return strings.Contains(s, "\n") }
	hasLongLine := func(s string) bool { return strings.Index(s, "\n") > 8 }
	const lettersC, lettersPy = "\n\t\r\b\f\v\a", "\n\t\r"
	return []encoder{
		{name: "raw", do: func(s string) string { return s }},
		{name: "hex", do: bytewise("%02x")},
		{name: "HEX", do: bytewise("%02X")},
		{name: "hex spaced", do: bytewise("%02x ")},
		{name: "base64", do: coded(base64.StdEncoding)},
		{name: "base64url", do: coded(base64.URLEncoding)},
		{name: "base64 lines", do: func(s string) string { return wrap(base64.StdEncoding.EncodeToString([]byte(s)), 76, "\n") }},
		{name: "base64 crlf", do: func(s string) string { return wrap(base64.StdEncoding.EncodeToString([]byte(s)), 64, "\r\n") }},
		{name: "hex lines", do: func(s string) string { return wrap(fmt.Sprintf("%x", s), 60, "\n") }},
		{name: "hex labels", do: func(s string) string { return wrap(fmt.Sprintf("%x", s), 63, ".") }},
		{name: "base32 labels", do: func(s string) string {
			return wrap(strings.TrimRight(base32.StdEncoding.EncodeToString([]byte(s)), "="), 30, ".")
		}},
		{name: "base64 labels", do: func(s string) string { return wrap(base64.RawURLEncoding.EncodeToString([]byte(s)), 32, ".") }},
		{name: "hex colons", once: true, do: bytewise("%02x:")},
		{name: "hex dashes", once: true, do: bytewise("%02X-")},
		{name: "0x", once: true, do: bytewise("0x%02x, ")},
		{name: "numbers", once: true, do: bytewise("%d, ")},
		{name: "go bytes", once: true, do: func(s string) string {
			return strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%#v", []byte(s)), "[]byte{"), "}")
		}},
		{name: "0x short", once: true, do: bytewise("0x%x ")},
		{name: "signed", once: true, do: func(s string) string {
			var out strings.Builder
			for _, b := range []byte(s) {
				fmt.Fprintf(&out, "%d, ", int8(b))
			}
			return out.String()
		}},
		{name: "od -c", once: true, do: odc},
		{name: "od -a", once: true, do: oda},
		{name: "base58", once: true, sole: true, do: base58Slow},
		{name: "od -tu1", once: true, do: dump("%07o", 16, " %3d", "")},
		{name: "od -x", once: true, do: wordDump("%07o", 2, " %04x", "")},
		{name: "od -tx4", once: true, do: wordDump("%07o", 4, " %08x", "")},
		{name: "od -tx4z", once: true, do: wordDump("%07o", 4, " %08x", "  >%s<")},
		{name: "od -tx8", once: true, do: wordDump("%07o", 8, " %016x", "")},
		{name: "od -An -tx4", once: true, do: wordDump("", 4, " %08x", "")},
		{name: "od", once: true, do: wordDump("%07o", 2, " %06o", "")},
		{name: "od -to4", once: true, do: wordDump("%07o", 4, " %011o", "")},
		{name: "od -tu2", once: true, do: wordDump("%07o", 2, " %5d", "")},
		{name: "od -tu4", once: true, do: wordDump("%07o", 4, " %10d", "")},
		{name: "od -tu8", once: true, do: wordDump("%07o", 8, " %20d", "")},
		{name: "xxd -e", once: true, do: wordDump("%08x: ", 4, "%08x ", " %s")},
		{name: "xxd -e -g2", once: true, do: wordDump("%08x: ", 2, "%04x ", " %s")},
		{name: "xxd -b", once: true, do: dump("%08x: ", 6, "%08b ", " %s")},
		{name: "octal short", once: true, do: bytewise("%o ")},
		{name: "od -to1", once: true, do: bytewise(" %03o")},
		{name: "binary", once: true, do: bytewise("%08b ")},
		{name: "reversed", text: true, once: true, do: func(s string) string { r := []rune(s); slices.Reverse(r); return string(r) }},
		{name: "rot13", text: true, once: true, do: func(s string) string {
			return strings.Map(func(r rune) rune {
				switch {
				case 'a' <= r && r <= 'z':
					return 'a' + (r-'a'+13)%26
				case 'A' <= r && r <= 'Z':
					return 'A' + (r-'A'+13)%26
				}
				return r
			}, s)
		}},
		{name: "od -An -tx1", once: true, do: dump("", 16, " %02x", "")},
		{name: "od -tx1", once: true, do: dump("%07o", 16, " %02x", "")},
		{name: "od -tx1z", once: true, do: dump("%07o", 16, " %02x", "  >%s<")},
		{name: "xxd -c 7 -g1", once: true, do: dump("%08x: ", 7, "%02x ", " %s")},
		{name: "xxd", once: true, do: xxd},
		{name: "hexdump -C", once: true, do: dump("%08x  ", 16, "%02x ", " |%s|")},
		{name: "latin-1", text: true, once: true, sole: true, fits: func(s string) bool { return !strings.ContainsFunc(s, func(r rune) bool { return r > 0xff }) }, do: func(s string) string {
			var out []byte
			for _, r := range s {
				out = append(out, byte(r))
			}
			return string(out)
		}},
		{name: "utf-32le", text: true, once: true, do: func(s string) string {
			var out []byte
			for _, r := range s {
				out = binary.LittleEndian.AppendUint32(out, uint32(r))
			}
			return string(out)
		}},
		{name: "ascii85", once: true, sole: true, do: func(s string) string {
			out := make([]byte, ascii85.MaxEncodedLen(len(s)))
			return string(out[:ascii85.Encode(out, []byte(s))])
		}},
		{name: "quoted-printable", once: true, do: func(s string) string {
			var out strings.Builder
			w := quotedprintable.NewWriter(&out)
			w.Binary = true
			_, err1 := io.WriteString(w, s)
			if err2 := w.Close(); err1 != nil || err2 != nil {
				panic("a builder never fails")
			}
			return out.String()
		}},
		{name: "base64 unpadded", do: coded(base64.RawStdEncoding)},
		{name: "base32", do: coded(base32.StdEncoding)},
		{name: "base32 lower", do: func(s string) string { return strings.ToLower(base32.StdEncoding.EncodeToString([]byte(s))) }},
		{name: "base32hex", do: coded(base32.HexEncoding)},
		{name: "query", do: url.QueryEscape},
		{name: "path", do: url.PathEscape},
		{name: "quote", do: percentEncode("-_.~/")},
		{name: "component", do: percentEncode("-_.!~*'()")},
		{name: "uri", do: percentEncode("-_.!~*'();/?:@&=+$,#")},
		{name: "percent", do: bytewise("%%%02X")},
		{name: "percent lower", do: bytewise("%%%02x")},
		{name: "json", text: true, do: marshal(true, false)},
		{name: "json plain", text: true, do: marshal(false, false)},
		{name: "json slashes", text: true, do: marshal(false, true)},
		{name: `\u`, text: true, do: units(`\u%04x`)},
		{name: `\U`, text: true, do: units(`\u%04X`)},
		{name: `\x`, do: bytewise(`\x%02x`)},
		{name: "octal", do: bytewise(`\%03o`)},
		{name: "go", text: true, do: func(s string) string { q := strconv.QuoteToASCII(s); return q[1 : len(q)-1] }},
		{name: "git", do: needed(`"\`, lettersC, octal, octal)},
		{name: "ls -b", do: needed(` \`, lettersC, octal, octal)},
		{name: "printf %q", do: needed(`'\`, lettersC+"\x1b", octal, octal)},
		{name: "python bytes", do: needed(`'\`, lettersPy, hex, hex)},
		{name: "python ascii", text: true, do: needed(`'\`, lettersPy, hex, latin)},
		{name: "rust", text: true, do: needed(`"'\`, lettersPy, braces, braces)},
		{name: "escape()", text: true, do: func(s string) string {
			var out strings.Builder
			for _, u := range utf16.Encode([]rune(s)) {
				switch {
				case u < 128 && strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789@*_+-./", rune(u)):
					out.WriteByte(byte(u))
				case u < 256:
					fmt.Fprintf(&out, "%%%02X", u)
				default:
					fmt.Fprintf(&out, "%%u%04X", u)
				}
			}
			return out.String()
		}},
		{name: "%u", text: true, once: true, do: units("%%u%04X")},
		{name: "utf-16le", text: true, do: wide(binary.LittleEndian)},
		{name: "utf-16be", text: true, do: wide(binary.BigEndian)},
		{name: "html", text: true, do: html.EscapeString},
		{name: "xml attribute", text: true, do: func(s string) string {
			return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "\n", "&#10;", "\t", "&#9;", "\r", "&#13;").Replace(s)
		}},
		{name: "html decimal", text: true, do: runewise("&#%d;")},
		{name: "html hex", text: true, do: runewise("&#x%x;")},
		{name: "html HEX", text: true, do: runewise("&#x%X;")},
		{name: "shell", do: replaced("'", `'\''`)},
		{name: "shlex", do: replaced("'", `'"'"'`)},
		{name: "sql", do: replaced("'", "''")},
		{name: "csv", do: replaced(`"`, `""`)},
		{name: "diff", once: true, fits: hasLines, do: linewise("+%s")},
		{name: "quoted", once: true, fits: hasLines, do: linewise("> %s")},
		{name: "indented", once: true, fits: hasLines, do: linewise(strings.Repeat(" ", 6) + "%s")},
		{name: "far indented", once: true, fits: hasLongLine, do: linewise(strings.Repeat(" ", 100) + "%s")},
		{name: "cat -n", once: true, fits: hasLongLine, do: func(s string) string {
			var out strings.Builder
			for i, line := range strings.SplitAfter(s, "\n") {
				fmt.Fprintf(&out, "%6d\t%s", i+1, line)
			}
			return out.String()
		}},
		{name: "log", once: true, fits: hasLongLine, do: linewise("2026-01-02T03:04:05.678901Z  INFO deploy::keys[1234]: thread main: %s")},
		{name: "code", once: true, fits: hasLongLine, do: linewise("\t\"%s\\n\" +")},
		{name: "shell double", do: replaced(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`")},
		{name: "json.dumps", text: true, do: func(s string) string {
			return strings.ReplaceAll(asciiJSON(s), "\x7f", `\u007f`)
		}},
		{name: "json of latin-1", once: true, do: func(s string) string {
			return asciiJSON(string(latinRunes(s)))
		}},
		{name: "perl", do: func(s string) string {
			var out strings.Builder
			for i := range len(s) {
				one := needed(`"$@\`, "\n\t\r\b\f\a\x1b", octal, octal)(s[i : i+1])
				if digit := i+1 < len(s) && '0' <= s[i+1] && s[i+1] <= '9'; strings.HasPrefix(one, `\0`) && !digit {
					one = fmt.Sprintf(`\%o`, s[i])
				}
				out.WriteString(one)
			}
			return out.String()
		}},
		{name: "backslashreplace", text: true, once: true, do: needed("", "", func(s string) string { return s }, latin)},
		{name: "xmlcharrefreplace", text: true, once: true, do: needed("", "", func(s string) string { return s }, runewise("&#%d;"))},
		{name: "shell-escape", once: true, do: func(s string) string {
			var out strings.Builder
			ansi := false
			for i := range len(s) {
				special := s[i] < ' ' || s[i] >= 0x7f
				switch {
				case special && !ansi:
					out.WriteString("'$'")
				case !special && ansi:
					out.WriteString("''")
				}
				ansi = special
				switch {
				case special:
					out.WriteString(needed("", lettersC, octal, octal)(s[i : i+1]))
				case s[i] == '\'':
					out.WriteString(`'\''`)
				default:
					out.WriteByte(s[i])
				}
			}
			return out.String()
		}},
		{name: "dash", do: func(s string) string {
			return regexp.MustCompile("'+").ReplaceAllStringFunc(s, func(q string) string { return `'"` + q + `"'` })
		}},
		{name: "shell bare", text: true, fits: func(s string) bool { return !hasLines(s) || hasLongLine(s) }, do: backslashed},
	}
}

// asciiJSON is JSON with all characters beyond ASCII as \u.
func asciiJSON(s string) string {
	var out, ascii strings.Builder
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic("a string always encodes")
	}
	quoted := strings.TrimSuffix(out.String(), "\n")
	for _, r := range quoted[1 : len(quoted)-1] {
		if r < utf8.RuneSelf {
			ascii.WriteRune(r)
			continue
		}
		for _, u := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&ascii, `\u%04x`, u)
		}
	}
	return ascii.String()
}

func latinRunes(s string) (list []rune) {
	for _, b := range []byte(s) {
		list = append(list, rune(b))
	}
	return list
}

// dump writes lines of width bytes, each with its address before and its text after.
func dump(address string, width int, format, text string) func(string) string {
	return func(s string) string {
		var out strings.Builder
		for at := 0; at < len(s); at += width {
			row := s[at:min(at+width, len(s))]
			if address != "" {
				fmt.Fprintf(&out, address, at)
			}
			out.WriteString(eachByte([]byte(row), format))
			for range width - len(row) {
				out.WriteString("   ")
			}
			if text != "" {
				fmt.Fprintf(&out, text, printable(row))
			}
			out.WriteByte('\n')
		}
		return out.String()
	}
}

// wordDump writes lines of 16 bytes in words of a little-endian machine.
func wordDump(address string, size int, format, text string) func(string) string {
	return func(s string) string {
		var out strings.Builder
		for at := 0; at < len(s); at += 16 {
			row := s[at:min(at+16, len(s))]
			if address != "" {
				fmt.Fprintf(&out, address, at)
			}
			for i := 0; i < len(row); i += size {
				n := uint64(0)
				for j := min(i+size, len(row)) - 1; j >= i; j-- {
					n = n<<8 | uint64(row[j])
				}
				fmt.Fprintf(&out, format, n)
			}
			if text != "" {
				fmt.Fprintf(&out, text, printable(row))
			}
			out.WriteByte('\n')
		}
		return out.String()
	}
}

func printable(row string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '.'
		}
		return r
	}, row)
}

// odc writes like od -c.
func odc(s string) string {
	names := map[byte]string{0: `\0`, 7: `\a`, 8: `\b`, 9: `\t`, 10: `\n`, 11: `\v`, 12: `\f`, 13: `\r`}
	return characterRows(s, func(b byte) string {
		switch name, ok := names[b]; {
		case ok:
			return name
		case b < ' ' || b > '~':
			return fmt.Sprintf("%03o", b)
		}
		return string(b)
	})
}

// oda writes like od -a.
func oda(s string) string {
	names := map[byte]string{0: "nul", 1: "soh", 2: "stx", 3: "etx", 7: "bel", 8: "bs", 9: "ht", 10: "nl", 11: "vt", 12: "ff", 13: "cr", 15: "si", 0x1b: "esc", 0x20: "sp", 0x7f: "del"}
	for i, name := range []string{4: "eot", 5: "enq", 6: "ack", 14: "so", 16: "dle", 17: "dc1", 18: "dc2", 19: "dc3", 20: "dc4", 21: "nak", 22: "syn", 23: "etb", 24: "can", 25: "em", 26: "sub", 28: "fs", 29: "gs", 30: "rs", 31: "us"} {
		if name != "" {
			names[byte(i)] = name
		}
	}
	return characterRows(s, func(b byte) string {
		if name, ok := names[b&0x7f]; ok {
			return name
		}
		return string(b & 0x7f)
	})
}

func characterRows(s string, char func(byte) string) string {
	var out strings.Builder
	for at := 0; at < len(s); at += 16 {
		fmt.Fprintf(&out, "%07o", at)
		for _, b := range []byte(s[at:min(at+16, len(s))]) {
			fmt.Fprintf(&out, " %3s", char(b))
		}
		out.WriteByte('\n')
	}
	return out.String()
}

// base58Slow divides by hand, digit by digit.
func base58Slow(s string) string {
	const digits = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
	var out []byte
	number := []byte(s)
	for strings.Trim(string(number), "\x00") != "" {
		rest := 0
		for i, b := range number {
			rest = rest<<8 | int(b)
			number[i], rest = byte(rest/58), rest%58
		}
		out = append(out, digits[rest])
	}
	for range len(s) - len(strings.TrimLeft(s, "\x00")) {
		out = append(out, '1')
	}
	slices.Reverse(out)
	return string(out)
}

func xxd(s string) string {
	var out strings.Builder
	for at := 0; at < len(s); at += 16 {
		row := s[at:min(at+16, len(s))]
		fmt.Fprintf(&out, "%08x: %-39s  %s\n", at, strings.TrimRight(wrap(fmt.Sprintf("%x", row), 4, " "), " "), printable(row))
	}
	return out.String()
}

func percentEncode(keep string) func(string) string {
	return func(s string) string {
		var out strings.Builder
		for _, c := range []byte(s) {
			if l := lower(c); 'a' <= l && l <= 'z' || '0' <= c && c <= '9' || strings.IndexByte(keep, c) >= 0 {
				out.WriteByte(c)
			} else {
				fmt.Fprintf(&out, "%%%02X", c)
			}
		}
		return out.String()
	}
}

// dump reports whether e writes rows, which begin a line.
func (e encoder) dump() bool {
	return strings.HasPrefix(e.name, "od") || strings.HasPrefix(e.name, "xxd") || strings.HasPrefix(e.name, "hexdump")
}

// aligned reports whether the encoding of a value depends on its position in the text.
func (e encoder) aligned() bool { return strings.HasPrefix(e.name, "base") }

// TestPairs writes each value in each encoding of each encoding, at each alignment: every symbol that depends on the
// value must be masked.
func TestPairs(t *testing.T) {
	values := map[string]string{
		"plain":   "hunter2-hunter2",
		"token":   "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
		"special": `p@ss/w0rd+"q'\&<x> $(y)%`,
		"unicode": "pässwörd-密钥-🔑",
		"key":     "sk-ant-api03-" + strings.Repeat("kZ3_xQ9-", 12),
		"short":   "a1b2c3d4",
		"dotted":  ".eyJhbGciOiJI.eyJzdWIi/x.sig+v_.",
		"signs":   "i:~>_Yb;+$[:5X\" '{{^ @_`9=$Y0{|l", // escape() keeps "+", "@", "/" and "*", and escapes "~"
	}
	for name, value := range values {
		r := redactor(t, map[string]string{name: value})
		for _, inner := range encoders() {
			for _, outer := range encoders() {
				if inner.once || outer.once && inner.name != "raw" {
					continue
				}
				if !outer.writes(inner.do(value)) {
					continue
				}
				for before := range 5 {
					if before > 0 && !inner.aligned() {
						break
					}
					for more := range 5 {
						if more > 0 && !outer.aligned() {
							break
						}
						c := layout{inner, outer, before, more}
						c.check(t, r, value)
					}
				}
			}
		}
	}
}

// layout is a text with a value in two encodings.
type layout struct {
	inner, outer encoder
	before, more int // bytes before the value, and before its inner encoding
}

func (l layout) text(value string) string {
	const filler = "kqzjwvxkqzjwvxkqz"
	if l.outer.sole {
		return "{" + l.outer.do(value) + "}"
	}
	inner := l.inner.do(filler[:l.before] + value + filler[:2])
	if l.outer.dump() {
		return "{\n" + l.outer.do(filler[:l.more]+inner) + "}"
	}
	return "{" + l.outer.do(filler[:l.more]+inner) + "}"
}

// check finds the symbols that depend on the value by replacing it with others of its length.
func (l layout) check(t *testing.T, r *Redactor, value string) {
	t.Helper()
	text := l.text(value)
	first, last := len(text), 0
	var ends [2]bool // a sibling differs at that end
	for i, other := range siblings(value) {
		o := l.text(other)
		if len(o) != len(text) || len(l.inner.do(other)) != len(l.inner.do(value)) || utf8.ValidString(other) != utf8.ValidString(value) {
			continue
		}
		ends[i%2] = true
		n := 0
		for n < min(len(o), len(text)) && o[n] == text[n] {
			n++
		}
		first = min(first, n)
		n = 0
		for n < min(len(o), len(text))-first && o[len(o)-1-n] == text[len(text)-1-n] {
			n++
		}
		last = max(last, len(text)-n)
	}
	out := r.String(text)
	head, rest, ok := strings.Cut(out, "[REDACTED:")
	_, tail, _ := strings.Cut(rest, "]")
	if l.outer.once || l.inner.once { // a dump can have two
		tail = rest[strings.LastIndex(rest, "]")+1:]
	}
	if !ok || !strings.HasPrefix(text, head) || !strings.HasSuffix(text, tail) {
		t.Fatalf("%s of %s, %d and %d before: %q became %q", l.outer.name, l.inner.name, l.more, l.before, text, out)
	}
	// Up to 4 bits of the value's first byte may be in an inner digit that an outer encoding has written in several
	// symbols.
	slack := 0
	if l.before > 0 && !l.outer.aligned() {
		slack = len(l.outer.do("x"))
	}
	if l.outer.once { // a dump aligns its output
		head, tail = strings.TrimRight(head, " "), strings.TrimLeft(tail, " ")
	}
	if len(head) > first+slack || len(tail) > len(text)-last {
		t.Fatalf("%s of %s, %d and %d before: %q became %q, but %q to %q is the value", l.outer.name, l.inner.name, l.more, l.before, text, out, text[:first], text[last:])
	}
	// A character's first symbols may be common to all characters.
	if most := 4 + len(l.outer.do(l.inner.do(value)))/2; !l.outer.once && !l.inner.once && ends[0] && len(head) < first-most || !l.outer.once && !l.inner.once && ends[1] && len(tail) < len(text)-last-most {
		t.Fatalf("%s of %s, %d and %d before: %q became %q: more than the value is masked", l.outer.name, l.inner.name, l.more, l.before, text, out)
	}
}

// siblings differ from value in one bit of its first or last byte.
func siblings(value string) (list []string) {
	for bit := range 8 {
		for _, at := range []int{0, len(value) - 1} {
			b := []byte(value)
			b[at] ^= 1 << bit
			list = append(list, string(b))
		}
	}
	return list
}

// FuzzPairs writes any value in any two encodings: every symbol that depends on it must be masked, in one piece and in
// two.
func FuzzPairs(f *testing.F) {
	f.Add("hunter2-hunter2", uint8(4), uint8(10), uint8(1), uint8(2), uint16(20))
	f.Add(`a'b"c\d$e%f&g/h+i=j`, uint8(20), uint8(30), uint8(0), uint8(0), uint16(9))
	f.Add("\x00\xff\xfe0000\x80\r\n", uint8(1), uint8(4), uint8(2), uint8(1), uint16(3))
	f.Add("..\u2028.dots . and\tblanks. ", uint8(33), uint8(5), uint8(0), uint8(4), uint16(30))
	f.Fuzz(func(t *testing.T, value string, in, out, before, more uint8, at uint16) {
		value = strings.Trim(value, " \n\t\r") // blanks around a value are kept
		all := encoders()
		l := layout{all[int(in)%len(all)], all[int(out)%len(all)], int(before), int(more)}
		l.before %= alignments(l.inner)
		l.more %= alignments(l.outer)
		switch {
		case len(value) > 300, l.inner.once, l.outer.once && l.inner.name != "raw":
			return
		case !l.inner.writes(value), !l.outer.writes(l.inner.do(value)):
			return
		}
		r := New(testKey)
		if r.Add("v", []byte(value)) != nil {
			return
		}
		l.check(t, r, value)
		text := l.text(value)
		split := int(at) % (len(text) + 1)
		if got, want := string(pieces(r, []byte(text), []int{split, len(text)})), r.String(text); split > 0 && got != want {
			t.Fatalf("%q split at %d: %q, in one piece %q", text, split, got, want)
		}
	})
}
