package netpolicy

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// ClearPath reports whether every server parses a path in the same way: it has no dot segments, empty segments, escapes
// that affect where a segment ends or what it is, backslashes or parameters (";"). Beyond ASCII it allows escaped
// letters, digits and signs in valid UTF-8, except those that some servers fold to one of these, such as overlong and
// wide forms of "/" and ".".
func ClearPath(path string) bool {
	if !strings.HasPrefix(path, "/") {
		return false
	}
	for i := 0; i < len(path); {
		c := path[i]
		if c <= ' ' || c > '~' || c == '\\' || c == ';' || c == '?' || c == '#' {
			return false
		}
		n := 1
		if c == '%' {
			if n = harmlessEscape(path[i:]); n == 0 {
				return false
			}
		}
		i += n
	}
	if path == "/" {
		return true
	}
	for segment := range strings.SplitSeq(strings.TrimSuffix(path[1:], "/"), "/") {
		// Some file systems remove dots and spaces from the end of a name.
		if strings.Trim(strings.ReplaceAll(segment, "%20", ""), ".") == "" {
			return false
		}
	}
	return true
}

// structural are the characters that delimit a segment or change its meaning.
const structural = `./\%;?#`

// harmlessEscape returns the length of the escape, or of the escapes of one character, with which s begins, if the
// character has no special meaning in a path in any form, so that decoding it once, twice or not at all cannot change
// the meaning of the path. Otherwise it returns 0.
func harmlessEscape(s string) (n int) {
	c, ok := escaped(s)
	switch {
	case !ok || c < ' ' || c == 0x7f || strings.IndexByte(structural, c) >= 0:
		return 0
	case c < utf8.RuneSelf:
		return 3
	}
	var char []byte
	for ; ok && c >= utf8.RuneSelf && !utf8.FullRune(char); c, ok = escaped(s[n:]) {
		char = append(char, c)
		n += 3
	}
	if r, size := utf8.DecodeRune(char); r == utf8.RuneError || size != len(char) || !harmless(r) {
		return 0
	}
	return n
}

// escaped returns the byte of an escape.
func escaped(s string) (byte, bool) {
	if len(s) < 3 || s[0] != '%' {
		return 0, false
	}
	hi, ok1 := hexDigit(s[1])
	lo, ok2 := hexDigit(s[2])
	return hi<<4 | lo, ok1 && ok2
}

// harmless reports whether a character beyond ASCII is visible, does not change under any of Unicode's normal forms,
// and does not become a structural one.
func harmless(r rune) bool {
	if !unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.So, unicode.Pd, unicode.Pi, unicode.Pf, unicode.Ps, unicode.Pe) ||
		unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) || r == '\u034f' || r == '\ufffd' {
		return false
	}
	return !strings.ContainsFunc(norm.NFKC.String(string(r)), func(r rune) bool {
		return r <= ' ' || r == 0x7f || strings.ContainsRune(structural+"\u2044\u2215", r) // slashes of fractions
	})
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}
