package redact

import (
	"bytes"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// encodings names the set below; it is part of Digest and changes with the set.
const encodings = "custody-redact-1"

// pattern is one form in which a value can be written. left and right are how
// many base64 or base32 digits beside it still carry bits of the value, mixed
// with bits of a neighbour. Which digits those are depends on text we do not
// know, so they are no part of the pattern; they are masked when it matches.
// A pattern with a right above 0 ends in a digit itself.
type pattern struct {
	text        []byte
	left, right int
}

// expand returns every published form of value. Case and blanks do not matter
// (see fold), so hex is written once for upper, lower and mixed case.
func expand(value []byte) []pattern {
	s := string(value)
	single := []pattern{{text: value}}
	le, be := wide(s, binary.LittleEndian), wide(s, binary.BigEndian)
	var list []pattern
	add := func(forms ...string) {
		for _, f := range forms {
			list = append(list, pattern{text: []byte(f)})
		}
	}
	add(s, hex.EncodeToString(value), each(value, `\x%02x`), le, be)
	add(urlForms(s)...)
	add(jsonForms(s)...)
	add(htmlForms(s)...)
	add(shellForms(s)...)

	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		once := aligned(single, enc, 6, 3)
		list = append(list, once...)
		list = append(list, aligned(once, enc, 6, 3)...)
		list = append(list, aligned([]pattern{{text: []byte(le)}, {text: []byte(be)}}, enc, 6, 3)...)
		list = append(list, percent64(once)...)
	}
	return append(list, aligned(single, base32.StdEncoding, 5, 5)...)
}

// encoder is base64 or base32.
type encoder interface{ EncodeToString([]byte) string }

// aligned encodes each pattern at every offset it can have within a longer text.
// A digit holds bits bits and a group of digits holds group bytes. Of each form
// only the digits that the pattern alone decides are kept, and once more with
// what follows when the text ends there: a last digit with zero bits and padding.
func aligned(list []pattern, enc encoder, bits, group int) []pattern {
	var out []pattern
	for _, p := range list {
		for off := range group {
			all := enc.EncodeToString(append(make([]byte, off), p.text...))
			first, last := 8*off, 8*(off+len(p.text)) // in bits
			from, to := ceil(first, bits), last/bits
			left := from - floor(first-8*p.left, bits)
			right := ceil(last+8*p.right, bits) - to
			out = append(out, pattern{[]byte(all[from:to]), left, right})
			if p.right == 0 {
				out = append(out, pattern{[]byte(all[from:]), left, 0})
			}
		}
	}
	return out
}

func floor(a, b int) int {
	if a < 0 {
		return -ceil(-a, b)
	}
	return a / b
}

func ceil(a, b int) int { return (a + b - 1) / b }

// percent64 is base64 inside a URL: its three special digits are escaped.
func percent64(list []pattern) []pattern {
	var out []pattern
	for _, p := range list {
		if e := url.QueryEscape(string(p.text)); e != string(p.text) {
			out = append(out, pattern{[]byte(e), p.left, p.right})
		}
	}
	return out
}

func each(b []byte, format string) string {
	var out strings.Builder
	for _, c := range b {
		fmt.Fprintf(&out, format, c)
	}
	return out.String()
}

// wide is UTF-16.
func wide(s string, order binary.AppendByteOrder) string {
	var out []byte
	for _, u := range utf16.Encode([]rune(s)) {
		out = order.AppendUint16(out, u)
	}
	return string(out)
}

// urlForms are the percent encodings (RFC 3986 section 2.1): every byte, the
// reserved ones as Go's QueryEscape and PathEscape, as JavaScript's
// encodeURIComponent and encodeURI see them, and each of them encoded again.
func urlForms(s string) []string {
	every := each([]byte(s), "%%%02x")
	once := []string{
		every,
		url.QueryEscape(s),
		url.PathEscape(s),
		percent(s, "-_.~"),
		percent(s, "-_.!~*'()"),
		percent(s, "-_.!~*'();/?:@&=+$,#"),
	}
	out := append(once, each([]byte(every), "%%%02x"))
	for _, f := range once {
		out = append(out, url.QueryEscape(f))
	}
	return out
}

func percent(s, keep string) string {
	var out strings.Builder
	for _, c := range []byte(s) {
		l := lower(c)
		if 'a' <= l && l <= 'z' || '0' <= c && c <= '9' || strings.IndexByte(keep, c) >= 0 {
			out.WriteByte(c)
		} else {
			fmt.Fprintf(&out, "%%%02x", c)
		}
	}
	return out.String()
}

// jsonForms are the inner parts of JSON strings (RFC 8259 section 7): with and
// without Go's HTML escapes, with all but ASCII as \u escapes, with everything
// as \u escapes, each with / or \/, and each as a JSON string within another.
func jsonForms(s string) []string {
	plain := quote(s, false)
	once := slashed([]string{
		plain,
		quote(s, true),
		escape(plain, utf8.RuneSelf),
		escape(s, 0),
		cstring(s),
	})
	out := once
	for _, f := range once {
		out = append(out, slashed([]string{quote(f, false)})...)
	}
	return out
}

// slashed returns the forms and, where they have a slash, those with \/ as well.
func slashed(forms []string) []string {
	out := forms
	for _, f := range forms {
		if strings.Contains(f, "/") {
			out = append(out, strings.ReplaceAll(f, "/", `\/`))
		}
	}
	return out
}

func quote(s string, html bool) string {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(html)
	if enc.Encode(s) != nil { // a string always encodes
		return s
	}
	return strings.TrimSuffix(strings.TrimSuffix(out.String(), "\n")[1:], `"`)
}

// escape writes the runes from least on as \uXXXX.
func escape(s string, least rune) string {
	var out strings.Builder
	for _, r := range s {
		if r < least {
			out.WriteRune(r)
			continue
		}
		for _, u := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&out, `\u%04x`, u)
		}
	}
	return out.String()
}

// cstring is the inner part of a string literal as Go, Python and C print it.
func cstring(s string) string {
	q := strconv.QuoteToASCII(s)
	return q[1 : len(q)-1]
}

func htmlForms(s string) []string {
	var dec, hex strings.Builder
	for _, r := range s {
		fmt.Fprintf(&dec, "&#%d;", r)
		fmt.Fprintf(&hex, "&#x%x;", r)
	}
	named := strings.ReplaceAll(html.EscapeString(s), "&#34;", "&quot;")
	return []string{
		html.EscapeString(s),
		named,
		strings.ReplaceAll(named, "&#39;", "&apos;"),
		strings.ReplaceAll(named, "&#39;", "&#x27;"),
		strings.ReplaceAll(named, "&#39;", "'"),
		dec.String(),
		hex.String(),
	}
}

// shellForms are the inner parts of quoted shell words: a single quote written
// in the two usual ways, double quotes, and backslashes without any quotes.
func shellForms(s string) []string {
	var bare strings.Builder
	for _, r := range s {
		if strings.ContainsRune(" \t!\"#$&'()*,;<>?[\\]^`{|}~", r) {
			bare.WriteByte('\\')
		}
		bare.WriteRune(r)
	}
	return []string{
		strings.ReplaceAll(s, "'", `'\''`),
		strings.ReplaceAll(s, "'", `'"'"'`),
		strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(s),
		bare.String(),
	}
}
