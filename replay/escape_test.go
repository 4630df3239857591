package replay

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/custody-project/custody/audit"
)

var sgr = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// checkClean fails if out has anything but printable text, line ends and, with
// color, SGR sequences that are reset before the line's end.
func checkClean(t testing.TB, out []byte, opt Options) {
	t.Helper()
	if opt.Color {
		for l := range bytes.Lines(out) {
			if all := sgr.FindAll(l, -1); len(all) > 0 && string(all[len(all)-1]) != reset {
				t.Fatalf("a line does not end in its usual colour: %q", l)
			}
		}
		out = sgr.ReplaceAll(out, nil)
	}
	if !utf8.Valid(out) {
		t.Fatalf("output is not UTF-8: %q", out)
	}
	for _, r := range string(out) {
		if r != '\n' && !unicode.IsPrint(r) {
			t.Fatalf("output has the raw character %U: %q", r, out)
		}
	}
}

func TestEscape(t *testing.T) {
	for in, want := range map[string]string{
		"plain text":              "plain text",
		"":                        "",
		"\x1b[2J":                 `\x1b[2J`,
		"a\nb\tc\rd":              `a\nb\tc\rd`,
		"\x00\x7f":                `\x00\x7f`,
		"\x80\x9b31m":             `\x80\x9b31m`,
		"\u009b31m":               `\u{9b}31m`,
		"\u202eabc\u2066\u200f":   `\u{202e}abc\u{2066}\u{200f}`,
		"zero\u200bwidth\ufeff":   `zero\u{200b}width\u{feff}`,
		"line\u2028sep\u00a0nbsp": `line\u{2028}sep\u{a0}nbsp`,
		"\u3164hangul filler":     `\u{3164}hangul filler`,
		"é日本 ok":                  "é日本 ok",
		"\xff\xfe":                `\xff\xfe`,
		"\U000e0041tag":           `\u{e0041}tag`,
		"\ufffd itself":           "\ufffd itself",
	} {
		if got := escape(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{
		"plain": "plain", "/a/b-c.d": "/a/b-c.d", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$HOME": "'$HOME'",
		"a\nb": `$'a\nb'`, "\x1b'": `$'\x1b\''`, `a\nb`: `'a\nb'`, "a\\\x00": `$'a\\\x00'`, "日本": "'日本'",
	} {
		if got := quote(audit.Text(in)); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}

func TestCut(t *testing.T) {
	for _, tc := range []struct {
		text  string
		width int
		want  string
	}{
		{"abcdef", 6, "abcdef"}, {"abcdef", 5, "abcd…"}, {"abcdef", 1, "…"}, {"日本語", 6, "日本語"}, {"日本語", 5, "日本…"},
		{"日本語", 4, "日…"}, {"e\u0301e\u0301", 2, "e\u0301e\u0301"},
	} {
		got := cut(tc.text, tc.width)
		if got != tc.want || textWidth(got) > tc.width {
			t.Errorf("%q to %d: got %q, want %q", tc.text, tc.width, got, tc.want)
		}
	}
}

// FuzzEscape: nothing unprintable comes out, and what was clean stays as it is.
func FuzzEscape(f *testing.F) {
	for _, seed := range []string{"plain", "\x1b]0;x\x07", "\u202e\u2069", "\xc3\x28", strings.Repeat("ä", 100)} {
		f.Add(seed, 10)
	}
	f.Fuzz(func(t *testing.T, text string, width int) {
		got := escape(text)
		checkClean(t, []byte(strings.ReplaceAll(got, "\n", "\x00")), Options{})
		if escape(got) != got {
			t.Fatalf("escaping %q again changes it", got)
		}
		checkClean(t, []byte(strings.ReplaceAll(quote(audit.Text(text)), "\n", "\x00")), Options{})
		if width > 0 && textWidth(cut(got, width)) > width {
			t.Fatalf("%q cut to %d is wider", got, width)
		}
	})
}
