package replay

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/custody-project/custody/audit"
)

// escape makes text safe to show: what is not a printable character or a plain
// space (controls, escapes, bidirectional overrides, zero-width and odd spaces,
// bytes that are not UTF-8) becomes \n, \xNN or \u{NNNN}.
func escape(text string) string {
	if isPlain(text) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		writeEscaped(&b, r, n, text[0])
		text = text[n:]
	}
	return b.String()
}

func isPlain(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

func writeEscaped(b *strings.Builder, r rune, size int, first byte) {
	switch {
	case r == utf8.RuneError && size <= 1, r < ' ' && r != '\n' && r != '\t' && r != '\r', r == 0x7f:
		fmt.Fprintf(b, `\x%02x`, first)
	case r == '\n':
		b.WriteString(`\n`)
	case r == '\t':
		b.WriteString(`\t`)
	case r == '\r':
		b.WriteString(`\r`)
	case !unicode.IsPrint(r) || isFiller(r):
		fmt.Fprintf(b, `\u{%x}`, r)
	default:
		b.WriteRune(r)
	}
}

// isFiller tells letters and marks that Unicode counts as printable and that show as nothing.
func isFiller(r rune) bool {
	switch r {
	case 0x115f, 0x1160, 0x3164, 0xffa0, 0x2800, 0x034f, 0x17b4, 0x17b5:
		return true
	}
	return unicode.Is(unicode.Variation_Selector, r)
}

// quote shows one argument as a shell would need it. An argument that needs
// escapes is written $'...', so that it cannot be mistaken for its own escape.
func quote(arg audit.Text) string {
	s := string(arg)
	switch {
	case s != "" && !strings.ContainsFunc(s, needsQuote) && isPlain(s):
		return s
	case escape(s) == s:
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return "$'" + escape(strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s)) + "'"
}

func needsQuote(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_@%+=:,./-", r))
}

// quoteAll shows a command line.
func quoteAll(argv []audit.Text) string {
	var b strings.Builder
	for i, arg := range argv {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(quote(arg))
	}
	return b.String()
}

// runeWidth is the number of cells that a terminal gives to a printable rune:
// two to the blocks of East Asian and pictographic characters, none to marks.
func runeWidth(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case r >= 0x1100 && r <= 0x115f, r >= 0x2e80 && r <= 0xa4cf && r != 0x303f, r >= 0xac00 && r <= 0xd7a3,
		r >= 0xf900 && r <= 0xfaff, r >= 0xfe30 && r <= 0xfe6f, r >= 0xff00 && r <= 0xff60,
		r >= 0xffe0 && r <= 0xffe6, r >= 0x1f300 && r <= 0x1faff, r >= 0x20000 && r <= 0x3fffd:
		return 2
	}
	return 1
}

// textWidth is the width in cells of text that has been escaped.
func textWidth(text string) int {
	if isPlain(text) {
		return len(text)
	}
	n := 0
	for _, r := range text {
		n += runeWidth(r)
	}
	return n
}

// cut shortens text to width cells, ending it in "…" if something is left out.
func cut(text string, width int) string {
	if textWidth(text) <= width {
		return text
	}
	n := 0
	for i, r := range text {
		if n += runeWidth(r); n >= width {
			return text[:i] + "…"
		}
	}
	return text
}
