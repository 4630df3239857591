package wire

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/custody-project/custody/audit"
)

// Legible returns text as one line without invisible characters: it writes control and format characters (including
// bidirectional ones) and line separators as numbers such as \x1b and \u202e, bytes that are not UTF-8 as \xff, and a
// backslash as two. Text of up to limit bytes can be decoded exactly; longer text is cut and ends with its full
// length. limit 0 means none.
func Legible(text string, limit int) string {
	cut := ""
	if limit > 0 && len(text) > limit {
		cut = fmt.Sprintf("... [%d bytes]", len(text))
		text = clip(text, limit)
	}
	if cut == "" && !strings.ContainsFunc(text, odd) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case r == '\\':
			b.WriteString(`\\`)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case !odd(r):
			b.WriteString(text[i : i+n])
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
		i += n
	}
	return b.String() + cut
}

// odd reports whether a character is escaped.
func odd(r rune) bool {
	switch {
	case r >= ' ' && r < 0x7f:
		return r == '\\'
	case r == utf8.RuneError: // an encoding error, or the character itself
		return true
	}
	return !unicode.IsPrint(r)
}

// CommandLine joins arguments, each quoted for a POSIX shell.
func CommandLine(argv []audit.Text) string {
	var b strings.Builder
	for i, a := range argv {
		if i > 0 {
			b.WriteByte(' ')
		}
		if a != "" && !strings.ContainsFunc(string(a), needsQuotes) {
			b.WriteString(string(a))
			continue
		}
		b.WriteString("'" + strings.ReplaceAll(string(a), "'", `'\''`) + "'")
	}
	return b.String()
}
